# SPDX-License-Identifier: Apache-2.0
"""`weft bench hosts`: who takes part on which network.

All systems of a setup have the same hosts and take turns on them. Beside weft through
torch.distributed there is weft from C ("core"), which is compared with what is C, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..bed import Unavailable, missing
from ..build import MEASURE, Driver
from ..collectives.systems import WEFT
from ..results import Case
from ..runner import Options, Outcome, Setup, cores_here, interruptible, progress
from ..systems import FREE_GLOO_LINE, GLOO_LINE, OPENMPI, WEFT_LINE, Family, System
from . import parts
from .bed_runner import FREE, GLOO_RANKS, IPERF3, WEFT_RANKS, BedRunner, BedSetup, sharing_cores
from .limit import Cable, ring_us

_KIB, _MIB = 1 << 10, 1 << 20
HOSTS = 4
RATE = "1gbit"

_OPENMPI = Family("openmpi", Driver("openmpi", (*MEASURE, "backend_mpi.c")), OPENMPI.find)
# More ranks than cores: a rank that waits has to let others run.
_TCP = {
    "OMPI_MCA_pml": "ob1",
    # No shared memory, by which some versions reach other namespaces of this machine.
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
_LIMITED = "allreduce_1gbit"

SYSTEMS = (
    System("weft", WEFT_RANKS, about='init_process_group("weft")', line=WEFT_LINE),
    System("gloo", GLOO_RANKS, about='init_process_group("gloo")', line=GLOO_LINE),
    # On one core its threads have to take turns; on a busy machine this serves them better.
    System(
        "gloo-free",
        GLOO_RANKS,
        env=FREE,
        about="the same, not pinned",
        line=FREE_GLOO_LINE,
        lacks=frozenset({_LIMITED}),
    ),
    System("core", WEFT, about="weft from C"),
    System("core-2", WEFT, about="the same, 2 ranks on each host", only_op=_LIMITED),
    System("openmpi", _OPENMPI, env=_TCP, about="from C, over tcp"),
    System("iperf3", IPERF3, about="one TCP stream: the limit", only_op=_LIMITED, checked=False),
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
            chosen = [sharing_cores(s) for s in chosen]
        setups.append(BedSetup(HOSTS, tuple(cores), cases, tuple(chosen), rate))
    return setups


class HostsRunner(BedRunner):
    """The rounds of the other programs, on hosts."""

    def __init__(self, options: Options):
        super().__init__(options, SYSTEMS)
        self._cable: Cable | None = None

    def _quick_end(self, number: int, setups: int) -> float:
        return _QUICK_FIRST if number < setups - 1 else _QUICK_SECONDS

    def _run(self, setup: Setup, advance: Callable[[str], None]) -> None:
        self._cable = None
        super()._run(setup, advance)

    def _each(self, system: System) -> int:
        return EACH.get(system.name, 1)

    def _least(self, system: System, case: Case) -> float:
        if self._cable is None:
            self._cable = Cable(self._bed)
        return ring_us(case.bytes, HOSTS, self._cable.bytes_per_second())


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
