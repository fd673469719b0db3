# SPDX-License-Identifier: Apache-2.0
"""The command `weft-switch`: the program of that name which lies in the package."""

import os
import pathlib
import sys

PROGRAM = pathlib.Path(__file__).parent / "bin" / "weft-switch"


def main() -> None:
    """Become the program, so that signals and exit codes are its own."""
    if not PROGRAM.exists():
        sys.exit(f"weft-switch: {PROGRAM} is not there; install the package again")
    os.execv(PROGRAM, ["weft-switch", *sys.argv[1:]])
