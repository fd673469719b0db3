# SPDX-License-Identifier: Apache-2.0
"""`weft bench`: measure weft beside its peers, in one run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from ..bench import htmlpage, plots, report, results
from ..bench.benchmark import Benchmark
from ..bench.runner import Options, Outcome, machine
from ..bench.table import BENCHES
from ..bench.units import parse_size


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
        raise argparse.ArgumentTypeError("ranks must be at least 2")
    return ranks


def _names(text: str, known: Iterable[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in known]
    if unknown:
        what = f"unknown: {', '.join(unknown)}; known: {', '.join(known)}"
        raise argparse.ArgumentTypeError(what)
    return names


def _known(name: str) -> list[str]:
    """The operations or systems of all programs."""
    return list(dict.fromkeys(word for bench in BENCHES.values() for word in getattr(bench, name)))


def _families(text: str) -> frozenset[str]:
    return frozenset(_names(text, _known("systems")))


def _ops(text: str) -> tuple[str, ...]:
    return _names(text, _known("operations"))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `weft bench`."""
    parser.add_argument("bench", choices=(*BENCHES, "all"), help="what to measure")
    parser.add_argument("--quick", action="store_true", help="end within 50 s, leave out the rest")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where the rows go (default: bench.json)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page with plots")
    parser.add_argument(
        "--plots", type=Path, metavar="DIR", help="write an SVG for each operation into DIR"
    )
    parser.add_argument(
        "--from",
        dest="rows",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="measure nothing; draw the rows of earlier runs (with --plots)",
    )
    parser.add_argument(
        "--compare", type=Path, metavar="OLD", help="say what changed since the rows in OLD"
    )
    _add_choices(parser)


