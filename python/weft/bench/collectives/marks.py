# SPDX-License-Identifier: Apache-2.0
"""The marks of `weft bench collectives`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..marks import MIN_PAIRS, Verdict, badness, row_of
from ..results import PLACEMENTS, Block, Case, case_name, paired_ratios
from ..runner import cores_here
from ..systems import System
from .systems import SYSTEMS

_KIB, _MIB = 1 << 10, 1 << 20
# C5: every rank has a core of a machine with many.
MANY_RANKS, MANY_CORES = (8, 16), 16


@dataclass(frozen=True)
class Goal:
    """weft's time over a peer's must be at most `at_most[placement]` in this case.

    The placement "any" has the pairs of all placements.
    """

    mark: str
    case: Case
    against: str  # "installed", "best", "limit", "yield", "openmpi" or "mpich"
    at_most: Mapping[str, float]
    or_else: Goal | None = None  # will do instead
    needs_cores: int = 0
    ours: str = "weft"


def _goals_for(mark: str, against: str, rows: Iterable[tuple], ours: str = "weft") -> list[Goal]:
    return [
        Goal(mark, Case(op, size, 2, 2), against, {"near": near, "far": far}, ours=ours)
        for op, size, near, far in rows
    ]


def _moving_goals() -> list[Goal]:
    """C3b. Near the bound of the machine nobody can be far ahead of a peer."""
    goals = []
    for op, size, at_most in (
        ("broadcast", 64 * _KIB, {"near": 0.30}),
        ("broadcast", 4 * _MIB, {"near": 0.40}),
        ("allgather", 64 * _KIB, {"near": 0.65, "far": 1.0}),
        ("allgather", 4 * _MIB, {"near": 0.90, "far": 1.0}),
        ("alltoall", 64 * _KIB, {"near": 0.65, "far": 1.0}),
        ("alltoall", 4 * _MIB, {"near": 0.90, "far": 1.0}),
        ("reduce_scatter", 64 * _KIB, {"near": 0.5, "far": 0.5}),
        ("reduce_scatter", 512 * _KIB, {"near": 0.5, "far": 0.5}),
        ("reduce_scatter", 4 * _MIB, {"near": 0.5, "far": 0.5}),
    ):
        goals.append(Goal("C3b", Case(op, size, 2, 2), "installed", at_most))
    for op in ("broadcast", "allgather", "alltoall", "reduce_scatter"):
        for size in (32 * _MIB, 256 * _MIB):
            case = Case(op, size, 2, 2)
            bound = Goal("C3b", case, "limit", {"near": 1.15, "far": 1.15})
            goals.append(Goal("C3b", case, "installed", {"near": 0.65, "far": 0.65}, bound))
    return goals


def _crowded_goals() -> list[Goal]:
    goals = []
    for ranks in (4, 8):
        for size in (4, 64 * _KIB, 4 * _MIB):
            case = Case("allreduce", size, ranks, 2)
            goals.append(Goal("C4", case, "yield", {"any": 1.2}))
            if size < _MIB:
                goals.append(Goal("C4", case, "mpich", {"any": 1 / 200}))
    return goals


def _many_goals() -> list[Goal]:
    """C5. Outside the sizes of which it asks more, weft is not to be slower."""
    at_most = {
        **dict.fromkeys(("allreduce", "broadcast", "reduce_scatter", "allgather"), 0.5),
        **dict.fromkeys(("reduce", "alltoall", "gather", "scatter", "scan"), 0.7),
    }
    large = (64 * _KIB, 512 * _KIB, 4 * _MIB)
    wanted = [(op, size, bound) for op, bound in at_most.items() for size in large]
    wanted += [(op, size, 1.0) for op in at_most for size in (64, 8 * _KIB)]
    wanted.append(("barrier", 0, 1.0))
    return [
        Goal("C5", Case(op, size, ranks, ranks), "openmpi", {"any": bound}, needs_cores=MANY_CORES)
        for ranks in MANY_RANKS
        for op, size, bound in wanted
    ]


GOALS = [
    *_goals_for(
        "C1",
        "installed",
        (
            ("allreduce", 4, 0.42, 0.70),
            ("allreduce", 64, 0.42, 0.70),
            ("allreduce", 1 * _KIB, 0.32, 0.42),
            ("allreduce", 8 * _KIB, 0.21, 0.27),
            ("barrier", 0, 0.52, 0.77),
            ("broadcast", 8, 0.52, 0.77),
        ),
    ),
    *_goals_for(
        "C2a",
        "installed",
        (
            ("allreduce", 64 * _KIB, 0.18, 0.15),
            ("allreduce", 512 * _KIB, 0.27, 0.18),
            ("allreduce", 4 * _MIB, 0.50, 0.20),
        ),
    ),
    *_goals_for(
        "C2b",
        "best",
        (
            ("allreduce", 8 * _KIB, 0.29, 0.33),
            ("allreduce", 64 * _KIB, 0.27, 0.18),
            ("allreduce", 512 * _KIB, 0.36, 0.26),
            ("allreduce", 4 * _MIB, 1.0, 0.32),
        ),
    ),
    *_goals_for(
        "C3a",
        "installed",
        (("allreduce", 32 * _MIB, 0.23, 0.28), ("allreduce", 256 * _MIB, 0.23, 0.28)),
    ),
    *_goals_for(
        "C3a",
        "best",
        (("allreduce", 32 * _MIB, 0.65, 1.0), ("allreduce", 256 * _MIB, 0.65, 1.0)),
    ),
    Goal("C3a", Case("allreduce", 32 * _MIB, 2, 2), "limit", {"near": 1.4}),
    Goal("C3a", Case("allreduce", 256 * _MIB, 2, 2), "limit", {"near": 1.4}),
    *_moving_goals(),
    *_goals_for(
        "C3c",
        "installed",
        (
            ("cycle", 64 * _KIB, 0.13, 0.15),
            ("cycle", 512 * _KIB, 0.13, 0.15),
            ("cycle", 4 * _MIB, 0.13, 0.15),
            ("cycle", 256 * _MIB, 0.19, 0.12),
        ),
        ours="weft-arena",
    ),
    *_crowded_goals(),
    *_many_goals(),
    *(
        Goal("C6", Case(op, 32 * _MIB, 4, 2), "yield", {"any": 0.8})
        for op in ("broadcast", "allgather", "alltoall")
    ),
]


def opponents(against: str) -> dict[str, list[System]]:
    """The systems that a goal is measured against, by family."""
    if against in ("limit", "openmpi", "mpich"):
        return {against: [system for system in SYSTEMS if system.name == against]}
    if against == "yield":
        return {"openmpi": [system for system in SYSTEMS if system.kind == "yield"]}
    kinds = ("installed",) if against == "installed" else ("installed", "best")
    return {
        family: [s for s in SYSTEMS if s.family.name == family and s.kind in kinds]
        for family in ("openmpi", "mpich")
    }


def _against(
    blocks: list[Block], goal: Goal, placement: str, system: System
) -> tuple[float | None, int]:
    """The median ratio to one system, with the same pages on both sides, and the pairs."""
    ours = "weft-thp" if system.pages == "thp" else goal.ours
    ratios = [
        ratio
        for one in (PLACEMENTS if placement == "any" else (placement,))
        for ratio in paired_ratios(blocks, goal.case, ours, system.name, one)
    ]
    enough = len(ratios) >= MIN_PAIRS
    return (statistics.median(ratios) if enough else None), len(ratios)


def judge(
    goal: Goal, placement: str, blocks: list[Block], missing: Mapping[str, str], cores: int
) -> Verdict:
    """How `goal` stands, or the goal that will do instead if that one stands better."""
    if goal.needs_cores > cores:
        return Verdict(goal, placement, reasons=(("needs", f"{goal.needs_cores} cores"),))
    verdict = _judge_alone(goal, placement, blocks, missing)
    if goal.or_else is None or verdict.met:
        return verdict
    other = _judge_alone(goal.or_else, placement, blocks, missing)
    return min(verdict, other, key=badness)


def _judge_alone(
    goal: Goal, placement: str, blocks: list[Block], missing: Mapping[str, str]
) -> Verdict:
    """Against the better of several peers is against each of them."""
    worst: tuple[float, str] | None = None
    reasons = []
    if "weft" in missing:
        return Verdict(goal, placement, reasons=(("missing", f"weft ({missing['weft']})"),))
    for family, systems in opponents(goal.against).items():
        if family in missing:
            reasons.append(("missing", f"{family} ({missing[family]})"))
            continue
        pairs = 0
        judged = False
        for system in systems:
            ratio, count = _against(blocks, goal, placement, system)
            pairs = max(pairs, count)
            if ratio is not None:
                judged = True
                if worst is None or ratio > worst[0]:
                    worst = (ratio, system.name)
        if not judged:
            reasons.append(_why_not(goal, placement, blocks, family, pairs))
    ratio, peer = worst or (None, "")
    return Verdict(goal, placement, ratio, peer, tuple(reasons))


def _same_ranks(one: Case, other: Case) -> bool:
    return (one.ranks, one.cores) == (other.ranks, other.cores)


def _why_not(
    goal: Goal, placement: str, blocks: list[Block], family: str, pairs: int
) -> tuple[str, str]:
    what = case_name(goal.case)
    if goal.case.ranks > 2:
        what += f" with {goal.case.ranks} ranks"
    if not any(_same_ranks(block.case, goal.case) for block in blocks):
        return "not measured", f"{goal.case.ranks} ranks on {goal.case.cores} cores"
    if not any(block.case == goal.case for block in blocks):
        return "not measured", what
    if placement != "any" and not any(block.placement == placement for block in blocks):
        return "not seen", f"the {placement} placement"
    return "too few pairs", f"{pairs} with {family} at {what}"


def mark_rows(
    blocks: list[Block], missing: Mapping[str, str], cores: int | None = None
) -> list[dict]:
    """One row for each mark and placement, carrying the worst of its goals.

    `cores` are those of the machine.
    """
    cores = len(cores_here(None)) if cores is None else cores
    rows = []
    for mark in dict.fromkeys(goal.mark for goal in GOALS):
        for placement in ("near", "far", "any"):
            goals = [g for g in GOALS if g.mark == mark and placement in g.at_most]
            if goals:
                verdicts = [judge(goal, placement, blocks, missing, cores) for goal in goals]
                rows.append(row_of(mark, placement, verdicts))
    return rows
