# SPDX-License-Identifier: Apache-2.0
"""The tables and rows of `weft bench store`."""

from __future__ import annotations

import statistics

from ..report import table
from ..results import Block, paired_ratios, rows_of
from .cases import LOCAL, SYSTEMS

# What AdaPM reaches of a flat array in the same work, by bytes of a row.
ADAPM = {
    "pull-million": {64: 0.14, 256: 0.20, 512: 0.27, 2048: 0.53},
    "push-million": {64: 0.05, 256: 0.08, 512: 0.13, 2048: 0.41},
}


def _cell(times: list[float], keys: int) -> str:
    """ns a key, and how far the rounds lie around it, in per cent."""
    if not times:
        return "-"
    middle = statistics.median(times)
    low, high = ((end / middle - 1) * 100 for end in (min(times), max(times)))
    ns = middle * 1000 / keys
    return f"{ns:.{1 if ns < 100 else 0}f} {low:+.0f}/{high:+.0f}%"


def _speed(blocks: list[Block], op: str, row: int, against: str) -> str:
    """weft's speed over another's."""
    case = next(b.case for b in blocks if (b.case.op, b.case.bytes) == (op, row))
    ratios = paired_ratios(blocks, case, "weft", against, "any")
    return f"{1 / statistics.median(ratios):.2f}" if ratios else "-"


def _local(blocks: list[Block], op: str) -> str:
    """A line for each size of rows: ns a key, and weft's speed as a share of the others'."""
    here = [block for block in blocks if block.case.op == op]
    names = [name for name in SYSTEMS if any(block.system == name for block in here)]
    others = [name for name in names if name != "weft"]
    lines = []
    for row in sorted({block.case.bytes for block in here}):
        times = {n: [b.us for b in here if b.system == n and b.case.bytes == row] for n in names}
        cells = [_cell(times[name], LOCAL[op].keys) for name in names]
        shares = [_speed(here, op, row, other) for other in others]
        cited = [f"{ADAPM[op][row]:.2f}"] if row in ADAPM.get(op, {}) else ["-"]
        lines.append([f"{row} B", *cells, *shares, *(cited if op in ADAPM else [])])
    cited = ["AdaPM of a loop"] if op in ADAPM else []
    head = ["row", *(f"{name} ns" for name in names), *(f"of {name}" for name in others), *cited]
    return f"{LOCAL[op].about}: ns a key\n{table(head, lines)}"


def figures(blocks: list[Block]) -> str:
    """A table for each operation."""
    measured = {block.case.op for block in blocks}
    return "\n\n".join(_local(blocks, op) for op in LOCAL if op in measured)


def rows(blocks: list[Block]) -> list[dict]:
    """As those of the other programs; `bytes` is that of a row."""
    found = rows_of(blocks, "store")
    for row in found:
        row["keys"] = LOCAL[row["op"]].keys
    return found
