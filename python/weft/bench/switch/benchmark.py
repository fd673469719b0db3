# SPDX-License-Identifier: Apache-2.0
"""`weft bench switch`, as the command knows it."""

from ..benchmark import Benchmark, Contest, lines_of
from . import marks, report, run

BENCHMARK = Benchmark(
    name="switch",
    operations=run.OPERATIONS,
    systems=run.NAMES,
    measure=run.measure,
    rows=report.rows,
    marks=marks.mark_rows,
    figures=report.figures,
    lines=lines_of(run.SYSTEMS),
    drawn=report.DRAWN,
    contests=(Contest(("gloo", "gloo-free")), Contest(("ring",), ours="switch")),
    view=report.TimeOfHosts(),
    probed=False,
    subject="switch",
)
