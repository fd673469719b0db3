# SPDX-License-Identifier: Apache-2.0
"""The tables for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from .results import Block
from .units import format_size, format_time


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Columns as wide as they need; the first `left` to the left, the others to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = []
    for line in lines:
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        cells[:left] = [cell.ljust(width) for cell, width in zip(line[:left], widths, strict=False)]
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


def marks_table(rows: list[dict], reasons_too: bool = True) -> str:
    """The marks, each with the worst of its cases, and why if it could not be judged."""
    if not rows:
        return ""
    words = {True: "met", False: "not met", None: "not judged"}
    lines = []
    for row in rows:
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
        goal = f"{row['direction']} {row['goal']:.3g}"
        where = f"{row['case']}, {row['ranks']} ranks, / {row['against']}"
        where = row["reason"] if row["case"] == "-" else where
        lines.append((row["mark"], row["placement"], ratio, goal, words[row["met"]], where))
    text = table(("mark", "placement", "ratio", "goal", "", "worst case"), lines)
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["reason"]:
            reasons.setdefault(row["reason"], []).append(f"{row['mark']} {row['placement']}")
    notes = [f"  {', '.join(who)}: {reason}" for reason, who in reasons.items()]
    return "\n".join([text, *(["not judged in full:", *notes] if notes and reasons_too else [])])


def changes_text(changes: list[tuple[dict, float]]) -> str:
    """What got slower or faster than before by more than both spreads."""
    if not changes:
        return "compared: nothing changed beyond the spread"
    lines = []
    for row, ratio in changes:
        word = "slower" if ratio > 1 else "faster"
        size = row.get("at") or (format_size(row["bytes"]) if row["bytes"] else "")
        what = f"{row['system']}, {row['case']} {size}".rstrip()
        who = f"{row['threads']} threads" if "threads" in row else f"{row['ranks']} ranks"
        lines.append(f"  {word}: {what}, {who}: {ratio:.2f}x, now {format_time(row['value'])}")
    return "\n".join(["compared:", *lines])
