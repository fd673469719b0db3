# SPDX-License-Identifier: Apache-2.0
"""The tables, rows and plots of dense arithmetic: rates, not times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ..report import table
from ..results import Block, Case, paired_ratios, rows_of
from ..view import View
from .systems import LIMIT, TORCH, lines
from .work import Plan


def threads_text(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def speed_of(blocks: list[Block], case: Case, system: str, against: str) -> float | None:
    """How much faster it is, in the median over rounds."""
    ratios = paired_ratios(blocks, case, against, system, "any")
    return statistics.median(ratios) if ratios else None


def rows(plan: Plan, blocks: list[Block]) -> list[dict]:
    """As those of the other programs, with rates, and the share of the limit and of PyTorch's own.

    `bytes` is that of operands and result.
    """
    found = rows_of(blocks, plan.name)
    for row in found:
        case = Case(row["op"], row["bytes"], row["ranks"], row["cores"], row["at"])
        work = plan.work_of(case)
        row["threads"] = row["cores"]
        row["dtype"] = work.dtype
        row["shape"] = list(work.shape)
        row["flops"] = work.flops
        row["gflops"] = work.flops / row["value"] / 1000
        row["of_torch"] = speed_of(blocks, case, row["system"], TORCH)
        row["of_limit"] = speed_of(blocks, case, row["system"], LIMIT)
    return found


def _rate(gflops: float) -> str:
    """Three digits."""
    return f"{gflops:.0f}" if gflops >= 99.5 else f"{gflops:#.3g}"


def _cell(blocks: list[Block], case: Case, system: str, flops: float) -> str:
    """GFLOP/s, how far the rounds lie around it, and how it compares with PyTorch's own."""
    times = [b.us for b in blocks if b.case == case and b.system == system]
    if not times:
        return "-"
    middle = statistics.median(times)
    low, high = ((middle / end - 1) * 100 for end in (max(times), min(times)))
    text = f"{_rate(flops / middle / 1000)} {low:+.0f}/{high:+.0f}%"
    ratio = speed_of(blocks, case, system, TORCH)
    if system in (TORCH, LIMIT) or ratio is None:
        return text
    return f"{text} {ratio:.2f}x"


def _best(blocks: list[Block], case: Case, names: Sequence[str]) -> str:
    """The largest share of the limit."""
    shares = [speed_of(blocks, case, name, LIMIT) for name in names if name != LIMIT]
    return f"{max(filter(None, shares)):.0%}" if any(shares) else "-"


def _group(plan: Plan, blocks: list[Block]) -> str:
    names = list(lines({block.system for block in blocks}))
    with_path = any(block.path for block in blocks)
    body = []
    for case in dict.fromkeys(block.case for block in blocks):
        flops = plan.work_of(case).flops
        cells = [_cell(blocks, case, name, flops) for name in names]
        paths = sorted({b.path for b in blocks if b.case == case and b.path})
        body.append(
            [
                case.at,
                *([", ".join(paths)] if with_path else []),
                *cells,
                *([_best(blocks, case, names)] if LIMIT in names else []),
            ]
        )
    short = [name.rsplit("/", 1)[-1] for name in names]
    head = ["", *(["path"] if with_path else []), *short, *(["best"] if LIMIT in names else [])]
    return table(head, body, left=2 if with_path else 1)


def figures(plan: Plan, blocks: list[Block]) -> str:
    """A table for each operation and number of threads."""
    parts = []
    for op, cores in dict.fromkeys((b.case.op, b.case.cores) for b in blocks):
        here = [b for b in blocks if (b.case.op, b.case.cores) == (op, cores)]
        title = f"{op}: {plan.operations[op].about}, {threads_text(cores)}: GFLOP/s"
        parts.append(f"{title}\n{_group(plan, here)}")
    if parts:
        parts.append(
            "1.10x: of the speed of torch's own; best: the largest share of the limit, which is "
            "the peak of multiply-adds or of reading the operands, as measured in the same rounds"
        )
    return "\n\n".join(parts)


class RateView(View):
    """GFLOP/s over the rows of a matrix, or for each layer."""

    who = "threads"
    columns = ("GFLOP/s", "low", "high")

    def __init__(self, plan: Plan, axis: str, bars: bool = False):
        self._plan = plan
        self.axis = axis
        self.bars = bars
        # Layers can be computed in several ways.
        self.more = ("of torch's own", "of the limit", *(["path"] if bars else []))

    def heading(self, op: str, size_is: str) -> str:
        return f"{op}: {size_is}"

    def panel(self, ranks: int, cores: int) -> str:
        return threads_text(cores)

    def takes(self, row: dict) -> bool:
        return "at" in row and "flops" in row

    def at(self, row: dict) -> int:
        return (
            list(self._plan.operations[row["op"]].work).index(row["at"])
            if self.bars
            else int(row["at"])
        )

    def tick(self, row: dict) -> str:
        return row["at"]

    def values(self, row: dict) -> tuple[float, float, float]:
        """The longest time is the lowest rate."""
        rate = row["flops"] / 1000
        return rate / row["value"], rate / row["high"], rate / row["low"]

    def value_text(self, value: float) -> str:
        return _rate(value)

    def value_tick(self, value: float) -> str:
        return f"{value:g}"

    def who_text(self, row: dict) -> str:
        return str(row["threads"])

    def more_text(self, row: dict) -> Sequence[str]:
        shares = (row.get(name) for name in ("of_torch", "of_limit"))
        texts = ["-" if share is None else f"{share:.2f}" for share in shares]
        return [*texts, *([row.get("path", "")] if self.bars else [])]

    def set_up(self, axes: Any) -> None:
        """Bars are compared by their lengths, so their axis is linear and begins with 0."""
        axes.set(ylabel="GFLOP/s")
        if not self.bars:
            axes.set(xscale="log", yscale="log", xlabel=self.axis)
