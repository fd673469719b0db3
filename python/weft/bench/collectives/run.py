# SPDX-License-Identifier: Apache-2.0
"""`weft bench collectives`: all collectives against the MPI libraries and gloo."""

from __future__ import annotations

from collections.abc import Sequence

from ..job import Job
from ..marks import MIN_PAIRS
from ..results import Case
from ..runner import LARGE, Options, Outcome, Runner, Setup, cores_here, run_setups
from ..systems import System
from .marks import GOALS, Goal, opponents
from .operations import OPERATIONS, SIZES
from .systems import SYSTEMS, taking_part

_KIB, _MIB = 1 << 10, 1 << 20

CROWDED_SIZES = (4, 64 * _KIB, 4 * _MIB)
CROWDED_RANKS = (4, 8)


def _sizes(op: str, crowded: bool, options: Options) -> tuple[int, ...]:
    operation = OPERATIONS[op]
    if op == "barrier":
        return operation.sizes
    if options.sizes is not None:
        return options.sizes
    if crowded:
        return CROWDED_SIZES
    return operation.quick_sizes if options.quick else operation.sizes


def _cases(ranks: int, cores: int, options: Options) -> tuple[Case, ...]:
    """Crowds that nobody asked for run what a mark asks of them, an allreduce."""
    crowded = ranks > cores
    everything = tuple(OPERATIONS)
    if options.quick:
        everything = tuple(name for name in everything if OPERATIONS[name].in_quick)
    if crowded:
        everything = everything[:1] if options.ranks is None else everything[:-1]
    return tuple(
        Case(op, size, ranks, cores)
        for op in options.ops or everything
        for size in _sizes(op, crowded, options)
    )


def plan(options: Options, cores: Sequence[int]) -> list[Setup]:
    """The setups of a run. Without --ranks: a pair, two crowds on two cores, and, in a full run,
    what further marks ask for."""
    wanted = [(ranks, tuple(cores[:ranks])) for ranks in options.ranks or (2,)]
    if options.ranks is None:
        wanted += [(ranks, tuple(cores[:2])) for ranks in CROWDED_RANKS]
    setups = []
    for ranks, some in wanted:
        systems = taking_part(options, ranks, len(some))
        chosen = tuple(s for s in systems if not (options.installed and s.kind == "best"))
        setups.append(Setup(ranks, some, _cases(ranks, len(some), options), chosen))
    if options.ranks is None and not options.quick:
        setups += _further(options, cores, {case for setup in setups for case in setup.cases})
    return setups


def _further(options: Options, cores: Sequence[int], planned: set[Case]) -> list[Setup]:
    """Cases of marks that are not planned yet, with those alone that the marks compare.

    MPICH, which does not yield, would take minutes for large data in a crowd, and gloo for
    many ranks.
    """
    wanted: dict[tuple[int, int], list[Goal]] = {}
    for goal in GOALS:
        case = goal.case
        asked = (options.ops is None or case.op in options.ops) and (
            options.sizes is None or case.bytes in (0, *options.sizes)
        )
        here = max(case.cores, goal.needs_cores) <= len(cores)
        if asked and here and case not in planned:
            wanted.setdefault((case.ranks, case.cores), []).append(goal)
    setups = []
    for (ranks, count), goals in wanted.items():
        names = {"weft", "weft-arena"}
        for goal in goals:
            names |= {s.name for group in opponents(goal.against).values() for s in group}
        systems = tuple(s for s in taking_part(options, ranks, count) if s.name in names)
        cases = tuple(dict.fromkeys(goal.case for goal in goals))
        setups.append(Setup(ranks, tuple(cores[:count]), cases, systems))
    return setups


def _arena_takes(case: Case, quick: bool) -> bool:
    """Data that goes with the calls is copied wherever it lies."""
    crowded = case.ranks > case.cores
    return case.bytes >= 64 * _KIB and not crowded if quick else case.bytes >= 8 * _KIB


def takes_case(system: System, case: Case, quick: bool) -> bool:
    """Does `system` have this operation, and something to say about it?

    Settings for one algorithm run with its operation, and those for the sizes of messages where
    messages are short. A quick run leaves to the full one what no mark needs.
    """
    if not system.has(case.op, quick):
        return False
    if system.kind == "arena":
        return _arena_takes(case, quick)
    if system.kind != "best":
        return True
    if case.op == "allreduce":
        return not (quick and case.bytes < 8 * _KIB)
    if quick or case.op == "cycle":
        return False
    return system.for_large if case.bytes >= LARGE else case.bytes >= 8 * _KIB


def takes_turn(case: Case, turn: int) -> bool:
    """Large data of all operations would take hours: it sits out some of the later rounds."""
    return case.bytes < LARGE or case.op == "allreduce" or turn < MIN_PAIRS or turn % 2 == 0


class CollectivesRunner(Runner):
    """All cases are checked before the first round."""

    operations = OPERATIONS

    def _takes(self, system: System, case: Case) -> bool:
        return takes_case(system, case, self._options.quick)

    def _takes_turn(self, case: Case, turn: int) -> bool:
        return takes_turn(case, turn)

    def _check(
        self, setup: Setup, systems: list[System], jobs: dict[str, Job], cases: list[Case]
    ) -> None:
        """Nothing is timed whose result is wrong: such a job is dropped."""
        reduced = [case.bytes for case in cases if case.op == "allreduce"]
        cores = len(setup.cores)
        extra = [
            Case("allreduce", size, setup.ranks, cores)
            for size in SIZES
            if reduced and not setup.crowded and size <= max(reduced)
        ]
        for system in systems:
            for case in dict.fromkeys([*cases, *extra]):
                if takes_case(system, case, self._options.quick and case not in extra):
                    self._ask(jobs, system, "check", case)


def measure(options: Options) -> Outcome:
    """A whole run. To be called from the main thread."""
    parts = {system.family.name: system.family for system in SYSTEMS}
    setups = plan(options, cores_here(options.cores))
    return run_setups(CollectivesRunner(options, parts), setups)
