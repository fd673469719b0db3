# SPDX-License-Identifier: Apache-2.0
"""The tables, rows and plots of `weft bench switch`."""

from __future__ import annotations

from typing import Any

from .. import pairs
from ..operations import Operation
from ..results import Block, rows_of
from ..units import format_size
from ..view import View
from .marks import GOALS
from .run import GOODPUT, JUMBO, LIMITED, SMALL, UNLIMITED, about

_ABOUT = {
    GOODPUT: "allreduce of 2 hosts through a switch on one core, 1 KiB in a packet",
    JUMBO: "allreduce with frames of 9000 bytes and 8 KiB in a packet",
    SMALL: "allreduce of 2 hosts through torch.distributed",
    UNLIMITED: "allreduce of several hosts: what the cores of this machine can move",
    LIMITED: "allreduce with links of at most 1 Gbit/s that the cores can serve",
}
DRAWN = {
    op: Operation(op, "the tensor", sizes=()) for op in (GOODPUT, JUMBO, SMALL, UNLIMITED, LIMITED)
}


class TimeOfHosts(View):
    """Bars side by side for each number of hosts."""

    bars = True

    def heading(self, op: str, size_is: str) -> str:
        return f"{op}: {_ABOUT[op]}"

    def panel(self, ranks: int, cores: int) -> str:
        return f"{ranks} hosts on {cores} cores"

    def at(self, row: dict) -> int:
        return 0

    def tick(self, row: dict) -> str:
        return f"time for {format_size(row['bytes'])}"

    def set_up(self, axes: Any) -> None:
        axes.set_ylim(bottom=0, auto=True)  # which other panels share


def figures(blocks: list[Block]) -> str:
    return pairs.figures(blocks, _ABOUT, about(), GOALS)


def rows(blocks: list[Block]) -> list[dict]:
    return rows_of(blocks, "switch")
