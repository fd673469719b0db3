# SPDX-License-Identifier: Apache-2.0
"""How the rows of a benchmark are shown: over which axis, and as which value.

Most show the time of a call over bytes; what counts something else has a view of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .units import format_size, format_time


class View:
    """The time of a call over the bytes of a block, for numbers of ranks."""

    # The columns of the page: what runs a case, the axis, the values, and what follows them.
    who = "ranks"
    axis = "size"
    columns = ("median", "low", "high")
    more: tuple[str, ...] = ()
    bars = False  # the axis has names, not numbers

    def heading(self, op: str, size_is: str) -> str:
        """The title of an operation's figure."""
        if op == "cycle":
            return "write, allreduce and read, less write and read: time over size of the vector"
        return f"{op}: time of a call over size of {size_is}"

    def panel(self, ranks: int, cores: int) -> str:
        """The title of a panel. One process has a thread for each core."""
        if ranks == 1:
            return f"{cores} threads" if cores > 1 else "1 thread"
        return f"{ranks} ranks" if ranks <= cores else f"{ranks} ranks on {cores} cores"

    def takes(self, row: dict) -> bool:
        """Is there a place for the row on the axis?"""
        return bool(row.get("bytes"))

    def at(self, row: dict) -> int:
        """The row's place on the axis."""
        return row["bytes"]

    def tick(self, row: dict) -> str:
        """What is written at that place."""
        return format_size(row["bytes"]) if row["bytes"] else ""

    def values(self, row: dict) -> tuple[float, float, float]:
        """The median, and the ends of the spread, the lower one first."""
        return row["value"], row["low"], row["high"]

    def value_text(self, value: float) -> str:
        return format_time(value)

    def value_tick(self, value: float) -> str:
        number, unit = format_time(value).split()
        return f"{float(number):g} {unit}"

    def who_text(self, row: dict) -> str:
        return str(row["ranks"])

    def more_text(self, row: dict) -> Sequence[str]:
        """The cells under `more`."""
        return ()

    def set_up(self, axes: Any) -> None:
        """Scales of a panel, in matplotlib's words."""
        axes.set(xscale="log", yscale="log")


TIME_OVER_BYTES = View()
