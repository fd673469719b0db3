# SPDX-License-Identifier: Apache-2.0
"""`weft build`: OpenBLAS and PyTorch from source, into the active environment."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from ..build import Failed, Refused, environment, openblas, source
from ..build.build import RECIPES, Plan, build, mend, plan, uninstall
from ..build.recipe import Wanted, pairs
from ..build.run import Stopped, stoppable
from .common import fail, parser, print_json

PROG = "weft build"
EXAMPLES = [
    ("weft build openblas", "Debian's source package, into the active environment"),
    ("weft build openblas --source OpenBLAS", "a source tree"),
    ("weft build openblas --option TARGET=HASWELL --dry-run", "show the commands, do nothing"),
    ("weft build pytorch --source pytorch", "with the OpenBLAS of the environment"),
    ("weft build pytorch --configure-only", "as far as CMake, which says what it found"),
    ("weft build uninstall openblas", "remove what was installed and nothing else"),
]


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    args = _arguments(words)
    try:
        with stoppable():
            return _uninstall(args) if args.action == "uninstall" else _build(args)
    except Refused as error:
        return fail(PROG, str(error))
    except Failed as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{PROG}: {where}{error.strerror}; the same command goes on", file=sys.stderr)
        return 1
    except Stopped as stopped:
        print(f"{PROG}: stopped; the same command goes on from here", file=sys.stderr)
        return 128 + stopped.number


def _arguments(words: list[str]) -> argparse.Namespace:
    known = parser(
        PROG,
        "Build OpenBLAS or PyTorch from source and install it into the active environment (a "
        "virtual or a conda environment, or --prefix). What is interrupted goes on with the same "
        "command; nothing is installed by halves.",
        EXAMPLES,
    )
    known.add_argument(
        "action", choices=(*RECIPES, "uninstall"), metavar="{openblas,pytorch,uninstall}"
    )
    known.add_argument(
        "package", nargs="?", choices=(*RECIPES,), help="after uninstall: what to remove"
    )
    known.add_argument("--source", metavar="DIR", help="source tree (default: Debian's package)")
    known.add_argument("--release", metavar="NAME", help="Debian release of the source package")
    known.add_argument("--prefix", metavar="ENV", help="environment (default: the active one)")
    known.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="K=V",
        help=f"of OpenBLAS: {', '.join(list(openblas.KNOWN)[:9])}, ...; of PyTorch: USE_*, BUILD_*",
    )
    known.add_argument("--jobs", type=int, default=_cores(), metavar="N", help="(default: cores)")
    known.add_argument("--configure-only", action="store_true", help="PyTorch: stop after CMake")
    known.add_argument("--force", action="store_true", help="also where files are in the way")
    known.add_argument("--dry-run", action="store_true", help="show the commands, do nothing")
    known.add_argument("--json", action="store_true", help="for programs")
    args = known.parse_args(words)
    if (args.action == "uninstall") != (args.package is not None):
        known.error("weft build PACKAGE, or weft build uninstall PACKAGE")
    if args.jobs < 1:
        known.error("--jobs must be at least 1")
    if args.configure_only and args.action != "pytorch":
        known.error("--configure-only is for pytorch")
    return args


def _build(args: argparse.Namespace) -> int:
    recipe = RECIPES[args.action]
    prefix = environment.find(args.prefix)
    if args.source is not None and args.release is not None:
        raise Refused("--source and --release name two sources")
    found = source.Source(None, args.release or recipe.release)
    if args.source is not None:
        found = source.tree(args.source, recipe.name, recipe.marks)
    options = recipe.options(pairs(args.option))
    wanted = Wanted(found, prefix, options, args.jobs, args.configure_only)
    if args.dry_run:
        return _show(plan(recipe, wanted), args.json)
    if (mended := mend(prefix, recipe.name)) is not None:
        _tell(mended)
    planned = plan(recipe, wanted)
    for note in planned.notes:
        _tell(note)
    _tell(f"log: {planned.work.log}")
    _report(build(planned, args.force, quiet=args.json), args.json)
    return 0


def _show(planned: Plan, as_json: bool) -> int:
    if as_json:
        print_json({"work": str(planned.work.folder), "commands": planned.commands()})
    else:
        print("\n".join([*(f"# {note}" for note in planned.notes), *planned.commands()]))
    return 0


def _report(done: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    name = f"{done['package']} {done['version']}"
    if "chosen" in done:
        print(f"CMake chose {done['chosen'].get('OpenBLAS_LIB', done['chosen'].get('BLAS'))}")
    if "files" in done:
        print(f"{name}: {done['files']} files in {done['prefix']} ({done['seconds']} s)")
    else:
        print(f"{name} is configured in {done['work']}/source/build ({done['seconds']} s)")
    print(f"its build is kept in {done['work']}; weft build uninstall removes that, too")


def _uninstall(args: argparse.Namespace) -> int:
    prefix = environment.find(args.prefix)
    if args.dry_run:
        raise Refused("uninstall has no --dry-run; ENV/.weft-PACKAGE.json lists what goes")
    done = uninstall(args.package, prefix, args.force)
    if args.json:
        print_json(done)
    else:
        print(f"{args.package}: {done['files']} files removed from {prefix}")
    for path in done["kept"]:
        _tell(f"{prefix / path} was changed and is kept; --force removes such files, too")
    for path in done["aside"]:
        _tell(f"{prefix / path} was there before and its place is taken: move it back by hand")
    return 1 if done["kept"] or done["aside"] else 0


def _tell(text: str) -> None:
    print(f"{PROG}: {text}", file=sys.stderr)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    sys.exit(main())
