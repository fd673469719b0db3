# SPDX-License-Identifier: Apache-2.0
"""`weft bench hosts`, as the command knows it."""

from ..benchmark import Benchmark, Contest, lines_of
from . import marks, report, run

BENCHMARK = Benchmark(
    name="hosts",
    operations=run.OPERATIONS,
    systems=run.NAMES,
    measure=run.measure,
    rows=report.rows,
    marks=marks.mark_rows,
    figures=report.figures,
    lines=lines_of(run.SYSTEMS),
    contests=(
        Contest(("gloo", "gloo-free")),
        Contest(("openmpi",), limits=("iperf3",), ours="core"),
    ),
    probed=False,
)
