#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that the structs and numbers which Python mirrors are those of the C headers.

A C file with an assertion for each size, offset and enumerator is made from
python/weft/bench/gather/structs.py and from the words that stand for enumerators, and given to the
compiler, which names what differs.
"""

import argparse
import ast
import ctypes
import importlib.util
import pathlib
import subprocess
import sys

HEAD = """#include <stddef.h>
#include <weft/weft.h>
#include "region/cuda/abi.h"
#define SAME(a, b) _Static_assert((a) == (b), #a)
#define FIELD(s, f, at, n) SAME(offsetof(s, f), at); SAME(sizeof(((s *)0)->f), n)
"""

# Words of Python whose positions are numbers of C.
WORDS = {
    ("_rows.py", "BOUNDS"): "WEFT_BOUNDS_",
    ("_region.py", "PARTITIONS"): "WEFT_PARTITION_",
    ("_region.py", "REACHES"): "WEFT_REACH_",
    ("_create.py", "PAGES"): "WEFT_PAGES_",
}


def words_of(path, name):
    """The tuple or dictionary that a module assigns to `name`."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise LookupError(f"{path}: there is no {name}")


def load(path):
    spec = importlib.util.spec_from_file_location("structs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assertions(module):
    """The lines of the C file."""
    for mirror in vars(module).values():
        name = getattr(mirror, "c_name", None)
        if name is None:
            continue
        yield f"SAME(sizeof({name}), {ctypes.sizeof(mirror)});"
        for field, _ in mirror._fields_:
            there = getattr(mirror, field)
            yield f"FIELD({name}, {field}, {there.offset}, {there.size});"
    for name, number in module.ENUMERATORS.items():
        yield f"SAME({name}, {number});"


def word_assertions(package):
    for (file, name), prefix in WORDS.items():
        words = words_of(package / file, name)
        numbers = words.items() if isinstance(words, dict) else zip(words, range(99), strict=False)
        for word, number in numbers:
            yield f"SAME({prefix}{word.upper()}, {number});"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[2])
    parser.add_argument("--cc", default="cc")
    args = parser.parse_args()
    package = args.root / "python/weft"
    lines = list(assertions(load(package / "bench/gather/structs.py")))
    lines += word_assertions(package)
    includes = [f"-I{args.root / folder}" for folder in ("include", "src")]
    command = [args.cc, "-std=c11", "-fsyntax-only", *includes, "-x", "c", "-"]
    text = HEAD + "\n".join(lines) + "\n"
    print(f"{len(lines)} structs, fields and numbers")
    return subprocess.run(command, input=text, text=True, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
