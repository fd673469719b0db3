# SPDX-License-Identifier: Apache-2.0
"""The marks of `weft bench mpi`.

A goal compares weft's time in a round with a sum of others' times in the same round: so many of the
core's allreduces, and 1.3 times what torch takes for a node that only clones.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..marks import MIN_PAIRS, Verdict, row_of
from ..results import Block, Case, case_name
from .run import CALLS_OF_CORE, GLOOS, RANKS

_MIB = 1 << 20
# Which nodes a recorded ring has: two that start, two that wait.
RING_CALLS = 4
NODE = 1.3


@dataclass(frozen=True)
class Term:
    """So many times what a system took in a case."""

    factor: float
    system: str
    case: Case


@dataclass(frozen=True)
class Goal:
    """weft's time in `case` must be at most `bound` times the sum of `terms`."""

    mark: str
    case: Case
    bound: float
    terms: tuple[Term, ...]

    @property
    def at_most(self) -> Mapping[str, float]:
        return {"any": self.bound}

    @property
    def against(self) -> str:
        names = []
        for term in self.terms:
            name = term.system if term.factor == 1 else f"{term.factor:g} {term.system}"
            names.append(name if term.case == self.case else f"{name} ({case_name(term.case)})")
        return " + ".join(names)


def _case(op: str, size: int) -> Case:
    return Case(op, size, RANKS, RANKS)


def _node_goal(op: str) -> Goal:
    case = _case(op, 4)
    core = Term(CALLS_OF_CORE[op], "core", case)
    return Goal("M1", case, 1.0, (core, Term(NODE, "clone", case)))


def _gloo_goals(op: str) -> list[Goal]:
    case = _case(op, 4)
    return [Goal("M1", case, 1 / 25, (Term(1, gloo, case),)) for gloo in GLOOS]


def _large_goal(size: int) -> Goal:
    """Not against one buffer in place, which a cache holds where it does not hold four."""
    case = _case("forward_backward", size)
    return Goal("M2", case, 1.15, (Term(1, "kept", case),))


def _recorded_goal(op: str, size: int, calls: int) -> Goal:
    """A little more than the same without recording."""
    node = Term(calls * NODE, "clone", _case("forward", 4))
    return Goal("M3", _case(f"{op}_grad", size), 1.0, (Term(1, "weft", _case(op, size)), node))


GOALS = [
    _node_goal("forward"),
    _node_goal("forward_backward"),
    *_gloo_goals("forward"),
    *_gloo_goals("forward_backward"),
    _large_goal(4 * _MIB),
    _large_goal(64 * _MIB),
    Goal("M3", _case("alltoall", 8), 4.0, (Term(1, "mpi4py", _case("alltoall", 8)),)),
    Goal("M3", _case("ring", 4), 6.0, (Term(1, "mpi4py", _case("ring", 4)),)),
    _recorded_goal("alltoall", 8, 1),
    _recorded_goal("ring", 4, RING_CALLS),
]


def _by_turn(blocks: list[Block], system: str, case: Case) -> dict[int, Block]:
    return {b.turn: b for b in blocks if b.system == system and b.case == case}


def scaled(block: Block) -> float:
    """A block of the core is one call, whatever the others do in that case."""
    calls = CALLS_OF_CORE[block.case.op] if block.system == "core" else 1
    return block.us * calls


def ratios(goal: Goal, blocks: list[Block]) -> list[float]:
    """weft's time over the sum, in each round in which all had the same placement."""
    others = [(term.factor, _by_turn(blocks, term.system, term.case)) for term in goal.terms]
    found = []
    for turn, mine in _by_turn(blocks, "weft", goal.case).items():
        parts = [(factor, times[turn]) for factor, times in others if turn in times]
        comparable = all(part.placement in ("any", mine.placement) for _, part in parts)
        if comparable and len(parts) == len(others):
            found.append(mine.us / sum(factor * part.us for factor, part in parts))
    return found


def judge(goal: Goal, blocks: list[Block], missing: Mapping[str, str]) -> Verdict:
    for name in ("weft", *(term.system for term in goal.terms)):
        if name in missing:
            return Verdict(goal, "any", reasons=(("missing", f"{name} ({missing[name]})"),))
    found = ratios(goal, blocks)
    if len(found) >= MIN_PAIRS:
        return Verdict(goal, "any", statistics.median(found), goal.against)
    what = case_name(goal.case)
    if not any(block.case == goal.case for block in blocks):
        return Verdict(goal, "any", reasons=(("not measured", what),))
    reason = ("too few rounds", f"{len(found)} with {goal.against} at {what}")
    return Verdict(goal, "any", reasons=(reason,))


def mark_rows(blocks: list[Block], missing: Mapping[str, str]) -> list[dict]:
    """One row for each mark, carrying the worst of its goals."""
    rows = []
    for mark in dict.fromkeys(goal.mark for goal in GOALS):
        verdicts = [judge(goal, blocks, missing) for goal in GOALS if goal.mark == mark]
        rows.append(row_of(mark, "any", verdicts))
    return rows


def goal_lines(blocks: list[Block]) -> list[tuple[Goal, float]]:
    """Every goal that could be judged, with its ratio."""
    judged = [(goal, judge(replace(goal), blocks, {}).ratio) for goal in GOALS]
    return [(goal, ratio) for goal, ratio in judged if ratio is not None]
