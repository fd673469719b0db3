#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check who includes and links whom, and who starts threads.

- A folder of src includes only itself, the folders below it and <weft/...>.
- No object file refers to a symbol that only a higher folder defines.
- Nothing in src or include has heard of Python or of torch.
- Threads are started by src/base/thread.c only, which blocks signals in them.
- Each public header compiles alone, as C11 and as C++17.

Prints one line for each breach and exits with 1 if there is any.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

# The folders of src, from low to high; src/weft.c lies above all and puts them together.
LAYERS = ["base", "boot", "mem", "transport", "comm", "coll", "region", "store", "agg"]
BELOW = {name: set(LAYERS[: i + 1]) for i, name in enumerate(LAYERS)}
BELOW["agg"] -= {"region", "store"}  # it lies beside them, on src/coll

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
FOREIGN = re.compile(r"(^|/)(Python\.h|pybind11|torch|ATen|c10|numpy)(/|$)")


def includes(path):
    """Yield (line number, bracket, name) for each #include of a file."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def breach_of(folder, bracket, name):
    """Say what is wrong with one include in src/<folder>, or return None."""
    if FOREIGN.search(name):
        return f"{name}: the C core knows neither Python nor torch"
    if bracket == "<":
        return None
    target = name.split("/")[0]
    if "/" not in name or target == "..":
        return f'"{name}": write the path from src, as in "{folder}/..."'
    if target not in BELOW:
        return f'"{name}": {target} is no folder of src'
    if target not in BELOW[folder]:
        return f'"{name}": {folder} lies below {target}'
    return None


def check_folders(root):
    found = {path.name for path in (root / "src").iterdir() if path.is_dir()}
    for name in sorted(found ^ set(LAYERS)):
        what = "has no place among LAYERS" if name in found else "does not exist"
        yield f"src/{name} {what}"


def check_src(root):
    src = root / "src"
    for path in sorted([*src.rglob("*.c"), *src.rglob("*.h")]):
        folder = path.relative_to(src).parts[0]
        if path.parent == src:
            continue  # weft.[ch] lie above all folders, and put them together
        if folder not in BELOW:
            continue  # check_folders tells
        for number, bracket, name in includes(path):
            breach = breach_of(folder, bracket, name)
            if breach:
                yield f"{path.relative_to(root)}:{number}: {breach}"


def symbols(nm, objects):
    """What each object file defines and what it refers to, of the names that others see."""
    command = [nm, "--print-file-name", "--extern-only", "--format=posix", *objects]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {path: (set(), set()) for path in objects}
    for line in text.splitlines():
        path, name, kind, *_ = line.replace(": ", " ", 1).split(" ")
        found[path][kind in "Uwv"].add(name)
    return found


def layer_of(path):
    """The layer of an object file, as CMake lays them out; weft.c lies above all."""
    folder = str(path).partition("weft_objects.dir/")[2].split("/")[0]
    return LAYERS.index(folder) if folder in LAYERS else len(LAYERS)


def check_links(nm, objects):
    """Of each symbol, the lowest layer that defines it must not lie above who refers to it."""
    found = symbols(nm, objects)
    lowest = {}
    for path, (defined, _) in found.items():
        for name in defined:
            lowest[name] = min(lowest.get(name, len(LAYERS)), layer_of(path))
    for path, (_, wanted) in found.items():
        for name in sorted(wanted & lowest.keys()):
            if lowest[name] > layer_of(path):
                owner = [*LAYERS, "src/weft.c"][lowest[name]]
                where = str(path).partition("weft_objects.dir/")[2]
                yield f"{where}: {name}: {where.split('/')[0]} lies below {owner}"


def check_threads(root):
    src = root / "src"
    for path in sorted(src.rglob("*.c")):
        if path == src / "base" / "thread.c":
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if "pthread_create(" in line or "thrd_create(" in line:
                yield f"{path.relative_to(root)}:{number}: threads are started by wf_thread_start"


def check_public(root):
    for path in sorted((root / "include").rglob("*.h")):
        for number, bracket, name in includes(path):
            where = f"{path.relative_to(root)}:{number}"
            if bracket == '"' or FOREIGN.search(name):
                yield f"{where}: {name}: a public header includes <weft/...> and the C library only"


def check_alone(root, compiler, standard, suffix):
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted((root / "include" / "weft").glob("*.h")):
            source = pathlib.Path(scratch, "alone" + suffix)
            source.write_text(f"#include <weft/{path.name}>\n")
            command = [compiler, *flags, f"-I{root / 'include'}", str(source)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                yield f"{path.name} does not compile alone as {standard}:\n{result.stderr.strip()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[2])
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--objects", nargs="*", default=[], help="the object files of src")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    args = parser.parse_args()

    breaches = [*check_folders(args.root), *check_src(args.root)]
    breaches += [*check_threads(args.root), *check_public(args.root)]
    if args.objects:
        breaches += check_links(args.nm, args.objects)
    breaches += check_alone(args.root, args.cc, "c11", ".c")
    if args.cxx.endswith("NOTFOUND"):
        print("no C++ compiler here: the headers are checked as C11 only")
    else:
        breaches += check_alone(args.root, args.cxx, "c++17", ".cpp")
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
