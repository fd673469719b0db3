# SPDX-License-Identifier: Apache-2.0
"""The marks of `weft bench hosts`: one system's time over another's in the same round."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from ..marks import MIN_PAIRS, Verdict, row_of
from ..results import Block, Case, case_name, paired_ratios
from ..units import format_size
from . import parts
from .run import HOSTS

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Goal:
    """`ours` must take at most `bound` times as long as `theirs`."""

    mark: str
    op: str
    size: int
    ranks: int
    ours: str
    theirs: str
    bound: float

    @property
    def case(self) -> Case:
        return Case(self.op, self.size, self.ranks, 0)

    @property
    def at_most(self) -> Mapping[str, float]:
        return {"any": self.bound}

    @property
    def against(self) -> str:
        return self.theirs if self.ours == "weft" else f"{self.theirs} ({self.ours})"

    def is_of(self, case: Case) -> bool:
        """Cores differ from machine to machine."""
        return (case.op, case.bytes, case.ranks) == (self.op, self.size, self.ranks)


def _gloo(size: int) -> list[Goal]:
    gloos = ("gloo", "gloo-free")
    return [Goal("H2", "allreduce", size, HOSTS, "weft", gloo, 0.5) for gloo in gloos]


GOALS = [
    Goal("H1", "allreduce_1gbit", 64 * _MIB, HOSTS, "core", "iperf3", 1.1),
    Goal("H1", "allreduce_1gbit", 64 * _MIB, HOSTS, "core-2", "core", 1.1),
    *_gloo(_KIB),
    *_gloo(64 * _KIB),
    Goal("H2", "allreduce", 16 * _MIB, HOSTS, "core", "openmpi", 1.0),
    Goal("H3", parts.START, 0, parts.START_HOSTS * parts.START_EACH, "weft", "python", 1.5),
    Goal("H4", parts.ROWS, parts.ROW * parts.IDS, 2, "weft", "messages", 1 / 0.7),
    Goal("H4", parts.ONE_ROW, parts.ROW, 2, "weft", "messages", 2.0),
]


def judge(goal: Goal, blocks: list[Block], missing: Mapping[str, str]) -> Verdict:
    for name in (goal.ours, goal.theirs):
        if name in missing:
            return Verdict(goal, "any", reasons=(("missing", f"{name} ({missing[name]})"),))
    here = [block for block in blocks if goal.is_of(block.case)]
    what = case_name(goal.case)
    for name in (goal.ours, goal.theirs):
        if not any(block.system == name for block in here):
            return Verdict(goal, "any", reasons=(("not measured", f"{name} in {what}"),))
    found = paired_ratios(here, here[0].case, goal.ours, goal.theirs, "any")
    if len(found) < MIN_PAIRS:
        reason = ("too few rounds", f"{len(found)} with {goal.against} in {what}")
        return Verdict(goal, "any", reasons=(reason,))
    return Verdict(goal, "any", statistics.median(found), goal.against)


def mark_rows(blocks: list[Block], missing: Mapping[str, str]) -> list[dict]:
    """One row for each mark, carrying the worst of its goals."""
    rows = []
    for mark in dict.fromkeys(goal.mark for goal in GOALS):
        verdicts = [judge(goal, blocks, missing) for goal in GOALS if goal.mark == mark]
        rows.append(row_of(mark, "any", verdicts))
    return rows


def goal_lines(blocks: list[Block]) -> list[tuple[str, Goal, float]]:
    """Every goal that could be judged: its name, itself, its ratio."""
    judged = [(goal, judge(goal, blocks, {}).ratio) for goal in GOALS]
    return [
        (f"{goal.mark} {goal.op}{' ' + format_size(goal.size) if goal.size else ''}", goal, ratio)
        for goal, ratio in judged
        if ratio is not None
    ]
