# SPDX-License-Identifier: Apache-2.0
"""`weft bench store`, as the command knows it."""

from ..benchmark import Benchmark
from . import cases, marks, report, run

BENCHMARK = Benchmark(
    name="store",
    operations=cases.NAMES,
    systems=cases.SYSTEMS,
    measure=run.measure,
    rows=report.rows,
    marks=marks.mark_rows,
    figures=report.figures,
)
