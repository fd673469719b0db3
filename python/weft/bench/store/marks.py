# SPDX-License-Identifier: Apache-2.0
"""The marks of `weft bench store`.

Goals compare times of the same round. "At least 0.6 of the speed of another" is that one's time
over weft's; "at most 3 times the time" is weft's time over that one's.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from ..marks import MIN_PAIRS
from ..results import Block, Case, case_name, paired_ratios
from .cases import (
    HOT,
    HOT_ROW,
    NET_BATCH,
    NET_DEPTH,
    NET_ONE,
    NET_ROWS,
    NET_STREAM,
    ZIPF_ROW,
    case_of,
)
from .pair import Footprint


@dataclass(frozen=True)
class Goal:
    """Against the fastest of `against`; `at_least` is a share of its speed, else of its time."""

    mark: str
    case: Case
    against: tuple[str, ...]
    bound: float
    at_least: bool = True
    ours: str = "weft"


_P1 = {64: 0.6, 256: 0.8, 1024: 0.8, 2048: 0.8}
_P6A = {64: 0.6, 256: 0.7, 512: 0.8, 2048: 0.8}
_ADDERS = ("loop", "torch")

GOALS = [
    *(Goal("P1", case_of("pull", row), ("gather",), bound) for row, bound in _P1.items()),
    *(Goal("P1", case_of("pull-one", row), ("loop",), 3.0, False) for row in (64, 256)),
    *(Goal("P1", case_of("pull-one-python", row), ("torch",), 1.0, False) for row in (64, 256)),
    *(Goal("P2", case_of("push", row), _ADDERS, 0.5) for row in _P1),
    Goal("P3", case_of(HOT, HOT_ROW), ("disjoint",), 0.5, ours="same"),
    *(Goal("P4", case_of(NET_ONE, row), ("transport",), 3.0, False) for row in NET_ROWS),
    *(Goal("P4", case_of(NET_DEPTH, row), ("transport",), 0.7) for row in NET_ROWS),
    Goal("P5", case_of(NET_STREAM, ZIPF_ROW), ("one-host",), 0.5),
    *(Goal("P6a", case_of("pull-million", row), ("loop",), bound) for row, bound in _P6A.items()),
    *(Goal("P6a", case_of("push-million", row), ("loop",), 0.5) for row in _P6A),
    *(Goal("P6b", case_of(NET_ONE, row), ("tcp",), 2.0, False) for row in NET_ROWS),
    *(Goal("P6b", case_of(NET_BATCH, row), ("tcp",), 2.5, False) for row in NET_ROWS),
]


@dataclass(frozen=True)
class Verdict:
    """How a goal stands; without a ratio, why it could not be judged."""

    goal: Goal
    ratio: float | None = None
    against: str = ""
    reason: str = ""

    @property
    def badness(self) -> float:
        """Above 1: not met."""
        if self.ratio is None:
            return 0.0
        goal = self.goal
        return goal.bound / self.ratio if goal.at_least else self.ratio / goal.bound

    @property
    def met(self) -> bool | None:
        return None if self.ratio is None else self.badness <= 1


def judge(goal: Goal, blocks: list[Block], missing: Mapping[str, str]) -> Verdict:
    for name in (goal.ours, *goal.against):
        if name in missing:
            return Verdict(goal, reason=f"missing: {name} ({missing[name]})")
    worst: Verdict | None = None
    for name in goal.against:
        times = paired_ratios(blocks, goal.case, goal.ours, name, "any")
        if len(times) < MIN_PAIRS:
            return Verdict(goal, reason=f"not measured: {case_name(goal.case)}")
        middle = statistics.median(times)
        found = Verdict(goal, 1 / middle if goal.at_least else middle, name)
        if worst is None or found.badness > worst.badness:
            worst = found
    assert worst is not None
    return worst


def _row(mark: str, verdicts: list[Verdict]) -> dict:
    worst = max(verdicts, key=lambda verdict: verdict.badness)
    states = [verdict.met for verdict in verdicts]
    goal = worst.goal
    return {
        "mark": mark,
        "ratio": worst.ratio,
        "goal": goal.bound,
        "direction": ">=" if goal.at_least else "<=",
        "met": False if False in states else None if None in states else True,
        "placement": "any",
        "case": case_name(goal.case),
        "ranks": goal.case.ranks,
        "against": worst.against or " and ".join(goal.against),
        "reason": "; ".join(dict.fromkeys(v.reason for v in verdicts if v.reason)),
    }


def mark_rows(blocks: list[Block], missing: Mapping[str, str]) -> list[dict]:
    """One row for each mark, carrying the worst of its goals.

    Rows of 2 KiB of a large table are for full runs: a quick one is judged without them.
    """
    measured = {block.case for block in blocks}
    rows = []
    for mark in dict.fromkeys(goal.mark for goal in GOALS):
        goals = [goal for goal in GOALS if goal.mark == mark]
        needed = [g for g in goals if g.case in measured or not full_only(g.case)]
        rows.append(_row(mark, [judge(goal, blocks, missing) for goal in needed]))
    return rows


def footprint_row(found: Footprint | None) -> dict:
    """P6c: the worst of what a key takes and of what an idle host does; None: not measured.

    Bytes are judged to a tenth: what processes need for themselves changes by some KiB meanwhile.
    """
    limits = [("bytes beside a present key's row", 0.0, 16.0)]
    if found is not None:
        limits = [
            ("bytes beside a present key's row", round(max(found.home, found.moved), 1), 16.0),
            ("bytes of an absent key", round(found.absent, 1), 4.0),
            ("share of a core, idle", found.idle, 0.01),
            ("share of a core, idle with copies", found.idle_with_copies, 0.01),
        ]
    what, value, goal = max(limits, key=lambda limit: limit[1] / limit[2])
    return {
        "mark": "P6c",
        "ratio": None if found is None else value,
        "goal": goal,
        "direction": "<=",
        "met": None if found is None else value <= goal,
        "placement": "any",
        "case": what,
        "ranks": 2,
        "against": "nothing",
        "reason": "not measured: memory" if found is None else "",
    }


LOCAL_GOAL = 0.95


def local_row(shares: list[float]) -> dict:
    """P5: the share of accesses that were local, of the round with the least; [] if none was."""
    least = min(shares) if shares else None
    return {
        "mark": "P5 local",
        "ratio": least,
        "goal": LOCAL_GOAL,
        "direction": ">=",
        "met": None if least is None else least >= LOCAL_GOAL,
        "placement": "any",
        "case": "local accesses of a stream",
        "ranks": 2,
        "against": "nothing",
        "reason": "not measured: network" if least is None else "",
    }


def full_only(case: Case) -> bool:
    """Does a quick run leave it out?"""
    net = case.op in (NET_ONE, NET_BATCH, NET_DEPTH) and case.bytes == NET_ROWS[0]
    return net or (case.op in ("pull", "push") and case.bytes == 2048)
