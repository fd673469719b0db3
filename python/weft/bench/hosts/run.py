# SPDX-License-Identifier: Apache-2.0
"""`weft bench hosts`: who takes part on which network.

All systems of a setup have the same hosts and take turns on them. Beside weft through
torch.distributed there is weft from C ("core"), which is compared with what is C, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..bed import Bed, Unavailable, missing
from ..build import MEASURE, PAGE, Driver, cache_folder
from ..collectives.systems import WEFT
from ..in_turn import CheckedInTurn
from ..job import Job, JobError
from ..results import Block, Case
from ..runner import Options, Outcome, Setup, cores_here, interruptible, progress
from ..systems import FREE_GLOO_LINE, GLOO_LINE, OPENMPI, WEFT_LINE, Family, System, python_family
from . import parts
from .job import BedJob
from .limit import Cable, find_iperf3, ring_us

_KIB, _MIB = 1 << 10, 1 << 20
HOSTS = 4
RATE = "1gbit"

_WEFT = python_family("hosts-weft", "hosts.rank", "weft")
_GLOO = python_family("hosts-gloo", "hosts.rank", "gloo")
_OPENMPI = Family("openmpi", Driver("openmpi", (*MEASURE, "backend_mpi.c")), OPENMPI.find)
_IPERF3 = Family("iperf3", PAGE, find_iperf3)
# More ranks than cores: a rank that waits has to let others run.
_TCP = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,vader,self",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
# Hosts made of one machine do not know that they share its cores: weft is told so, too.
_SHARED_CORES = {"WEFT_SPIN": "0us", "WEFT_YIELD": "2ms"}
_LIMITED = "allreduce_1gbit"

SYSTEMS = (
    System("weft", _WEFT, about='init_process_group("weft")', line=WEFT_LINE),
    System("gloo", _GLOO, about='init_process_group("gloo")', line=GLOO_LINE),
    # On one core its threads have to take turns; on a busy machine this serves them better.
    System(
        "gloo-free",
        _GLOO,
        env={"BENCH_FREE": "1"},
        about="the same, not pinned",
        line=FREE_GLOO_LINE,
        lacks=frozenset({_LIMITED}),
    ),
    System("core", WEFT, about="weft from C"),
    System("core-2", WEFT, about="the same, 2 ranks on each host", only_op=_LIMITED),
    System("openmpi", _OPENMPI, env=_TCP, about="from C, over tcp"),
    System("iperf3", _IPERF3, about="one TCP stream: the limit", only_op=_LIMITED, checked=False),
)
EACH = {"core-2": 2}  # ranks on a host, of those that have not one
# What is no allreduce has its own programs; see parts.py.
NAMES = (*(system.name for system in SYSTEMS), *parts.SYSTEMS)
OPERATIONS: dict[str, tuple[int, ...]] = {
    "allreduce": (_KIB, 64 * _KIB, 16 * _MIB),
    _LIMITED: (64 * _MIB,),
    **dict.fromkeys(parts.OPERATIONS, (0,)),
}
# A quick run has time for little where a call takes a second, and needs half of its time for that.
_QUICK = {"allreduce": ("weft", "gloo", "core", "openmpi"), _LIMITED: ("core", "iperf3")}
_QUICK_FIRST, _QUICK_SECONDS = 22.0, 46.0


@dataclass(frozen=True)
class HostsSetup(Setup):
    """A setup on hosts whose cables may have a limit."""

    rate: str | None = None


def _sharing_cores(system: System) -> System:
    """The system as it runs where there are fewer cores than hosts."""
    if system.family not in (_WEFT, WEFT):
        return system
    return replace(system, env={**system.env, **_SHARED_CORES})


def plan(options: Options, cores: Sequence[int]) -> list[Setup]:
    """One setup for each kind of cable: all systems take turns in it."""
    setups: list[Setup] = []
    for op, rate in (("allreduce", None), (_LIMITED, RATE)):
        if options.ops is not None and op not in options.ops:
            continue
        sizes = options.sizes or OPERATIONS[op]
        cases = tuple(Case(op, size, HOSTS, len(cores)) for size in sizes)
        chosen = [s for s in SYSTEMS if options.wants(s.name) and s.has(op)]
        if options.quick:
            chosen = [s for s in chosen if s.name in _QUICK[op]]
        if len(cores) < HOSTS:
            chosen = [_sharing_cores(s) for s in chosen]
        setups.append(HostsSetup(HOSTS, tuple(cores), cases, tuple(chosen), rate))
    return setups


class HostsRunner(CheckedInTurn):
    """The rounds of the other programs, on hosts."""

    def __init__(self, options: Options):
        super().__init__(options, SYSTEMS)
        self._rounds = options.rounds or (3 if options.quick else 5)
        self._bed: Bed | None = None
        self._cable: Cable | None = None

    def _quick_end(self, number: int, setups: int) -> float:
        return _QUICK_FIRST if number < setups - 1 else _QUICK_SECONDS

    def _run(self, setup: Setup, advance: Callable[[str], None]) -> None:
        assert isinstance(setup, HostsSetup)
        with Bed(HOSTS, rate=setup.rate, visible=[cache_folder()]) as self._bed:
            self._cable = None
            super()._run(setup, advance)

    def _place(self) -> str | None:
        assert self._bed is not None
        return str(self._bed.shared)

    def _job(self, setup: Setup, system: System, folder: Path) -> Job:
        assert self._bed is not None
        program = self._programs[system.family]
        each = EACH.get(system.name, 1)
        return BedJob(self._bed, system, program, setup.cores, folder, each=each)

    def _start_jobs(
        self, setup: Setup, systems: list[System], jobs: dict[str, Job], folder: Path
    ) -> None:
        with_ranks = [system for system in systems if system.family is not _IPERF3]
        super()._start_jobs(setup, with_ranks, jobs, folder)

    def _drop(self, jobs: dict[str, Job], system: System, ranks: int, error: JobError) -> None:
        if system.family in (_WEFT, WEFT):
            error = type(error)(f"weft cannot run here: {error}")
        super()._drop(jobs, system, ranks, error)

    def _takes(self, system: System, case: Case) -> bool:
        return system.has(case.op)

    def _takes_turn(self, case: Case, turn: int) -> bool:
        return True

    def _words(self, system: System, case: Case) -> str:
        return f"allreduce {case.bytes} {system.pages}"

    def _block(self, system: System, jobs: dict[str, Job], case: Case, turn: int) -> None:
        if system.family is _IPERF3:
            self.outcome.blocks.append(Block(case, system.name, turn, "any", self._least(case)))
            return
        super()._block(system, jobs, case, turn)

    def _least(self, case: Case) -> float:
        """The time that the cables need for a case, in this turn."""
        assert self._bed is not None
        if self._cable is None:
            self._cable = Cable(self._bed)
        return ring_us(case.bytes, HOSTS, self._cable.bytes_per_second())

    def finish(self) -> None:
        """Ranks that share cores have no placement, wherever those happened to be."""
        blocks = self.outcome.blocks
        blocks[:] = [replace(block, placement="any") for block in blocks]


def measure(options: Options) -> Outcome:
    """A whole run. To be called from the main thread."""
    if (why := missing()) is not None:
        return Outcome(missing={"weft": f"there can be no hosts here: {why}"})
    runner = HostsRunner(options)
    runner.prepare()
    cores = cores_here(options.cores)
    setups = plan(options, cores)
    with interruptible(runner.outcome), progress(runner.total(setups)) as advance:
        try:
            parts.measure_rows(options, len(cores), runner.outcome)
            runner.run_all(setups, advance)
            parts.measure_start(options, len(cores), runner.outcome)
        except Unavailable as error:
            runner.outcome.failed["hosts"] = str(error)
    runner.finish()
    return runner.outcome


def about() -> Mapping[str, str]:
    """What the systems are, by name."""
    return {system.name: system.about for system in SYSTEMS} | parts.SYSTEMS
