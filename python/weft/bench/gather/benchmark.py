# SPDX-License-Identifier: Apache-2.0
"""`weft bench gather`, as the command knows it."""

from ..benchmark import Benchmark, Contest
from . import marks, report, run

BENCHMARK = Benchmark(
    name="gather",
    operations=run.NAMES,
    systems=run.SYSTEMS,
    measure=run.measure,
    rows=report.rows,
    marks=marks.mark_rows,
    figures=report.figures,
    contests=(Contest(("torch", "embedding"), limits=("copy",)),),
)
