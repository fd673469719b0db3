# SPDX-License-Identifier: Apache-2.0
"""`weft bench torch`, as the command knows it."""

from ..benchmark import Benchmark, Contest, lines_of
from . import marks, report, run
from .operations import OPERATIONS

BENCHMARK = Benchmark(
    name="torch",
    operations=OPERATIONS,
    systems=run.NAMES,
    measure=run.measure,
    rows=report.rows,
    marks=marks.mark_rows,
    figures=report.figures,
    lines=lines_of(run.SYSTEMS),
    drawn=OPERATIONS,
    contests=(Contest(run.GLOOS, limits=("noop",), also="weft-shared"),),
)
