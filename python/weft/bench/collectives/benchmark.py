# SPDX-License-Identifier: Apache-2.0
"""`weft bench collectives`, as the command knows it."""

from ..benchmark import Benchmark
from ..operations import OPERATIONS
from ..results import Block, rows_of
from . import marks, report, run, systems


def _figures(blocks: list[Block]) -> str:
    return "\n\n".join(filter(None, (report.figures(blocks), report.size_legend(blocks))))


BENCHMARK = Benchmark(
    "collectives",
    OPERATIONS,
    systems.NAMES,
    run.measure,
    rows_of,
    marks.mark_rows,
    _figures,
)
