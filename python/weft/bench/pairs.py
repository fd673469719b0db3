# SPDX-License-Identifier: Apache-2.0
"""Marks that compare two systems of one case, and the tables of such benchmarks."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .marks import MIN_PAIRS, Verdict, row_of
from .report import cell, table
from .results import Block, Case, case_name, paired_ratios
from .units import format_size


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


def judge(goal: Goal, blocks: Sequence[Block], missing: Mapping[str, str]) -> Verdict:
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


def mark_rows(
    goals: Sequence[Goal], blocks: Sequence[Block], missing: Mapping[str, str]
) -> list[dict]:
    """One row for each mark, carrying the worst of its goals."""
    rows = []
    for mark in dict.fromkeys(goal.mark for goal in goals):
        verdicts = [judge(goal, blocks, missing) for goal in goals if goal.mark == mark]
        rows.append(row_of(mark, "any", verdicts))
    return rows


def _times(blocks: Sequence[Block], names: Iterable[str], operations: Iterable[str]) -> str:
    present = [name for name in names if any(block.system == name for block in blocks)]
    order = list(operations)
    several = len({block.case.ranks for block in blocks}) > 1
    lines = []
    cases = {block.case for block in blocks}
    for case in sorted(cases, key=lambda c: (order.index(c.op), c.ranks, c.bytes)):
        here = [block for block in blocks if block.case == case]
        times = [cell([b.us for b in here if b.system == name]) for name in present]
        who = f", {case.ranks} ranks" if several else ""
        lines.append([f"{case_name(case)}{who}", *times])
    return table(["", *present], lines)


def _goals(goals: Sequence[Goal], blocks: Sequence[Block]) -> str:
    """Every goal that could be judged: what it is about, its ratio and its bound."""
    judged = [(goal, judge(goal, blocks, {}).ratio) for goal in goals]
    lines = [
        [
            f"{goal.mark} {goal.op}{' ' + format_size(goal.size) if goal.size else ''}",
            goal.ours,
            f"{ratio:.3f}",
            f"{goal.bound:.3g}",
            goal.theirs,
        ]
        for goal, ratio in judged
        if ratio is not None
    ]
    return table(["", "time of", "ratio", "goal", "over"], lines, left=2) if lines else ""


def figures(
    blocks: Sequence[Block],
    operations: Mapping[str, str],
    systems: Mapping[str, str],
    goals: Sequence[Goal],
) -> str:
    """Median and spread of each case; what it was; and how each goal stands.

    `operations` and `systems` say what each of them is, in their order.
    """
    if not blocks:
        return ""
    ran, seen = ({b.case.op for b in blocks}, {b.system for b in blocks})
    what = [f"{op}: {text}" for op, text in operations.items() if op in ran]
    who = [f"{name}: {text}" for name, text in systems.items() if name in seen]
    texts = (_times(blocks, systems, operations), "\n".join([*what, *who]), _goals(goals, blocks))
    return "\n\n".join(filter(None, texts))
