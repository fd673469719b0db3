# SPDX-License-Identifier: Apache-2.0
"""`weft bench mpi`, as the command knows it."""

from ..benchmark import Benchmark
from . import marks, report, run

BENCHMARK = Benchmark(
    "mpi",
    run.OPERATIONS,
    run.NAMES,
    run.measure,
    report.rows,
    marks.mark_rows,
    report.figures,
)