def _add_choices(parser: argparse.ArgumentParser) -> None:
    """What to measure of a benchmark, and on what."""
    parser.add_argument(
        "--ranks", type=_ranks, metavar="N,...", help="ranks (default: 2, and those of marks)"
    )
    parser.add_argument(
        "--ops",
        type=_ops,
        metavar="NAME,...",
        help=f"operations: {', '.join(_known('operations'))} (default: all)",
    )
    parser.add_argument(
        "--sizes", type=_sizes, metavar="S,...", help="bytes of a block, as 4,64K,4M"
    )
    parser.add_argument(
        "--systems",
        type=_families,
        metavar="NAME,...",
        help=f"who takes part: {', '.join(_known('systems'))} (default: all)",
    )
    parser.add_argument(
        "--installed", action="store_true", help="peers as installed only, without tuned settings"
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


def _options(args: argparse.Namespace, bench: Benchmark) -> Options:
    """What was asked for, as far as this program has it."""
    library = None
    if args.libweft is not None:
        library = (args.libweft[0].resolve(), args.libweft[1].resolve())
    return Options(
        quick=args.quick,
        ranks=args.ranks,
        ops=args.ops and tuple(op for op in args.ops if op in bench.operations),
        sizes=args.sizes,
        families=frozenset(bench.systems) & (args.systems or set(bench.systems)),
        cores=args.cores,
        rounds=args.rounds,
        block_ms=args.block_ms,
        library=library,
        installed=args.installed,
    )


def _write(path: Path, text: str) -> bool:
    try:
        path.write_text(text)
    except OSError as error:
        print(f"weft bench: {path}: {error.strerror}", file=sys.stderr)
        return False
    return True


def _not_here(args: argparse.Namespace) -> str | None:
    """Operations and systems that the chosen program does not have."""
    if args.bench == "all":
        return "all takes no --ops" if args.ops else None
    bench = BENCHES[args.bench]
    asked = ((args.ops or (), bench.operations), (args.systems or (), bench.systems))
    for names, known in asked:
        unknown = sorted(name for name in names if name not in known)
        if unknown:
            return f"{args.bench} has no {', '.join(unknown)}; it has {', '.join(known)}"
    return None


def _refusal(args: argparse.Namespace) -> str | None:
    """What is known to fail later is told before minutes are spent."""
    drawn = args.html is not None or args.plots is not None
    if drawn and (why := plots.unavailable()) is not None:
        return why
    if args.rows is not None and args.plots is None:
        return "--from needs --plots"
    for path in filter(None, (args.json, args.html)):
        if not path.absolute().parent.is_dir():
            return f"{path}: there is no such folder"
    if args.plots is not None:
        try:
            args.plots.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return f"{args.plots}: {error.strerror}"
    if (why := _not_here(args)) is not None:
        return why
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
    if args.rows is not None:
        return _draw_earlier(args)
    about = machine()
    outcomes: dict[str, Outcome] = {}
    for name in BENCHES if args.bench == "all" else [args.bench]:
        outcomes[name] = BENCHES[name].measure(_options(args, BENCHES[name]))
        if outcomes[name].interrupted:
            break
    code = _tell(args, about, outcomes, old)
    return 130 if outcomes[name].interrupted else code


def _draw(rows: Iterable[dict], folder: Path) -> bool:
    try:
        written = plots.write(rows, folder)
    except OSError as error:
        print(f"weft bench: {folder}: {error.strerror}", file=sys.stderr)
        return False
    print(f"wrote {', '.join(map(str, written)) or 'no plot, there are no rows to draw'}")
    return True


def _draw_earlier(args: argparse.Namespace) -> int:
    try:
        rows = [row for path in args.rows for row in results.load_rows(path)]
    except ValueError as error:
        print(f"weft bench: {error}", file=sys.stderr)
        return 2
    return 0 if _draw(rows, args.plots) else 1


def _absent(outcome: Outcome) -> dict[str, str]:
    return outcome.missing | outcome.failed


def _marks(args: argparse.Namespace, bench: Benchmark, outcome: Outcome) -> list[dict]:
    options = _options(args, bench)
    left_out = {name: "left out" for name in bench.systems if not options.wants(name)}
    judged = bench.marks(outcome.blocks, outcome.missing | left_out)
    return [*judged, *(row for row in outcome.ready if "mark" in row)]


def _all_rows(args: argparse.Namespace, name: str, outcome: Outcome) -> list[dict]:
    missing = [results.missing_row(who, why, name) for who, why in _absent(outcome).items()]
    bench = BENCHES[name]
    ready = [row for row in outcome.ready if "mark" not in row]
    return [*bench.rows(outcome.blocks), *ready, *missing, *_marks(args, bench, outcome)]


def _print(args: argparse.Namespace, name: str, outcome: Outcome) -> None:
    bench = BENCHES[name]
    judged = report.marks_table(_marks(args, bench, outcome))
    print("\n\n".join(filter(None, (bench.figures(outcome.blocks), judged))))
    why = "the cores moved meanwhile, or a cycle took no longer than its local part"
    print(f"\n{outcome.dropped} blocks dropped: {why}")
    for who, why in _absent(outcome).items():
        print(f"missing: {who} ({why})")
    for note in outcome.notes:
        print(note)


def _tell(
    args: argparse.Namespace, about: str, outcomes: dict[str, Outcome], old: list[dict] | None
) -> int:
    rows = [row for name, found in outcomes.items() for row in _all_rows(args, name, found)]
    values = [row for row in rows if row.get("value") is not None]
    # Before anything is printed, so that a reader who stops early loses no rows.
    written = _write(args.json or Path("bench.json"), json.dumps(rows, indent=1) + "\n")
    if args.html is not None:
        written &= _write(args.html, htmlpage.render(rows, about, tuple(outcomes)))
    print(f"{about}\n")
    for name, outcome in outcomes.items():
        _print(args, name, outcome)
    if args.plots is not None:
        written &= _draw(values, args.plots)
    if old is not None:
        print(report.changes_text(results.changes(old, values)))
    broken = any(found.failed or "weft" in found.missing for found in outcomes.values())
    return 0 if written and not broken else 1


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="weft bench", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
