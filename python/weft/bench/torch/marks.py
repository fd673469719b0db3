# SPDX-License-Identifier: Apache-2.0
"""The marks of `weft bench torch`.

A goal compares weft's time in a round with a sum of others' times in the same round: gloo's, or
what torch costs alone (`noop`) and so many times what the library costs from C (`core`).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..marks import MIN_PAIRS, Verdict, badness, row_of
from ..results import Block, Case, case_name
from ..runner import cores_here
from .operations import MOVING, OPERATIONS
from .run import GLOOS, MANY_CORES, MANY_RANKS, SMALL

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Goal:
    """The time of `ours` in `case` must be at most `bound` times the sum of `times`.

    Each of `times` is (factor, system), taken from `other` instead of `case` if that is given.
    """

    mark: str
    case: Case
    bound: float
    times: tuple[tuple[float, str], ...]
    other: Case | None = None
    from_us: float = 0.0  # counts only where the sum is at least this
    needs_cores: int = 0  # of the machine
    or_else: Goal | None = None  # will do instead
    ours: str = "weft"

    @property
    def at_most(self) -> Mapping[str, float]:
        return {"any": self.bound}

    @property
    def against(self) -> str:
        names = [name if factor == 1 else f"{factor:g} {name}" for factor, name in self.times]
        what = " + ".join(names)
        return what if self.other is None else f"{what} ({case_name(self.other)})"


_GLOO = ((1.0, "gloo"),)


def _pair(op: str, size: int = 0) -> Case:
    return Case(op, size, 2, 2)


def _medium_goals() -> list[Goal]:
    """T2. The 5 % are what two measurements of the same thing may differ by."""
    goals = []
    for size in OPERATIONS["all_reduce"].sizes:
        if not _KIB <= size <= SMALL:
            continue
        case = _pair("all_reduce", size)
        floor = Goal("T2", case, 1.0, ((1.0, "noop"), (1.5, "core")))
        goals.append(Goal("T2", case, 1 / 8, _GLOO, or_else=floor))
        half = _pair("all_reduce_bf16", size // 2)
        goals.append(Goal("T2", half, 1.05, ((1.0, "weft"),), other=case))
    return goals


def _large_goals() -> list[Goal]:
    goals = []
    for op in (
        "all_reduce",
        "all_gather_into_tensor",
        "reduce_scatter_tensor",
        "all_to_all_single",
        "broadcast_tensor",
    ):
        for size in (16 * _MIB, 64 * _MIB, 256 * _MIB):
            hardest = op == "all_reduce" and size == 256 * _MIB
            goals.append(Goal("T3", _pair(op, size), 1 / 4 if hardest else 1 / 3, _GLOO))
    return goals


def _shared_goals() -> list[Goal]:
    """T5. Tensors in the arena."""
    goals = []
    for op in MOVING:
        for size in OPERATIONS[op].sizes:
            goals.append(Goal("T5", _pair(op, size), 1.2, ((1.0, "limit"),), ours="weft-shared"))
            if op == "all_to_all_single":
                goals.append(Goal("T5", _pair(op, size), 1 / 4, _GLOO, ours="weft-shared"))
    return goals


GOALS = [
    Goal("T1", _pair("all_reduce", 4), 1.7, ((1.0, "noop"),)),
    Goal("T1", _pair("all_reduce", 4), 1 / 15, _GLOO, from_us=100),
    *_medium_goals(),
    *_large_goals(),
    *_shared_goals(),
    Goal("T4a", _pair("llm_token"), 1 / 2, _GLOO),
    Goal("T4a", _pair("llm_token_dtensor"), 1 / 2, _GLOO),
    Goal("T4b", _pair("ddp_step"), 0.6, _GLOO),
    Goal("T4b", _pair("fsdp2_step"), 0.6, _GLOO),
    Goal(
        "T4c",
        Case("all_reduce", 64 * _KIB, MANY_RANKS, MANY_RANKS),
        1.0,
        ((1.0, "noop"), (2.0, "core")),
        needs_cores=MANY_CORES,
    ),
]


def _by_turn(blocks: list[Block], system: str, case: Case) -> dict[int, Block]:
    return {b.turn: b for b in blocks if b.system == system and b.case == case}


def _sums(goal: Goal, blocks: list[Block]) -> list[tuple[float, float]]:
    """Our time and the sum, for each round in which all that have a placement had the same."""
    ours = _by_turn(blocks, goal.ours, goal.case)
    others = [
        (factor, _by_turn(blocks, name, goal.other or goal.case)) for factor, name in goal.times
    ]
    pairs = []
    for turn, mine in ours.items():
        parts = [(factor, times[turn]) for factor, times in others if turn in times]
        comparable = all(part.placement in ("any", mine.placement) for _, part in parts)
        if comparable and len(parts) == len(others):
            pairs.append((mine.us, sum(factor * part.us for factor, part in parts)))
    return pairs


def _why_not(goal: Goal, blocks: list[Block], pairs: int) -> tuple[str, str]:
    what = case_name(goal.case)
    if goal.case.ranks > 2:
        what += f" with {goal.case.ranks} ranks"
    if not any(block.case == goal.case for block in blocks):
        return "not measured", what
    return "too few rounds", f"{pairs} with {goal.against} at {what}"


def _ways(goal: Goal) -> list[Goal]:
    """Against gloo is against each way in which it ran."""
    ways = [
        replace(
            goal,
            times=tuple((factor, gloo if name == "gloo" else name) for factor, name in goal.times),
        )
        for gloo in GLOOS
    ]
    return list(dict.fromkeys(ways))


def judge_alone(
    goal: Goal, blocks: list[Block], missing: Mapping[str, str], cores: int
) -> Verdict | None:
    """How a goal stands; None if it does not count here."""
    verdicts = []
    for way in _ways(goal):
        verdict = _judge_way(way, blocks, missing, cores)
        if verdict is None:
            return None
        verdicts.append(verdict)
    worst = max(verdicts, key=lambda verdict: verdict.ratio or 0)
    reasons = dict.fromkeys(reason for verdict in verdicts for reason in verdict.reasons)
    return replace(worst, reasons=tuple(reasons))


def _judge_way(
    goal: Goal, blocks: list[Block], missing: Mapping[str, str], cores: int
) -> Verdict | None:
    if goal.needs_cores > cores:
        return Verdict(goal, "any", reasons=(("needs", f"{goal.needs_cores} cores"),))
    for name in (goal.ours, *(name for _, name in goal.times)):
        if name in missing:
            return Verdict(goal, "any", reasons=(("missing", f"{name} ({missing[name]})"),))
    pairs = _sums(goal, blocks)
    if len(pairs) < MIN_PAIRS:
        return Verdict(goal, "any", reasons=(_why_not(goal, blocks, len(pairs)),))
    if statistics.median(total for _, total in pairs) < goal.from_us:
        return None
    ratio = statistics.median(mine / total for mine, total in pairs)
    return Verdict(goal, "any", ratio, goal.against)


def judge(
    goal: Goal, blocks: list[Block], missing: Mapping[str, str], cores: int
) -> Verdict | None:
    """How `goal` stands, or the goal that will do instead if that one stands better."""
    verdict = judge_alone(goal, blocks, missing, cores)
    if goal.or_else is None or verdict is None or verdict.met:
        return verdict
    other = judge_alone(goal.or_else, blocks, missing, cores)
    return verdict if other is None else min(verdict, other, key=badness)


def _as_rate(row: dict) -> dict:
    """A mark that speaks of tokens a second, not of the time for one."""
    ratio = row["ratio"] and 1 / row["ratio"]
    return row | {"ratio": ratio, "goal": 1 / row["goal"], "direction": ">="}


def mark_rows(
    blocks: list[Block], missing: Mapping[str, str], cores: int | None = None
) -> list[dict]:
    """One row for each mark, carrying the worst of its goals; `cores` are those of the machine."""
    cores = len(cores_here(None)) if cores is None else cores
    rows = []
    for mark in dict.fromkeys(goal.mark for goal in GOALS):
        verdicts = [judge(g, blocks, missing, cores) for g in GOALS if g.mark == mark]
        row = row_of(mark, "any", [verdict for verdict in verdicts if verdict is not None])
        rows.append(_as_rate(row) if mark == "T4a" else row)
    return rows
