# SPDX-License-Identifier: Apache-2.0
"""What a benchmark is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from .operations import Operation
from .results import Block
from .runner import Options, Outcome
from .systems import Line, System
from .view import TIME_OVER_BYTES, View


def whole_floats(size: int) -> str | None:
    """Bytes have to be a whole number of floats."""
    return f"{size} bytes are not a whole number of floats" if size % 4 else None


@dataclass(frozen=True)
class Contest:
    """Who is compared on the page of a run: `ours` with the fastest of `peers`.

    `limits` are systems that no other can be faster than, as far as is known. `also` is a second
    way of ours, which is shown beside it.
    """

    peers: tuple[str, ...]
    limits: tuple[str, ...] = ()
    ours: str = "weft"
    of_weft: bool = True  # or of libraries that PyTorch computes with
    also: str | None = None


@dataclass(frozen=True)
class Benchmark:
    """A program: what it can be asked for, how it measures, and how it tells."""

    name: str
    operations: Iterable[str]
    # Those of a table, or a function that looks for what is installed here.
    systems: tuple[str, ...] | Callable[[], tuple[str, ...]]
    measure: Callable[[Options], Outcome]
    rows: Callable[[list[Block]], list[dict]]
    marks: Callable[[list[Block], Mapping[str, str]], list[dict]]
    figures: Callable[[list[Block]], str]
    # What is drawn in plots: who, and which operations. Lines of those found here only when the
    # benchmark runs are a function of their names.
    lines: Mapping[str, Line] | Callable[[Iterable[str]], Mapping[str, Line]] = field(
        default_factory=dict
    )
    drawn: Mapping[str, Operation] = field(default_factory=dict)
    view: View = TIME_OVER_BYTES
    # Who is compared on the page of a run; of systems found only when it runs, a function of them.
    contests: tuple[Contest, ...] | Callable[[Iterable[str]], tuple[Contest, ...]] = ()
    # Its ranks probe where they run, and a block in which that changed is dropped.
    probed: bool = True
    # The system without which a run has failed.
    subject: str = "weft"
    # Takes in a system that `names` does not have, and returns None; or why not, "" if all that
    # is to say is that there is none of that name.
    find: Callable[[str], str | None] = lambda _name: ""
    # Why a size that somebody asked for cannot be, or None.
    size_refused: Callable[[int], str | None] = whole_floats

    @property
    def names(self) -> tuple[str, ...]:
        """The systems that can be named."""
        return self.systems() if callable(self.systems) else self.systems

    def lines_for(self, names: Iterable[str]) -> Mapping[str, Line]:
        """How the systems of these names are drawn; those without a line are not."""
        return self.lines(names) if callable(self.lines) else self.lines

    def contests_for(self, names: Iterable[str]) -> tuple[Contest, ...]:
        """Who of the systems of these names is compared with whom."""
        return self.contests(names) if callable(self.contests) else self.contests


def lines_of(systems: Iterable[System]) -> dict[str, Line]:
    """The lines of those that are drawn, by name."""
    return {system.name: system.line for system in systems if system.line is not None}
