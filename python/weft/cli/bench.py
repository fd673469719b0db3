# SPDX-License-Identifier: Apache-2.0
"""`weft bench`: measure weft beside its peers, in one run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..bench import contest, htmlpage, plots, report, results
from ..bench.benchmark import Benchmark
from ..bench.runner import Options, Outcome, machine
from ..bench.table import BENCHES
from ..bench.units import parse_size
from . import common


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(parse_size(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if min(sizes) <= 0:
        raise argparse.ArgumentTypeError("sizes must be greater than 0")
    return sizes


def _ranks(text: str) -> tuple[int, ...]:
    try:
        ranks = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers") from None
    if min(ranks) < 2:
        raise argparse.ArgumentTypeError("ranks must be at least 2")
    return ranks


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.split(",")))


def _ops(text: str) -> tuple[str, ...]:
    names, known = _names(text), _operations()
    if unknown := [name for name in names if name not in known]:
        what = f"unknown: {', '.join(unknown)}; known: {', '.join(known)}"
        raise argparse.ArgumentTypeError(what)
    return names


def _operations(benches: Iterable[str] = BENCHES) -> list[str]:
    """Those of these programs."""
    return list(dict.fromkeys(op for name in benches for op in BENCHES[name].operations))


def _fixed_systems(benches: Iterable[str] = BENCHES) -> list[str]:
    """Those of these programs, but for the ones that have to look for them first."""
    tables = [BENCHES[bench].systems for bench in benches]
    return list(dict.fromkeys(name for table in tables if not callable(table) for name in table))


def add_arguments(parser: argparse.ArgumentParser, benches: Sequence[str]) -> None:
    """The command line for a choice of programs."""
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
        help="measure nothing; show the rows of earlier runs, as one (with --html, --plots)",
    )
    parser.add_argument(
        "--compare", type=Path, metavar="OLD", help="say what changed since the rows in OLD"
    )
    _add_choices(parser, benches)


def _add_choices(parser: argparse.ArgumentParser, benches: Sequence[str]) -> None:
    """What to measure of a benchmark, and on what."""
    fixed = _fixed_systems(benches)
    looked_for = any(callable(BENCHES[bench].systems) for bench in benches)
    found = "torch, limit, names of `weft blas list`, paths of libraries"
    who = ", ".join(fixed) or found
    who += f"; of gemm and conv2d {found}" if fixed and looked_for else ""
    who = who.replace("%", "%%")  # argparse fills in what % stands before
    parser.add_argument(
        "--ops",
        type=_ops,
        metavar="NAME,...",
        help=f"operations: {', '.join(_operations(benches))} (default: all)",
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        metavar="S,...",
        help=("bytes of a block, as 4,64K,4M; " if fixed else "") + "of gemm, rows of a matrix",
    )
    parser.add_argument(
        "--systems",
        type=_names,
        metavar="NAME,...",
        help=f"who takes part: {who} (default: all)",
    )
    parser.add_argument(
        "--cores", type=common.positive, metavar="N", help="use the first N cores only"
    )
    parser.add_argument(
        "--rounds", type=common.positive, metavar="N", help="turns of each system (default: 10)"
    )
    parser.add_argument(
        "--block-ms", type=common.positive, metavar="MS", help="timed part of a turn (default: 20)"
    )


def _add_of_weft(parser: argparse.ArgumentParser) -> None:
    """What only those programs have that measure weft."""
    parser.add_argument(
        "--ranks", type=_ranks, metavar="N,...", help="ranks (default: 2, and those of marks)"
    )
    parser.add_argument(
        "--installed", action="store_true", help="peers as installed only, without tuned settings"
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
        families=frozenset(bench.names) & set(args.systems or bench.names),
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


def _chosen(args: argparse.Namespace) -> list[Benchmark]:
    """The programs to run; of several, those that have the operations that were asked for."""
    if args.benches is None:
        return list(BENCHES.values()) if args.bench == "all" else [BENCHES[args.bench]]
    some = [BENCHES[name] for name in args.benches]
    return [bench for bench in some if not args.ops or set(args.ops) & {*bench.operations}] or some


def _not_here(args: argparse.Namespace) -> str | None:
    """Operations and systems that the chosen programs do not have."""
    chosen = _chosen(args)
    what = args.bench or " and ".join(args.benches)
    if args.bench == "all" and args.ops:
        return "all takes no --ops"
    operations = [op for bench in chosen for op in bench.operations]
    if unknown := [op for op in args.ops or () if op not in operations]:
        return f"{what} has no {', '.join(unknown)}; it has {', '.join(operations)}"
    for name in args.systems or ():
        reasons = [None if name in bench.names else bench.find(name) for bench in chosen]
        if None not in reasons:
            names = dict.fromkeys(name for bench in chosen for name in bench.names)
            known = f"{what} has no {name}; it has {', '.join(names)}"
            return next(filter(None, reasons), known)
    return None


def _impossible(args: argparse.Namespace) -> str | None:
    """What is wrong with the words alone, whatever is installed here."""
    chosen = _chosen(args)
    refused = (bench.size_refused(size) for size in args.sizes or () for bench in chosen)
    if (why := next(filter(None, refused), None)) is not None:
        return f"argument --sizes: {why}"
    if any(callable(bench.systems) for bench in chosen):
        return None
    unknown = [name for name in args.systems or () if name not in _fixed_systems()]
    return f"argument --systems: unknown: {', '.join(unknown)}" if unknown else None


def _refusal(args: argparse.Namespace) -> str | None:
    """What is known to fail later is told before minutes are spent."""
    drawn = args.html is not None or args.plots is not None
    if drawn and (why := plots.unavailable()) is not None:
        return why
    for path in filter(None, (args.json or Path("bench.json"), args.html)):
        if args.rows is None and (why := common.unwritable(path)) is not None:
            return why
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
        return common.fail(args.prog, str(error))
    if (refusal := _refusal(args)) is not None:
        return common.fail(args.prog, refusal)
    if args.rows is not None:
        return _show_earlier(args)
    about = machine()
    outcomes: dict[str, Outcome] = {}
    for bench in _chosen(args):
        outcomes[bench.name] = bench.measure(_options(args, bench))
        if outcomes[bench.name].interrupted:
            break
    code = _tell(args, about, outcomes, old)
    return 130 if outcomes[bench.name].interrupted else code


def _draw(rows: Sequence[dict], folder: Path, of_all: bool) -> bool:
    """A picture for each operation and, of all benchmarks, the one that tells who is ahead."""
    found = contest.standing(rows) if of_all else []
    try:
        written = plots.write(rows, folder)
        if found:
            written.append(folder / "contest.svg")
            written[-1].write_bytes(contest.picture(found))
    except OSError as error:
        print(f"weft bench: {folder}: {error.strerror}", file=sys.stderr)
        return False
    print(f"wrote {', '.join(map(str, written)) or 'no plot, there are no rows to draw'}")
    return True


def _show_earlier(args: argparse.Namespace) -> int:
    try:
        rows = [row for path in args.rows for row in results.load(path)]
        values = [row for path in args.rows for row in results.load_rows(path)]
    except ValueError as error:
        return common.fail(args.prog, str(error))
    names = [name for name in BENCHES if any(row.get("bench") == name for row in rows)]
    about = f"rows of {', '.join(map(str, args.rows))}"
    written = True
    if args.html is not None:
        written &= _write(args.html, htmlpage.render(rows, about, names))
    _print_page(rows)
    if args.plots is not None:
        written &= _draw(values, args.plots, args.bench == "all")
    return 0 if written else 1


def _print_page(rows: list[dict]) -> None:
    """What there is to know of all benchmarks at a glance."""
    found = contest.standing(rows)
    marks = [row for row in rows if "mark" in row]
    parts = [contest.headline(found), contest.text(found) if found else ""]
    print("\n\n".join(filter(None, [*parts, report.marks_table(marks, reasons_too=False)])))
    for row in (row for row in rows if row.get("case") == "missing"):
        print(f"missing: {row['bench']}: {row['system']} ({row['reason']})")


def _absent(outcome: Outcome) -> dict[str, str]:
    return outcome.missing | outcome.failed


def _marks(args: argparse.Namespace, bench: Benchmark, outcome: Outcome) -> list[dict]:
    options = _options(args, bench)
    left_out = {name: "left out" for name in bench.names if not options.wants(name)}
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
    if bench.probed:
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
    if args.bench == "all":
        _print_page(rows)
        for name, outcome in outcomes.items():
            for note in outcome.notes:
                print(f"{name}: {note}")
        print(f"all figures: {args.json or 'bench.json'}")
    else:
        for name, outcome in outcomes.items():
            _print(args, name, outcome)
    if args.plots is not None:
        written &= _draw(values, args.plots, args.bench == "all")
    if old is not None:
        print(report.changes_text(results.changes(old, values)))
    broken = any(
        found.failed or BENCHES[name].subject in found.missing for name, found in outcomes.items()
    )
    return 0 if written and not broken else 1


EXAMPLES = (
    ("weft bench collectives --quick", "weft beside the MPIs and gloo, within 50 s"),
    ("weft bench torch --html page.html", "torch.distributed on weft and on gloo, with plots"),
    ("weft bench gemm --quick", "matrix products on every BLAS library found here"),
    ("weft bench gemm --systems torch,openblas-pthread --sizes 256,1024", "two of them"),
    ("weft bench conv2d --json new.json --compare old.json", "what changed since old.json"),
)


def parser() -> argparse.ArgumentParser:
    made = common.parser(
        "weft bench",
        "Measure what is installed here side by side, in one run: medians, spread, ratios, and "
        "the limit of the machine. Exit status 1 when something broke off, 2 for bad input.",
        EXAMPLES,
    )
    made.add_argument("bench", choices=(*BENCHES, "all"), help="what to measure")
    add_arguments(made, tuple(BENCHES))
    _add_of_weft(made)
    made.set_defaults(prog=made.prog, benches=None)
    return made


def run_some(
    made: argparse.ArgumentParser, benches: Sequence[str], argv: Sequence[str] | None
) -> int:
    """The same under another command's name: `made` is its parser, and `benches` its programs."""
    add_arguments(made, benches)
    fixed = {"ranks": None, "installed": False, "libweft": None}
    made.set_defaults(prog=made.prog, benches=tuple(benches), bench="", **fixed)
    return _parse_and_run(made, argv)


def main(argv: Sequence[str] | None = None) -> int:
    return _parse_and_run(parser(), argv)


def _parse_and_run(made: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    args = made.parse_args(argv)
    if (why := _impossible(args)) is not None:
        made.error(why)
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
