# SPDX-License-Identifier: Apache-2.0
"""What a benchmark is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from .operations import Operation
from .results import Block
from .runner import Options, Outcome
from .systems import Line, System


@dataclass(frozen=True)
class Benchmark:
    """A program: what it can be asked for, how it measures, and how it tells."""

    name: str
    operations: Iterable[str]
    systems: tuple[str, ...]
    measure: Callable[[Options], Outcome]
    rows: Callable[[list[Block]], list[dict]]
    marks: Callable[[list[Block], Mapping[str, str]], list[dict]]
    figures: Callable[[list[Block]], str]
    # What is drawn in plots: who, and time over the sizes of which operations.
    lines: Mapping[str, Line] = field(default_factory=dict)
    drawn: Mapping[str, Operation] = field(default_factory=dict)


def lines_of(systems: Iterable[System]) -> dict[str, Line]:
    """The lines of those that are drawn, by name."""
    return {system.name: system.line for system in systems if system.line is not None}
