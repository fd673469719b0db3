# SPDX-License-Identifier: Apache-2.0
"""The marks of `weft bench gather`; those of a GPU are in `gpu`.

G1a and G1b compare weft's time with that of `index_select(out=)`, round by round. G2 compares what
two processes read of one region at once with what one reads alone; where they do not reach that,
memory must be the limit: they read as much as both can copy.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from ..marks import MIN_PAIRS, Verdict, row_of
from ..results import Block, Case, paired_ratios
from ..runner import cores_here
from .run import OPERATIONS, SHARED, SHARED_SIZES

# On so many cores memory is the limit, and the goal is not to be slower.
MANY_CORES = 16
_AT_MOST = {
    False: {64: 0.40, 256: 0.70, 1024: 0.75, 2048: 1.0},
    True: {64: 0.36, 256: 0.72, 1024: 0.72, 2048: 0.9},
}
TWICE = 1.8
# Of what two processes can copy at once.
LIMIT = 0.9


@dataclass(frozen=True)
class Goal:
    """weft's time over that of `against` must be at most `bound` in this case."""

    case: Case
    bound: float
    against: str = "torch"

    @property
    def at_most(self) -> Mapping[str, float]:
        return {"any": self.bound}


def goals(huge: bool, cores: int) -> list[Goal]:
    """G1a, or G1b: every size, with little and with much output."""
    return [
        Goal(Case(op, size, 1, cores), 1.0 if cores >= MANY_CORES else bound)
        for op, operation in OPERATIONS.items()
        if operation.huge == huge and not operation.updates
        for size, bound in _AT_MOST[huge].items()
    ]


def judge(goal: Goal, blocks: list[Block], missing: Mapping[str, str]) -> Verdict:
    for name in ("weft", goal.against, *(["huge pages"] if "huge" in goal.case.op else [])):
        if name in missing:
            return Verdict(goal, "any", reasons=(("missing", f"{name} ({missing[name]})"),))
    ratios = paired_ratios(blocks, goal.case, "weft", goal.against, "any")
    if len(ratios) < MIN_PAIRS:
        return Verdict(goal, "any", reasons=(("not measured", _name(goal.case)),))
    return Verdict(goal, "any", statistics.median(ratios), goal.against)


def _name(case: Case) -> str:
    return f"{case.op} {case.bytes} B"


def _median(blocks: list[Block], system: str, row: int, ranks: int) -> float | None:
    case = Case(SHARED, row, ranks, ranks)
    times = [b.us for b in blocks if b.case == case and b.system == system]
    return statistics.median(times) if len(times) >= MIN_PAIRS else None


@dataclass(frozen=True)
class Sharing:
    """Rows of one size: what two processes reach, over one, and over what both can copy."""

    row: int
    twice: float
    of_copy: float

    @property
    def met(self) -> bool:
        return self.twice >= TWICE or self.of_copy >= LIMIT


def sharing(blocks: list[Block], row: int) -> Sharing | None:
    """None if it was not measured."""
    alone, both = (_median(blocks, "weft", row, ranks) for ranks in (1, 2))
    copied = _median(blocks, "copy", row, 2)
    if alone is None or both is None or copied is None:
        return None
    return Sharing(row, alone / both, copied / both)


def _shared_row(blocks: list[Block]) -> dict:
    found = [sharing(blocks, row) for row in SHARED_SIZES]
    known = [one for one in found if one is not None]
    worst = min(known, key=lambda one: (one.met, one.twice), default=None)
    row = {
        "mark": "G2",
        "ratio": worst and worst.twice,
        "goal": TWICE,
        "direction": ">=",
        "met": all(one.met for one in known) if len(known) == len(found) else None,
        "placement": "any",
        "case": SHARED if worst is None else f"{SHARED} {worst.row} B",
        "ranks": 2,
        "against": "one process, or what both can copy",
        "reason": "" if len(known) == len(found) else "not measured: two processes",
    }
    if worst is not None:
        row["of_copy"] = worst.of_copy
    return row


def mark_rows(
    blocks: list[Block], missing: Mapping[str, str], cores: int | None = None
) -> list[dict]:
    """One row for each mark, carrying the worst of its goals; `cores` are those of the machine."""
    cores = len(cores_here(None)) if cores is None else cores
    rows = []
    for mark, huge in (("G1a", False), ("G1b", True)):
        verdicts = [judge(goal, blocks, missing) for goal in goals(huge, cores)]
        rows.append(row_of(mark, "any", verdicts))
    return [*rows, _shared_row(blocks)]
