#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that each promise in docs/design/promises.md names tests that exist.

- A row names tests as `file::name`, from tests/ on, or is "-" and says why there is none.
- `file::name[case]` is one case of a test: a function or a text of that file.
- In the first section each promise has a row for every way in, once.
- A page, and a heading of it, that is linked to exists.

Prints one line for each breach and exits with 1 if there is any.
"""

import argparse
import pathlib
import re
import sys

PAGE = pathlib.Path("docs/design/promises.md")
WAYS = ["C", "weft", "torch", "CUDA", "mpi", "tables", "old names"]
EVERY_WAY = "## Of every way in"

TEST = re.compile(r"`([\w/]+\.\w+)(?:::(\w+)(?:\[([^]`]+)\])?)?`")
LINK = re.compile(r"\]\(([^)#]+)(?:#([^)]*))?\)")
ROW = re.compile(r"^\|(.*)\|(.*)\|(.*)\|$")


def is_test(text, name, suffix):
    """Is `name` a test in this source, and run?"""
    if suffix == ".c":
        return re.search(rf"\(\s*{name}\s*[,)]", text) is not None
    called = len(re.findall(rf"\b{name}\b", text)) > 1
    return f"def {name}(" in text and (name.startswith("test_") or called)


def is_case(text, case):
    return f"def {case}(" in text or f'"{case}"' in text


def wrong_test(tests, file, name, case):
    """Say what is wrong with one test that is named, or return None."""
    path = tests / file
    if not path.is_file():
        return f"there is no tests/{file}"
    text = path.read_text()
    if name and not is_test(text, name, path.suffix):
        return f"tests/{file} runs no {name}"
    if case and not is_case(text, case):
        return f"tests/{file} has no case {case}"
    return None


def rows(page):
    """Yield (line number, section, promise, way, kept by) for each row of the tables."""
    section = promise = ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        section = line if line.startswith("## ") else section
        match = ROW.match(line)
        if match is None or "---" in line:
            continue
        first, way, kept = (cell.strip() for cell in match.groups())
        promise = first or promise
        if promise != "the promise":
            yield number, section, promise, way, kept


def check_row(root, way, kept):
    if way not in WAYS:
        yield f"{way!r} is none of {', '.join(WAYS)}"
    named = TEST.findall(kept)
    if not named and not re.match(r"- \w", kept):
        yield "names no test, and no reason after '-'"
    for test in named:
        wrong = wrong_test(root / "tests", *test)
        if wrong:
            yield wrong


def check_rows(root):
    ways = {}
    for number, section, promise, way, kept in rows(root / PAGE):
        where = f"{PAGE}:{number}"
        for wrong in check_row(root, way, kept):
            yield f"{where}: {wrong}"
        if section == EVERY_WAY:
            ways.setdefault(promise, (where, []))[1].append(way)
    if not ways:
        yield f"{PAGE}: no promise {EVERY_WAY.removeprefix('## ').lower()}"
    for where, found in ways.values():
        if found != WAYS:
            yield f"{where}: the rows are {', '.join(found)}; expected {', '.join(WAYS)}"


def anchors(page):
    """The headings of a page, as links name them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def check_links(root):
    for link, anchor in sorted(set(LINK.findall((root / PAGE).read_text()))):
        target = root / PAGE.parent / link
        if not target.exists():
            yield f"{PAGE}: there is no {link}"
        elif anchor and anchor not in anchors(target):
            yield f"{PAGE}: {link} has no heading for #{anchor}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[2])
    root = parser.parse_args().root
    breaches = [*check_rows(root), *check_links(root)]
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
