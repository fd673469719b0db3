# SPDX-License-Identifier: Apache-2.0
"""`weft profile`: where does a program spend its time, by library, function and operator?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..profile import ProfileError, perf, report
from ..profile.result import Result
from ..profile.run import TOOLS, Options, default_folder, profile, unwritable, write
from .common import NoProgram, fail, find_program, parser, print_json, split_program

PROG = "weft profile"
FAILED = 1

_EXAMPLES = (
    ("weft profile -- python train.py", "all tools that work here"),
    ("weft profile -- torchrun --nproc-per-node=2 train.py", "all ranks"),
    ("weft profile --lib openblas -- python train.py", "one library"),
    ("weft profile --tool sprof --lib libtorch_python.so -- python train.py", "calls of it"),
    ("weft profile --tool torch --out here -- python train.py", "operators only"),
)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e7:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 100000")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        PROG,
        "Run a program and say where its time goes: by shared library and function (Linux's perf), "
        "by calls into one library (glibc's LD_PROFILE), by operator (torch.profiler). Writes a "
        "page with a flame graph and a trace for Perfetto. Ends with the program's exit status.",
        _EXAMPLES,
    )
    made.usage = f"{PROG} [options] -- PROGRAM ARGS"
    made.add_argument("--lib", metavar="NAME", help="this library only: openblas, libm.so.6, path")
    made.add_argument(
        "--tool",
        choices=TOOLS,
        default="auto",
        help="auto: perf where it is allowed, and operators if the program imports torch",
    )
    made.add_argument(
        "--out", type=Path, metavar="DIR", help="where the files go (default: weft-profile-<date>)"
    )
    made.add_argument("--json", action="store_true", help="print the profile for programs")
    made.add_argument("--rows", type=_count, default=20, metavar="N", help="of a table (20)")
    made.add_argument("--rate", type=_count, metavar="HZ", help="samples in a second (perf)")
    made.add_argument(
        "--stacks", choices=perf.STACKS, default="dwarf", help="how perf finds callers (dwarf)"
    )
    made.add_argument(
        "--delay", type=_positive, default=0.0, metavar="S", help="start later (perf)"
    )
    made.add_argument("--seconds", type=_positive, metavar="S", help="record only so long")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    own, program = split_program(sys.argv[1:] if argv is None else argv)
    given = _parser().parse_args(own)
    options = Options(given.tool, given.lib, given.rate, given.stacks, given.delay, given.seconds)
    folder = given.out or default_folder()
    if (why := unwritable(folder)) is not None:
        return fail(PROG, why)
    try:
        command = find_program(program)
        result = profile(command, options, program)
    except (NoProgram, ProfileError) as error:
        return fail(PROG, str(error))
    if result.problem is None:
        try:
            _tell(given, result, folder)
        except ProfileError as error:
            result.problem = str(error)
    if result.problem is not None:
        ended = f" (the program ended with status {result.status})" if result.status else ""
        fail(PROG, result.problem + ended)
    return result.status or (FAILED if result.problem else 0)


def _tell(given: argparse.Namespace, result: Result, folder: Path) -> None:
    """Write the files, then print: the program has had its say on the terminal."""
    result.files = write(result, folder, report.data(result))
    if given.json:
        print_json(report.data(result))
        return
    print(report.text(result, given.rows))
    if result.status:
        print(f"\nthe program ended with status {result.status}")
    print(f"\nwrote {', '.join(map(str, result.files))}")


if __name__ == "__main__":
    sys.exit(main())
