# SPDX-License-Identifier: Apache-2.0
"""`weft bench`: measure weft beside its peers, in one run."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ..bench import htmlpage, marks, report, results
from ..bench.collectives import Options, Outcome, machine, measure
from ..bench.systems import FAMILIES
from ..bench.units import parse_size

BENCHES = ("collectives", "all")


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(parse_size(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    for size in sizes:
        if size <= 0 or size % 4:
            raise argparse.ArgumentTypeError(f"{size} bytes are not a whole number of floats")
    return sizes


def _ranks(text: str) -> tuple[int, ...]:
    try:
        ranks = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers") from None
    if min(ranks) < 2:
        raise argparse.ArgumentTypeError("a collective needs 2 ranks or more")
    return ranks


def _families(text: str) -> frozenset[str]:
    names = frozenset(text.split(","))
    unknown = names - set(FAMILIES)
    if unknown:
        known = ", ".join(FAMILIES)
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; known: {known}")
    return names


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `weft bench`."""
    parser.add_argument("bench", choices=BENCHES, help="what to measure")
    parser.add_argument("--quick", action="store_true", help="end within 50 s, leave out the rest")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where the rows go (default: bench.json)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page with plots")
    parser.add_argument(
        "--compare", type=Path, metavar="OLD", help="say what changed since the rows in OLD"
    )
    parser.add_argument(
        "--ranks", type=_ranks, metavar="N,...", help="ranks (default: 2, and 4 and 8 on 2 cores)"
    )
    parser.add_argument(
        "--sizes", type=_sizes, metavar="S,...", help="bytes of an allreduce, as 4,64K,4M"
    )
    parser.add_argument(
        "--systems",
        type=_families,
        default=frozenset(FAMILIES),
        metavar="NAME,...",
        help=f"who takes part: {', '.join(FAMILIES)} (default: all)",
    )
    parser.add_argument("--cores", type=_positive, metavar="N", help="use the first N cores only")
    parser.add_argument(
        "--rounds", type=_positive, metavar="N", help="turns of each system (default: 10)"
    )
    parser.add_argument(
        "--block-ms", type=_positive, metavar="MS", help="timed part of a turn (default: 20)"
    )
    parser.add_argument(
        "--libweft",
        nargs=2,
        type=Path,
        metavar=("LIB", "INCLUDE"),
        help="measure this libweft.so.0, with the headers in INCLUDE",
    )


def _options(args: argparse.Namespace) -> Options:
    library = None
    if args.libweft is not None:
        library = (args.libweft[0].resolve(), args.libweft[1].resolve())
    return Options(
        quick=args.quick,
        ranks=args.ranks,
        sizes=args.sizes,
        families=args.systems,
        cores=args.cores,
        rounds=args.rounds,
        block_ms=args.block_ms,
        library=library,
    )


def _write(path: Path, text: str) -> bool:
    try:
        path.write_text(text)
    except OSError as error:
        print(f"weft bench: {path}: {error.strerror}", file=sys.stderr)
        return False
    return True


def _refusal(args: argparse.Namespace) -> str | None:
    """What is known to fail later is told before minutes are spent."""
    if args.html is not None and (why := htmlpage.available()) is not None:
        return why
    for path in filter(None, (args.json, args.html)):
        if not path.absolute().parent.is_dir():
            return f"{path}: there is no such folder"
    if args.libweft is not None and not args.libweft[0].is_file():
        return f"{args.libweft[0]}: there is no such library"
    return None


def run(args: argparse.Namespace) -> int:
    """Measure, print, write. 1 if weft or a chosen system broke off, 2 for bad input."""
    try:
        old = None if args.compare is None else results.load_rows(args.compare)
    except ValueError as error:
        print(f"weft bench: {error}", file=sys.stderr)
        return 2
    if (refusal := _refusal(args)) is not None:
        print(f"weft bench: {refusal}", file=sys.stderr)
        return 2
    about = machine()
    try:
        outcome = measure(_options(args))
    except KeyboardInterrupt:
        print("weft bench: interrupted", file=sys.stderr)
        return 130
    return _tell(args, about, outcome, old)


def _tell(args: argparse.Namespace, about: str, outcome: Outcome, old: list[dict] | None) -> int:
    values = results.rows_of(outcome.blocks)
    left_out = {family: "left out" for family in FAMILIES if family not in args.systems}
    judged = marks.mark_rows(outcome.blocks, outcome.missing | left_out)
    absent = outcome.missing | outcome.failed
    rows = [
        *values,
        *(results.missing_row(name, why) for name, why in absent.items()),
        *judged,
    ]
    # Before anything is printed, so that a reader who stops early loses no rows.
    written = _write(args.json or Path("bench.json"), json.dumps(rows, indent=1) + "\n")
    if args.html is not None:
        written &= _write(args.html, htmlpage.render(rows, about))
    print(about, report.figures(outcome.blocks), report.marks_table(judged), sep="\n\n")
    print(f"\n{outcome.moved} blocks dropped because the cores moved meanwhile")
    for name, why in absent.items():
        print(f"missing: {name} ({why})")
    for note in outcome.notes:
        print(note)
    if old is not None:
        print(report.changes_text(results.changes(old, values)))
    broken = outcome.failed or "weft" in outcome.missing
    return 0 if written and not broken else 1


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="weft bench", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
