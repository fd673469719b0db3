# SPDX-License-Identifier: Apache-2.0
"""`weft bench collectives`, as the command knows it."""

from ..benchmark import Benchmark, Contest, lines_of
from ..results import Block, rows_of
from . import marks, report, run, systems
from .operations import OPERATIONS


def _figures(blocks: list[Block]) -> str:
    return "\n\n".join(filter(None, (report.figures(blocks), report.size_legend(blocks))))


BENCHMARK = Benchmark(
    name="collectives",
    operations=OPERATIONS,
    systems=systems.NAMES,
    measure=run.measure,
    rows=rows_of,
    marks=marks.mark_rows,
    figures=_figures,
    lines=lines_of(systems.SYSTEMS),
    drawn=OPERATIONS,
    contests=(
        Contest(systems.INSTALLED, limits=("limit",)),
        Contest(systems.TUNED, ours="weft-thp"),
    ),
)
