# SPDX-License-Identifier: Apache-2.0
"""`weft bench gather`, as the command knows it."""

from collections.abc import Mapping

from ..benchmark import Benchmark
from ..results import Block
from ..runner import cores_here
from . import marks, report, run


def _marks(blocks: list[Block], missing: Mapping[str, str]) -> list[dict]:
    return marks.mark_rows(blocks, missing, len(cores_here(None)))


BENCHMARK = Benchmark(
    "gather",
    run.NAMES,
    run.SYSTEMS,
    run.measure,
    report.rows,
    _marks,
    report.figures,
)
