# SPDX-License-Identifier: Apache-2.0
"""The tables and rows of `weft bench hosts`."""

from __future__ import annotations

from ..report import cell, table
from ..results import Block, case_name, rows_of
from .marks import goal_lines
from .run import NAMES, OPERATIONS, about

_ABOUT = {
    "allreduce": "allreduce on 4 hosts with unlimited cables",
    "allreduce_1gbit": "the same with cables of 1 Gbit/s",
    "start": "64 processes on 8 hosts: start, join the job, leave it, end",
    "rows": "4096 random rows of 512 B that another host has",
    "one_row": "one of them",
}


def _times(blocks: list[Block]) -> str:
    names = [name for name in NAMES if any(block.system == name for block in blocks)]
    order = list(OPERATIONS)
    lines = []
    for case in sorted({b.case for b in blocks}, key=lambda c: (order.index(c.op), c.bytes)):
        here = [block for block in blocks if block.case == case]
        times = [cell([b.us for b in here if b.system == name]) for name in names]
        lines.append([case_name(case), *times])
    return table(["", *names], lines)


def _goals(blocks: list[Block]) -> str:
    lines = [
        [name, goal.ours, f"{ratio:.3f}", f"{goal.bound:.3g}", goal.theirs]
        for name, goal, ratio in goal_lines(blocks)
    ]
    return table(["", "time of", "ratio", "goal", "over"], lines, left=2) if lines else ""


def figures(blocks: list[Block]) -> str:
    """Median and spread of each case; what it was; and how each goal stands."""
    if not blocks:
        return ""
    ran = {block.case.op for block in blocks}
    seen = {block.system for block in blocks}
    what = [f"{op}: {text}" for op, text in _ABOUT.items() if op in ran]
    who = [f"{name}: {text}" for name, text in about().items() if name in seen]
    return "\n\n".join(filter(None, (_times(blocks), "\n".join([*what, *who]), _goals(blocks))))


def rows(blocks: list[Block]) -> list[dict]:
    return rows_of(blocks, "hosts")
