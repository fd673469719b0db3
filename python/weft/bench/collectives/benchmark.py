# SPDX-License-Identifier: Apache-2.0
"""`weft bench collectives`, as the command knows it."""

from ..benchmark import Benchmark, Contest, lines_of
from ..results import Block, rows_of
from . import marks, report, run, systems
from .operations import OPERATIONS


def _figures(blocks: list[Block]) -> str:
    parts = (report.figures, report.size_legend, report.arena_legend)
    return "\n\n".join(filter(None, (part(blocks) for part in parts)))


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
        Contest(systems.INSTALLED, limits=("limit",), also="weft-arena"),
        Contest(systems.TUNED, ours="weft-thp"),
    ),
)
