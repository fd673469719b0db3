# SPDX-License-Identifier: Apache-2.0
"""`weft bench store`, as the command knows it."""

from ..benchmark import Benchmark, Contest
from . import cases, marks, report, run

BENCHMARK = Benchmark(
    name="store",
    operations=cases.NAMES,
    systems=cases.SYSTEMS,
    measure=run.measure,
    rows=report.rows,
    marks=marks.mark_rows,
    figures=report.figures,
    # Without locks, a flat array is what no store can beat; between hosts, the transport.
    contests=(Contest(("torch",), limits=("gather", "loop")), Contest(("tcp",), ("transport",))),
)
