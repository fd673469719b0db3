#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check docs/design/words.md: each word stands once, and where it says it lives exists.

Prints one line for each breach and exits with 1 if there is any.
"""

import argparse
import pathlib
import re
import sys

PAGE = pathlib.Path("docs/design/words.md")
ROOTS = ("src", "python/ext", ".")


def rows(page):
    """Yield (line number, words, files) for each row of the tables."""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0] != "word" and set(cells[0]) != {"-"}:
            yield number, cells[0].split(", "), re.findall(r"`([^`]+)`", cells[2])


def is_there(root, name):
    if "/" in name or "." in name:
        return any((root / base / name).exists() for base in ROOTS)
    return any(name in header.read_text() for header in (root / "include/weft").glob("*.h"))


def check(root):
    seen = {}
    for number, words, files in rows(root / PAGE):
        for word in words:
            if word in seen:
                yield f"{PAGE}:{number}: {word} stands in line {seen[word]} already"
            seen[word] = number
        for name in files:
            if not is_there(root, name):
                yield f"{PAGE}:{number}: {name} does not exist"
        if not files:
            yield f"{PAGE}:{number}: no file is named"
    if not seen:
        yield f"{PAGE}: no word is defined"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[2])
    breaches = list(check(parser.parse_args().root))
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
