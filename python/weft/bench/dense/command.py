# SPDX-License-Identifier: Apache-2.0
"""A benchmark of dense arithmetic, as the command knows it."""

from collections.abc import Iterable
from functools import partial

from ..benchmark import Benchmark, Contest
from ..operations import Operation
from . import report, run, systems
from .work import Plan

LARGEST = 1 << 15  # rows of a matrix; one of them has 4 GiB


def dense(plan: Plan, axis: str) -> Benchmark:
    """It has no marks: the libraries are not weft's, and none of them is to be beaten."""
    return Benchmark(
        name=plan.name,
        operations=plan.operations,
        systems=systems.names,
        measure=partial(run.measure, plan),
        rows=partial(report.rows, plan),
        marks=lambda _blocks, _missing: [],
        figures=partial(report.figures, plan),
        lines=systems.lines,
        drawn={op: Operation(op, what.about) for op, what in plan.operations.items()},
        contests=_contests,
        view=report.RateView(plan, axis, bars=plan.sized is None),
        probed=False,
        subject=systems.TORCH,
        find=systems.find,
        size_refused=partial(_refused, plan),
    )


def _contests(names: Iterable[str]) -> tuple[Contest, ...]:
    """PyTorch as it is with PyTorch and any other library."""
    others = tuple(name for name in names if name not in (systems.TORCH, systems.LIMIT))
    return (Contest(others, limits=(systems.LIMIT,), ours=systems.TORCH, of_weft=False),)


def _refused(plan: Plan, size: int) -> str | None:
    if plan.sized is None:
        return f"{plan.name} has layers, not sizes"
    return f"{size} rows are too many, {LARGEST} is the most" if size > LARGEST else None
