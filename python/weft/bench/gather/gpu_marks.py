# SPDX-License-Identifier: Apache-2.0
"""The marks G3a to G5 of `weft bench gather`: what a GPU must reach.

G3a compares a gather with a copy, G3b with torch and odd sizes with the next multiple of 16, G4
sorted with unsorted ids of a table on the host, G5 an optimizer with its bytes at copy speed.
"""

from __future__ import annotations

from collections.abc import Iterable

ODD_SIZES = {20: 32, 36: 48, 100: 112, 500: 512}  # and the next multiple of 16
COPY_GOALS = {64: 0.60, 128: 0.80, 256: 0.90, 512: 0.90, 1024: 0.90, 2048: 0.90, 4096: 0.90}
TORCH_GOALS = {64: 11.0, 128: 7.0, 512: 2.0}
HOST_GOALS = {64: 3.0, 128: 3.0, 256: 3.0, 512: 1.7}
UPDATE_GOAL = 1.3
ODD_GOAL = 1.25
MARKS = ("G3a", "G3b", "G4", "G5")


def _mark(name: str, judged: Iterable[tuple[str, float, float, str]], direction: str) -> dict:
    """A row for a mark: the worst of (case, ratio, goal, against)."""

    def badness(one: tuple[str, float, float, str]) -> float:
        return one[1] / one[2] if direction == "<=" else one[2] / one[1]

    found = list(judged)
    if not found:
        return unjudged(name, "not measured")
    case, ratio, goal, against = max(found, key=badness)
    met = all(badness(one) <= 1 for one in found)
    return {
        "mark": name, "ratio": ratio, "goal": goal, "direction": direction, "met": met,
        "placement": "any", "case": case, "ranks": 1, "against": against, "reason": "",
    }  # fmt: skip


def unjudged(name: str, reason: str) -> dict:
    """A mark that this machine cannot judge."""
    return {
        "mark": name, "ratio": None, "goal": {"G5": UPDATE_GOAL}.get(name, 1.0), "direction": ">=",
        "met": None, "placement": "any", "case": "-", "ranks": 1, "against": "-", "reason": reason,
    }  # fmt: skip


def marks_of(
    near: dict[int, dict[str, float]],
    far: dict[int, dict[str, float]],
    ratios: dict[tuple[str, int], float],
) -> list[dict]:
    """All marks, from medians near (in GPU memory) and far (on the host), and updates' ratios."""
    copy = [
        (f"gather {size} B", near[size]["copy"] / near[size]["weft"], goal, "copy")
        for size, goal in COPY_GOALS.items()
        if size in near
    ]
    peers = [
        (f"gather {size} B", near[size]["torch"] / near[size]["weft"], goal, "torch")
        for size, goal in TORCH_GOALS.items()
        if size in near
    ]
    # Told as rates, like the others: of the next size's, at least 1 / 1.25.
    odd = [
        (f"gather {a} B", near[b]["weft"] / near[a]["weft"], 1 / ODD_GOAL, f"{b} B")
        for a, b in ODD_SIZES.items()
        if a in near and b in near
    ]
    host_ = [
        (f"host {s} B", far[s]["weft unsorted"] / far[s]["weft sorted"], goal, "unsorted")
        for s, goal in HOST_GOALS.items()
        if s in far
    ]
    fused = [
        (f"{kind} {size} B", ratio, UPDATE_GOAL, "bytes at copy speed")
        for (kind, size), ratio in ratios.items()
        if kind in ("adagrad", "adam")
    ]
    rows = [_mark("G3a", copy, ">="), _mark("G3b", [*peers, *odd], ">=")]
    rows += [_mark("G4", host_, ">="), _mark("G5", fused, "<=")]
    for row, everything in zip(rows, (copy, [*peers, *odd], host_, fused), strict=True):
        row["all"] = [{"case": c, "ratio": r, "goal": g, "against": a} for c, r, g, a in everything]
    return rows
