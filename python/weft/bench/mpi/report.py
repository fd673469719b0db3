# SPDX-License-Identifier: Apache-2.0
"""The tables and rows of `weft bench mpi`."""

from __future__ import annotations

from ..report import by_ranks, cell, table
from ..results import Block, case_name, rows_of
from ..units import format_time
from .marks import goal_lines, scaled
from .run import ABOUT, NAMES, OPERATIONS

# What mpi4torch 0.1.3 took on 2 cores of an AMD EPYC with Open MPI 4.1.4, in us: it does not run
# with the torch of today, so nobody can measure it beside the others.
MPI4TORCH = {
    ("forward", 4): 4.75,
    ("forward", 4 << 20): 600.0,
    ("forward", 64 << 20): 72_900.0,
    ("forward_backward", 4): 13.7,
    ("forward_backward", 4 << 20): 2040.0,
    ("forward_backward", 64 << 20): 148_000.0,
    ("alltoall", 8): 8.98,
    ("ring", 4): 25.3,
}


def _group(blocks: list[Block]) -> str:
    names = [name for name in NAMES if any(block.system == name for block in blocks)]
    lines = []
    for case in sorted({b.case for b in blocks}, key=lambda c: (list(ABOUT).index(c.op), c.bytes)):
        here = [block for block in blocks if block.case == case]
        times = [cell([scaled(b) for b in here if b.system == name]) for name in names]
        once = MPI4TORCH.get((case.op, case.bytes))
        lines.append([case_name(case), *times, "-" if once is None else format_time(once)])
    return table(["", *names, "(mpi4torch)"], lines)


def _goals(blocks: list[Block]) -> str:
    lines = [
        [f"{goal.mark} {case_name(goal.case)}", f"{ratio:.3f}", f"{goal.bound:.3g}", goal.against]
        for goal, ratio in goal_lines(blocks)
    ]
    return table(["weft's time", "ratio", "goal", "over"], lines) if lines else ""


def figures(blocks: list[Block]) -> str:
    """One table for each number of ranks: median and spread; and how each goal stands."""
    parts = [f"{title}\n{_group(here)}" for title, here in by_ranks(blocks)]
    if parts:
        ran = {block.case.op for block in blocks}
        parts.append("\n".join(f"{op}: {ABOUT[op]}" for op in OPERATIONS if op in ran))
        note = "(mpi4torch): version 0.1.3 with Open MPI on another machine, as seen once"
        parts.append(note)
        parts.append(_goals(blocks))
    return "\n\n".join(filter(None, parts))


def rows(blocks: list[Block]) -> list[dict]:
    """As those of the other programs; what the core takes is for as many calls as weft makes."""
    found = rows_of(blocks, "mpi")
    for row in found:
        if row["system"] == "core" and row["op"] == "forward_backward":
            for name in ("value", "low", "high"):
                row[name] *= 2
    return found
