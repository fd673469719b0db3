# SPDX-License-Identifier: Apache-2.0
"""The tables and rows of `weft bench store`."""

from __future__ import annotations

import statistics

from ..report import cell, table
from ..results import Block, paired_ratios, rows_of
from ..units import format_time
from .cases import (
    BETWEEN,
    HOT,
    HOT_KEYS,
    HOT_ROW,
    HOT_SYSTEMS,
    LOCAL,
    NET,
    NET_SYSTEMS,
    SYSTEMS,
    keys_of,
)

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


def _hot(blocks: list[Block]) -> str:
    here = [block for block in blocks if block.case.op == HOT]
    times = {name: [b.us for b in here if b.system == name] for name in HOT_SYSTEMS}
    lines = []
    for who, prefix in (("weft", ""), ("loop without locks", "loop-")):
        same, own = times[f"{prefix}same"], times[f"{prefix}disjoint"]
        if same and own:
            share = statistics.median(own) / statistics.median(same)
            cells = [_cell(us, HOT_KEYS) for us in (same, own)]
            lines.append([who, f"{HOT_ROW} B", *cells, f"{share:.2f}"])
    head = ["", "row", "the same keys ns", "each its own ns", "of each its own"]
    title = f"two ranks of a host pull and push {HOT_KEYS} keys: ns a key"
    return f"{title}\n{table(head, lines)}"


def _between(blocks: list[Block]) -> str:
    """A line for each case between two hosts, and what AdaPM took."""
    here = [block for block in blocks if block.case.op in BETWEEN]
    sizes = sorted({block.case.bytes for block in here})
    lines = []
    for op, what in BETWEEN.items():
        line = [what.about]
        for row in sizes:
            line.append(cell([b.us for b in here if (b.case.op, b.case.bytes) == (op, row)]))
            line.append(format_time(what.adapm[row]) if row in what.adapm else "-")
        lines.append(line)
    head = ["", *(word for row in sizes for word in (f"{row} B", "AdaPM"))]
    return f"two hosts that are pretended: a call, or a step of a stream\n{table(head, lines)}"


def _network(blocks: list[Block]) -> str:
    """A line for each case between namespaces: weft, and its time over those of others."""
    here = [block for block in blocks if block.case.op in NET]
    lines = []
    for case in sorted({block.case for block in here}, key=lambda c: (list(NET).index(c.op), c)):
        of_case = [block for block in here if block.case == case]
        line = [NET[case.op], f"{case.bytes} B"]
        for system in NET_SYSTEMS:
            line.append(cell([block.us for block in of_case if block.system == system]))
            if system != "weft":
                ratios = paired_ratios(of_case, case, "weft", system, "any")
                line.append(f"{statistics.median(ratios):.2f}" if ratios else "-")
        lines.append(line)
    others = [word for system in NET_SYSTEMS[1:] for word in (system, "weft / it")]
    title = "two hosts that are namespaces: a call, or a step"
    return f"{title}\n{table(['', 'row', 'weft', *others], lines)}"


def figures(blocks: list[Block]) -> str:
    """A table for each operation on one host, and one for two hosts."""
    measured = {block.case.op for block in blocks}
    parts = [_local(blocks, op) for op in LOCAL if op in measured]
    parts += [_hot(blocks)] if HOT in measured else []
    parts += [_between(blocks)] if measured & set(BETWEEN) else []
    parts += [_network(blocks)] if measured & set(NET) else []
    return "\n\n".join(parts)


def rows(blocks: list[Block]) -> list[dict]:
    """As those of the other programs; `bytes` is that of a row."""
    found = rows_of(blocks, "store")
    for row in found:
        row["keys"] = keys_of(row["op"])
    return found
