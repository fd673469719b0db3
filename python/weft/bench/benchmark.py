# SPDX-License-Identifier: Apache-2.0
"""What a benchmark is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from .results import Block
from .runner import Options, Outcome


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
