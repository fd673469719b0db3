# SPDX-License-Identifier: Apache-2.0
"""The tables and rows of `weft bench hosts`."""

from __future__ import annotations

from .. import pairs
from ..results import Block, rows_of
from .marks import GOALS
from .run import OPERATIONS, about

_ABOUT = {
    "allreduce": "allreduce on 4 hosts with unlimited cables",
    "allreduce_1gbit": "the same with cables of 1 Gbit/s",
    "start": "64 processes on 8 hosts: start, join the job, leave it, end",
    "rows": "4096 random rows of 512 B that another host has",
    "one_row": "one of them",
}


def figures(blocks: list[Block]) -> str:
    what = {op: _ABOUT.get(op, op) for op in OPERATIONS}
    return pairs.figures(blocks, what, about(), GOALS)


def rows(blocks: list[Block]) -> list[dict]:
    return rows_of(blocks, "hosts")
