# SPDX-License-Identifier: Apache-2.0
"""Rounds of `weft bench torch` and `weft bench mpi`: a case is checked in its first turn."""

from __future__ import annotations

from collections.abc import Sequence

from .job import Job
from .marks import MIN_PAIRS
from .results import Case
from .runner import Options, Runner, Setup
from .systems import System

LARGE = 16 << 20


def takes_turn(case: Case, turn: int) -> bool:
    """Large tensors take seconds: they sit out most of the later rounds."""
    return case.bytes < LARGE or turn < MIN_PAIRS or turn % 3 == 0


class CheckedInTurn(Runner):
    """The same rounds; a quick run cannot wait until all cases have been checked."""

    def __init__(self, options: Options, systems: Sequence[System]):
        super().__init__(options, {system.name: system.family for system in systems})
        self._checked: set[tuple[System, Case]] = set()

    def _takes_turn(self, case: Case, turn: int) -> bool:
        return takes_turn(case, turn)

    def _check(
        self, setup: Setup, systems: list[System], jobs: dict[str, Job], cases: list[Case]
    ) -> None:
        """Each case is checked when its first turn comes."""
        self._checked.clear()

    def _block(self, system: System, jobs: dict[str, Job], case: Case, turn: int) -> None:
        """Nothing is timed whose result is wrong; what has no result is not checked."""
        if system.checked and (system, case) not in self._checked:
            self._checked.add((system, case))
            self._ask(jobs, system, "check", case)
        super()._block(system, jobs, case, turn)
