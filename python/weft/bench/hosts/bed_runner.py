# SPDX-License-Identifier: Apache-2.0
"""Rounds on hosts: each setup has a bed, and all its systems take turns on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ..bed import SHARED_CORES, Bed
from ..build import PAGE, cache_folder
from ..collectives.systems import WEFT
from ..in_turn import CheckedInTurn
from ..job import Job, JobError
from ..results import Block, Case
from ..runner import Options, Setup
from ..systems import Family, System, python_family
from .job import BedJob
from .limit import find_iperf3

WEFT_RANKS = python_family("hosts-weft", "hosts.rank", "weft")
GLOO_RANKS = python_family("hosts-gloo", "hosts.rank", "gloo")
IPERF3 = Family("iperf3", PAGE, find_iperf3, ranks=False)
FREE = {"BENCH_FREE": "1"}  # has ranks in Python not pinned


@dataclass(frozen=True)
class BedSetup(Setup):
    """A setup on as many hosts as ranks, whose cables may have a limit."""

    rate: str | None = None
    mtu: int = 1500


def sharing_cores(system: System) -> System:
    """The system as it runs where there are fewer cores than processes."""
    if system.family not in (WEFT_RANKS, WEFT):
        return system
    return replace(system, env={**system.env, **SHARED_CORES})


class BedRunner(CheckedInTurn):
    """A benchmark says what its limits are: systems of families that have no ranks."""

    def __init__(self, options: Options, systems: tuple[System, ...]):
        super().__init__(options, systems)
        self._rounds = options.rounds or (3 if options.quick else 5)
        self._made: Bed | None = None

    @property
    def _bed(self) -> Bed:
        assert self._made is not None
        return self._made

    def _least(self, system: System, case: Case) -> float:
        """The time in us that the cables need for a case, in this turn."""
        raise NotImplementedError

    def _run(self, setup: Setup, advance: Callable[[str], None]) -> None:
        assert isinstance(setup, BedSetup)
        visible = [cache_folder()]
        with Bed(setup.ranks, rate=setup.rate, mtu=setup.mtu, visible=visible) as self._made:
            super()._run(setup, advance)

    def _place(self) -> str | None:
        return str(self._bed.shared)

    def _each(self, system: System) -> int:
        """Ranks on a host."""
        return 1

    def _job(self, setup: Setup, system: System, folder: Path) -> Job:
        program = self._programs[system.family]
        return BedJob(self._bed, system, program, setup.cores, folder, each=self._each(system))

    def _start_jobs(
        self, setup: Setup, systems: list[System], jobs: dict[str, Job], folder: Path
    ) -> None:
        with_ranks = [system for system in systems if system.family.ranks]
        super()._start_jobs(setup, with_ranks, jobs, folder)

    def _drop(self, jobs: dict[str, Job], system: System, ranks: int, error: JobError) -> None:
        if system.family in (WEFT_RANKS, WEFT):
            error = type(error)(f"weft cannot run here: {error}")
        super()._drop(jobs, system, ranks, error)

    def _takes(self, system: System, case: Case) -> bool:
        return system.has(case.op)

    def _takes_turn(self, case: Case, turn: int) -> bool:
        return True

    def _words(self, system: System, case: Case) -> str:
        return f"allreduce {case.bytes} {system.pages}"

    def _block(self, system: System, jobs: dict[str, Job], case: Case, turn: int) -> None:
        if not system.family.ranks:
            us = self._least(system, case)
            self.outcome.blocks.append(Block(case, system.name, turn, "any", us))
            return
        super()._block(system, jobs, case, turn)

    def finish(self) -> None:
        """Ranks that share cores have no placement, wherever those happened to be."""
        blocks = self.outcome.blocks
        blocks[:] = [replace(block, placement="any") for block in blocks]
