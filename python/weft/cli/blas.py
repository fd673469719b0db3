# SPDX-License-Identifier: Apache-2.0
"""`weft blas`: the BLAS libraries here, and PyTorch's linear algebra served by one of them."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from ..blas import NotFound, Refused, libraries, report, run
from .common import (
    NoProgram,
    fail,
    find_program,
    parser,
    positive,
    print_json,
    run_program,
    table,
    unwritable,
)
from .common import split_program as split

PROG = "weft blas"
DESCRIPTION = """List the BLAS libraries of this machine, run a program with one of them in place of
PyTorch's own, or compare their speed. PyTorch is not rebuilt and nothing is installed."""
EXAMPLES = [
    ("weft blas list", "which libraries there are"),
    ("weft blas run --with openblas -- python train.py", "train.py with OpenBLAS"),
    ("weft blas run --with blis -- torchrun --nproc-per-node=2 train.py", "all of its ranks"),
    ("weft blas compare", "gemm and conv2d with each of them"),
]
RUN = """Run a program so that a BLAS library serves PyTorch's dense linear algebra on the CPU in it
and its child processes. Before the program starts a trial tells whether that works. After it, a
paragraph on standard error says which symbols of PyTorch were bound to the library, which were
not, and what was called. The exit status is the program's own; 128 + n if signal n ended it."""
RUN_EXAMPLES = [
    ("weft blas run --with openblas-serial -- python train.py", "a library from weft blas list"),
    ("weft blas run --with ./lib/libopenblas.so -- python train.py", "a library from anywhere"),
    ("weft blas run --with openblas --lapack -- python svd.py", "LAPACK from it, too"),
    ("weft blas run --with openblas --no-onednn -- python conv.py", "convolutions on its gemm"),
]
COMPARE = """Measure matrix products and convolutions over sizes with PyTorch's own BLAS and with
each library of weft blas list, in turns: weft bench gemm and weft bench conv2d in one. With gemm or
conv2d as its first word it is only one of them."""
COMPARE_EXAMPLES = [
    ("weft blas compare --quick", "the best of each kind, within two minutes"),
    ("weft blas compare --systems torch,openblas --html page.html", "one of them, with plots"),
    ("weft blas compare gemm --sizes 64,1024", "matrix products only"),
    ("weft blas compare --json new.json --compare old.json", "what changed since old.json"),
]


def _list(argv: list[str]) -> int:
    words = parser(f"{PROG} list", "List the BLAS libraries of this machine.", EXAMPLES[:1])
    words.add_argument("--json", action="store_true", help="for programs")
    given = words.parse_args(argv)
    known = sorted(libraries.libraries(), key=lambda library: (library.ilp64, library.name))
    if given.json:
        print_json([vars(library) for library in known])
        return 0
    if not known:
        print(
            "no BLAS library was found; Debian has libopenblas0-pthread, libblis4-pthread, libblas3"
        )
        return 1
    rows = []
    for library in known:
        has = "BLAS, LAPACK" if library.lapack else "BLAS"
        has += ", ILP64: not for PyTorch" if library.ilp64 else ""
        name = "(its path)" if library.name == library.file else library.name
        rows.append([name, library.version or "?", library.threads or "?", has, library.file])
    print(table(["name", "version", "threads", "has", "file"], rows, left=5))
    return 0


def _run_parser() -> argparse.ArgumentParser:
    words = parser(f"{PROG} run", RUN, RUN_EXAMPLES)
    words.usage = "weft blas run --with NAME [options] -- PROGRAM [ARGUMENT ...]"
    words.add_argument(
        "--with",
        dest="name",
        required=True,
        metavar="NAME",
        help="a name of weft blas list, or a path",
    )
    words.add_argument(
        "--method",
        choices=("auto", "preload", "kernels"),
        default="auto",
        help="put the library before PyTorch's symbols, or register operators that call it "
        "(default: the first that works)",
    )
    words.add_argument("--threads", type=positive, metavar="N", help="of PyTorch and the library")
    words.add_argument("--lapack", action="store_true", help="take LAPACK from the library as well")
    words.add_argument(
        "--no-onednn",
        action="store_true",
        help="PyTorch leaves oneDNN alone, so that convolutions use gemm",
    )
    words.add_argument("--json", type=Path, metavar="FILE", help="write all that was found to FILE")
    words.add_argument("--quiet", action="store_true", help="no paragraph after the program")
    return words


def _run(argv: list[str]) -> int:
    ours, program = split(argv)
    prog = f"{PROG} run"
    given = _run_parser().parse_args(ours)
    if given.json is not None and (why := unwritable(given.json)) is not None:
        return fail(prog, why)
    try:
        command = find_program(program)
        library = libraries.find(given.name)
        options = run.Options(given.method, given.threads, given.lapack, not given.no_onednn)
        done = run.run(library, command, run_program, options)
    except (NoProgram, NotFound, Refused) as error:
        return fail(prog, str(error))
    if not given.quiet:
        told = report.summary(library, done.status, done.processes, options.onednn)
        text = f"{PROG}: {told}"
        lines = textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False)
        print("\n".join(lines), file=sys.stderr)
    if given.json is not None:
        content = report.as_json(library, done.method, command, done.status, done.processes)
        try:
            given.json.write_text(json.dumps(content, indent=2) + "\n")
        except OSError as error:
            print(f"{prog}: {given.json}: {error.strerror}", file=sys.stderr)
            return done.status or 1
    return done.status


def _compare(argv: list[str]) -> int:
    from . import bench  # it knows all benchmarks, which the other actions do without

    words = parser(f"{PROG} compare", COMPARE, COMPARE_EXAMPLES)
    if argv[:1] in (["gemm"], ["conv2d"]):
        return bench.run_some(words, argv[:1], argv[1:])
    return bench.run_some(words, ("gemm", "conv2d"), argv)


ACTIONS = {
    "list": (_list, "which BLAS libraries there are"),
    "run": (_run, "run a program with one of them"),
    "compare": (_compare, "measure gemm and conv2d with each"),
}


def main(argv: Sequence[str] | None = None) -> int:
    words = parser(PROG, DESCRIPTION, EXAMPLES)
    what = ", ".join(f"{name}: {text}" for name, (_, text) in ACTIONS.items())
    words.add_argument("action", choices=list(ACTIONS), help=what)
    words.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its own")
    given = words.parse_args(argv)
    try:
        return ACTIONS[given.action][0](given.arguments)
    except KeyboardInterrupt:  # before a program was started
        return 130


if __name__ == "__main__":
    sys.exit(main())
