# SPDX-License-Identifier: Apache-2.0
"""The tables for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from .marks import opponents
from .operations import OPERATIONS
from .results import PLACEMENTS, Block, Case, case_name, paired_ratios
from .systems import FAMILIES, SYSTEMS
from .units import format_size, format_time


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as they need; the first to the left, the others to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = []
    for line in lines:
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        cells[0] = line[0].ljust(widths[0])
        text.append("  ".join(cells).rstrip())
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(text)


def cell(times: list[float]) -> str:
    """The median and how far the blocks lie around it, in per cent."""
    if not times:
        return "-"
    middle = statistics.median(times)
    low, high = ((end / middle - 1) * 100 for end in (min(times), max(times)))
    return f"{format_time(middle)} {low:+.0f}/{high:+.0f}%"


def by_ranks(blocks: list[Block]) -> Iterator[tuple[str, list[Block]]]:
    """The blocks of each number of ranks, under a title that names the placements seen."""
    for ranks, cores in dict.fromkeys((b.case.ranks, b.case.cores) for b in blocks):
        here = [b for b in blocks if (b.case.ranks, b.case.cores) == (ranks, cores)]
        turns = len({block.turn for block in here})
        seen = ", ".join(sorted({b.placement for b in here} - {"any"}))
        yield f"{ranks} ranks on {cores} cores{': ' + seen if seen else ''} ({turns} rounds)", here


def _columns(blocks: list[Block]) -> list[tuple[str, list[str]]]:
    """A column for each family as installed, and one for its best settings, if they ran."""
    ran = {block.system for block in blocks}
    columns = []
    for family in FAMILIES:
        for kind in ("installed", "best", "yield"):
            names = [s.name for s in SYSTEMS if s.family == family and s.kind == kind]
            names = [name for name in names if name in ran]
            if names:
                title = family if kind == "installed" else f"{family} {kind}"
                columns.append(("weft thp" if title == "weft best" else title, names))
    return columns


def _best(blocks: list[Block], names: list[str]) -> list[float]:
    """The times of the setting with the smallest median."""
    times = [[block.us for block in blocks if block.system == name] for name in names]
    return min(filter(None, times), key=statistics.median, default=[])


def ratio_to(blocks: list[Block], case: Case, placement: str, against: str) -> str:
    """weft over the best of its opponents, each with its own pairs."""
    ratios = []
    for systems in opponents(against).values():
        for system in systems:
            ours = "weft-thp" if system.pages == "thp" else "weft"
            pairs = paired_ratios(blocks, case, ours, system.name, placement)
            if pairs:
                ratios.append(statistics.median(pairs))
    return f"{max(ratios):.3f}" if ratios else "-"


def _by_operation(case: Case) -> tuple[int, int]:
    return list(OPERATIONS).index(case.op), case.bytes


def size_legend(blocks: list[Block]) -> str:
    """What the sizes of the operations in a run are sizes of."""
    ran = {block.case.op for block in blocks}
    meanings: dict[str, list[str]] = {}
    for name, operation in OPERATIONS.items():
        if name in ran and name != "barrier":
            meanings.setdefault(operation.size_is, []).append(name)
    lines = [f"  {', '.join(names)}: {what}" for what, names in meanings.items()]
    return "\n".join(["a size is that of", *lines]) if lines else ""


def _group(blocks: list[Block], placement: str) -> str:
    columns = _columns(blocks)
    versus = [("/MPI", "installed"), ("/best", "best"), ("/limit", "limit")]
    if any(block.system == "openmpi-yield" for block in blocks):
        versus = [("/yield", "yield"), ("/mpich", "mpich")]
    rows = []
    for case in sorted({block.case for block in blocks}, key=_by_operation):
        here = [block for block in blocks if block.case == case]
        rows.append(
            [case_name(case)]
            + [cell(_best(here, names)) for _, names in columns]
            + [ratio_to(here, case, placement, against) for _, against in versus]
        )
    return table(["", *(title for title, _ in columns), *(title for title, _ in versus)], rows)


def figures(blocks: list[Block]) -> str:
    """One table for each number of ranks and placement: median, spread, and weft's ratios."""
    parts = []
    for ranks, cores in dict.fromkeys((b.case.ranks, b.case.cores) for b in blocks):
        for placement in PLACEMENTS:
            here = [
                block
                for block in blocks
                if (block.case.ranks, block.case.cores) == (ranks, cores)
                and block.placement == placement
            ]
            if here:
                turns = len({block.turn for block in here})
                where = "" if placement == "any" else f", {placement}"
                title = f"{ranks} ranks on {cores} cores{where} ({turns} rounds)"
                parts.append(f"{title}\n{_group(here, placement)}")
    return "\n\n".join(parts)


def marks_table(rows: list[dict]) -> str:
    """The marks, each with the worst of its cases, and why if it could not be judged."""
    words = {True: "met", False: "not met", None: "not judged"}
    lines = []
    for row in rows:
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
        goal = f"{row['direction']} {row['goal']:.3g}"
        where = f"{row['case']}, {row['ranks']} ranks, / {row['against']}"
        lines.append((row["mark"], row["placement"], ratio, goal, words[row["met"]], where))
    text = table(("mark", "placement", "ratio", "goal", "", "worst case"), lines)
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["reason"]:
            reasons.setdefault(row["reason"], []).append(f"{row['mark']} {row['placement']}")
    notes = [f"  {', '.join(who)}: {reason}" for reason, who in reasons.items()]
    return "\n".join([text, *(["not judged in full:", *notes] if notes else [])])


def changes_text(changes: list[tuple[dict, float]]) -> str:
    """What got slower or faster than before by more than both spreads."""
    if not changes:
        return "compared: nothing changed beyond the spread"
    lines = []
    for row, ratio in changes:
        word = "slower" if ratio > 1 else "faster"
        size = format_size(row["bytes"]) if row["bytes"] else ""
        what = f"{row['system']}, {row['case']} {size}".rstrip()
        time = format_time(row["value"])
        lines.append(f"  {word}: {what}, {row['ranks']} ranks: {ratio:.2f}x, now {time}")
    return "\n".join(["compared:", *lines])
