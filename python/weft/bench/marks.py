# SPDX-License-Identifier: Apache-2.0
"""The marks: ratios to the peers of the same run that weft is to reach.

A mark has several goals, one for each case. It is met when every goal is; its row carries the goal
that is furthest from being met. What could not be judged is told, never guessed: a goal fails on
any one peer, but it is met only against all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from .results import Case, case_name

MIN_PAIRS = 3


class Aim(Protocol):
    """What a verdict has to know of a goal, whatever kind it is."""

    @property
    def case(self) -> Case: ...

    @property
    def at_most(self) -> Mapping[str, float]: ...

    @property
    def against(self) -> str: ...


@dataclass(frozen=True)
class Verdict:
    """How one goal stands in one placement.

    Each of `reasons` is why it could not be judged in full, and what that is about.
    """

    goal: Aim
    placement: str
    ratio: float | None = None
    peer: str = ""
    reasons: tuple[tuple[str, str], ...] = ()

    @property
    def bound(self) -> float:
        return self.goal.at_most[self.placement]

    @property
    def met(self) -> bool | None:
        if self.ratio is not None and self.ratio > self.bound:
            return False
        return None if self.reasons else True


def badness(verdict: Verdict) -> tuple[int, float]:
    """Met is better than not judged, which may still be met, and that better than not met."""
    order = {True: 0, None: 1, False: 2}
    return order[verdict.met], 0.0 if verdict.ratio is None else verdict.ratio / verdict.bound


def row_of(mark: str, placement: str, verdicts: list[Verdict]) -> dict:
    judged = [verdict for verdict in verdicts if verdict.ratio is not None]
    worst = max(judged, key=lambda v: (v.ratio or 0) / v.bound, default=verdicts[0])
    states = [verdict.met for verdict in verdicts]
    met = False if False in states else None if None in states else True
    case = worst.goal.case
    reasons: dict[str, dict[str, None]] = {}
    for why, what in (reason for verdict in verdicts for reason in verdict.reasons):
        reasons.setdefault(why, {})[what] = None
    return {
        "mark": mark,
        "ratio": worst.ratio,
        "goal": worst.bound,
        "direction": "<=",
        "met": met,
        "placement": placement,
        "case": case_name(case),
        "ranks": case.ranks,
        "against": worst.peer or worst.goal.against,
        "reason": "; ".join(f"{why}: {', '.join(what)}" for why, what in reasons.items()),
    }
