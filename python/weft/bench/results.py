# SPDX-License-Identifier: Apache-2.0
"""From timed blocks to figures: placement, medians, paired ratios, rows, comparison of runs."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .units import format_size

# One way of the ping-pong, in ns: hyper-threads of one core, a shared cache, anything further.
SMT_BELOW = 48.0
FAR_ABOVE = 150.0
PLACEMENTS = ("near", "far", "smt", "any")


@dataclass(frozen=True, order=True)
class Case:
    """What is timed: an operation on so many bytes with so many ranks on so many cores.

    `at` is its place on an axis other than bytes: "1024" rows, a layer's name.
    """

    op: str
    bytes: int
    ranks: int
    cores: int
    at: str = ""


@dataclass(frozen=True)
class Block:
    """One system's turn at one case. `us` is the slowest rank's median time of a call.

    `path` is the way that it took, where a library chooses among several.
    """

    case: Case
    system: str
    turn: int
    placement: str
    us: float
    path: str = ""


def case_name(case: Case) -> str:
    """What people call it: "allreduce 64 KiB", "barrier", "sgemm 1024"."""
    if case.at:
        return f"{case.op} {case.at}"
    return f"{case.op} {format_size(case.bytes)}" if case.bytes else case.op


def placement_of(ns: float) -> str:
    """The class of a probe; 0 means that there was nothing to probe."""
    if ns <= 0:
        return "any"
    if ns < SMT_BELOW:
        return "smt"
    return "near" if ns <= FAR_ABOVE else "far"


def block_from(case: Case, system: str, turn: int, answers: list[list[float]]) -> Block | None:
    """The block that the ranks' answers describe.

    None if the cores moved meanwhile, or if a difference of two times came out as nothing.
    """
    before, after = answers[0][0], answers[0][1]
    placement = placement_of(before)
    if placement_of(after) != placement:
        return None
    slowest = max(answer[2] for answer in answers)
    if slowest <= 0:
        return None
    return Block(case, system, turn, placement, slowest / 1000)


def paired_ratios(
    blocks: Iterable[Block], case: Case, ours: str, theirs: str, placement: str
) -> list[float]:
    """Ours over theirs, turn by turn, where both had the same placement."""
    times: dict[str, dict[int, float]] = {ours: {}, theirs: {}}
    for block in blocks:
        if block.case == case and block.placement == placement and block.system in times:
            times[block.system][block.turn] = block.us
    both = sorted(times[ours].keys() & times[theirs].keys())
    return [times[ours][turn] / times[theirs][turn] for turn in both]


def rows_of(blocks: Iterable[Block], bench: str = "collectives") -> list[dict]:
    """One row for each case, system and placement: the median over blocks, and the spread."""
    groups: dict[tuple, list[float]] = defaultdict(list)
    paths: dict[tuple, str] = {}
    for block in blocks:
        group = (block.case, block.system, block.placement)
        groups[group].append(block.us)
        paths[group] = block.path
    rows = []
    for (case, system, placement), times in groups.items():
        label = case.op if placement == "any" else f"{case.op} {placement}"
        path = paths[case, system, placement]
        rows.append(
            {
                "bench": bench,
                "case": label,
                "system": system,
                "ranks": case.ranks,
                "bytes": case.bytes,
                "value": statistics.median(times),
                "unit": "us",
                "low": min(times),
                "high": max(times),
                "op": case.op,
                "placement": placement,
                "cores": case.cores,
                "blocks": len(times),
                **({"at": case.at} if case.at else {}),
                **({"path": path} if path else {}),
            }
        )
    return rows


def missing_row(system: str, reason: str, bench: str = "collectives") -> dict:
    """A system that did not take part, in the shape of the other rows."""
    empty = dict.fromkeys(("ranks", "bytes", "value", "low", "high"))
    return {
        "bench": bench,
        "case": "missing",
        "system": system,
        **empty,
        "unit": "us",
        "reason": reason,
    }


def load_rows(path: Path) -> list[dict]:
    """The value rows of an earlier run; ValueError if the file is not one."""
    needed = {"case", "system", "ranks", "bytes", "value", "low", "high"}
    return [row for row in load(path) if needed <= row.keys() and row["value"] is not None]


def load(path: Path) -> list[dict]:
    """All rows of an earlier run, marks and missing systems, too; ValueError if it is none."""
    try:
        rows = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: not a list of rows")
    return rows


def changes(old: list[dict], new: list[dict]) -> list[tuple[dict, float]]:
    """Rows whose whole spread lies outside the old one's, with new time over old, worst first."""

    def key(row: dict) -> tuple:
        names = ("bench", "case", "system", "ranks", "cores", "bytes", "at")
        return tuple(row.get(name) for name in names)

    before = {key(row): row for row in old}
    found = []
    for row in new:
        was = before.get(key(row))
        if was is None or row.get("value") is None:
            continue
        if row["low"] > was["high"] or row["high"] < was["low"]:
            found.append((row, row["value"] / was["value"]))
    return sorted(found, key=lambda change: -change[1])
