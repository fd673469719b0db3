#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare what libweft exports with the list in symbols.txt.

An exported name is a promise, so each is added to the list and taken from it
by hand. Names with wf_ are for our own libraries that are loaded on demand. With
--update the list is written instead.
"""

import argparse
import pathlib
import subprocess
import sys


def exported(nm, library):
    output = subprocess.run(
        [nm, "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[-1] for line in output.splitlines() if line.strip()}


def listed(path):
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return {line for line in lines if line}


def main():
    here = pathlib.Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--list", type=pathlib.Path, default=here / "symbols.txt")
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--update", action="store_true", help="write the list")
    args = parser.parse_args()

    names = exported(args.nm, args.library)
    if args.update:
        header = "# SPDX-License-Identifier: Apache-2.0\n# What libweft exports.\n"
        args.list.write_text(header + "".join(f"{name}\n" for name in sorted(names)))
        return 0
    wanted = listed(args.list)
    complaints = [
        f"{n}: exported, but starts with neither weft_ nor wf_"
        for n in sorted(names)
        if not n.startswith(("weft_", "wf_"))
    ]
    complaints += [f"{n}: exported, but not in {args.list.name}" for n in sorted(names - wanted)]
    complaints += [f"{n}: in {args.list.name}, but not exported" for n in sorted(wanted - names)]
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
