# SPDX-License-Identifier: Apache-2.0
"""The tables and rows of `weft bench gather`."""

from __future__ import annotations

import statistics

from ..report import table
from ..results import Block, Case, paired_ratios, rows_of
from .marks import sharing
from .run import NAMES, OPERATIONS, SHARED, SYSTEMS, rows_per_call


def _ns(case: Case, us: float) -> float:
    return us * 1000 / rows_per_call(case.op, case.bytes)


def _cell(case: Case, times: list[float]) -> str:
    """ns a row, and how far the rounds lie around it, in per cent."""
    if not times:
        return "-"
    middle = statistics.median(times)
    low, high = ((end / middle - 1) * 100 for end in (min(times), max(times)))
    ns = _ns(case, middle)
    return f"{ns:.1f} {low:+.0f}/{high:+.0f}%" if ns < 100 else f"{ns:.0f} {low:+.0f}/{high:+.0f}%"


def _ratio(blocks: list[Block], case: Case, against: str) -> str:
    ratios = paired_ratios(blocks, case, "weft", against, "any")
    return f"{statistics.median(ratios):.3f}" if ratios else "-"


def _group(blocks: list[Block]) -> str:
    names = [name for name in SYSTEMS if any(block.system == name for block in blocks)]
    lines = []
    for case in sorted({block.case for block in blocks}):
        here = [block for block in blocks if block.case == case]
        times = {name: [b.us for b in here if b.system == name] for name in names}
        ours = times.get("weft")
        rate = f"{case.bytes / _ns(case, statistics.median(ours)):.1f}" if ours else "-"
        cells = [_cell(case, times[name]) for name in names]
        versus = [_ratio(here, case, against) for against in ("torch", "copy")]
        lines.append([f"{case.bytes} B", *cells, rate, *versus])
    return table(["row", *(f"{name} ns" for name in names), "GB/s", "/torch", "/copy"], lines)


def _shared(blocks: list[Block]) -> str:
    lines = []
    for row in sorted({block.case.bytes for block in blocks}):
        found = sharing(blocks, row)
        if found is not None:
            lines.append([f"{row} B", f"{found.twice:.2f}", f"{found.of_copy:.2f}"])
    return table(["row", "two / one", "of what two can copy"], lines)


def figures(blocks: list[Block]) -> str:
    """One table for each operation and number of threads: ns a row, spread, ratios."""
    parts = []
    for op in NAMES:
        for cores in sorted({b.case.cores for b in blocks if b.case.op == op}, reverse=True):
            if op != SHARED:
                here = [b for b in blocks if b.case.op == op and b.case.cores == cores]
                threads = "1 thread" if cores == 1 else f"{cores} threads"
                title = f"{OPERATIONS[op].about}, {threads}"
                parts.append(f"{title}\n{_group(here)}")
    shared = [block for block in blocks if block.case.op == SHARED]
    if shared:
        parts.append(f"two processes read one region\n{_shared(shared)}")
    return "\n\n".join(parts)


def rows(blocks: list[Block]) -> list[dict]:
    """As those of the other programs; `bytes` is that of a row."""
    found = rows_of(blocks, "gather")
    for row in found:
        count = rows_per_call(row["op"], row["bytes"])
        row["rows"] = count
        row["gb_per_s"] = count * row["bytes"] / row["value"] / 1000
    return found
