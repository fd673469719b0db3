# SPDX-License-Identifier: Apache-2.0
"""`weft bench mpi`, as the command knows it."""

from ..benchmark import Benchmark, Contest
from . import marks, report, run

BENCHMARK = Benchmark(
    name="mpi",
    operations=run.OPERATIONS,
    systems=run.NAMES,
    measure=run.measure,
    rows=report.rows,
    marks=marks.mark_rows,
    figures=report.figures,
    contests=(Contest(("mpi4py", *run.GLOOS)),),
)
