# SPDX-License-Identifier: Apache-2.0
"""Gather, scatter and sparse optimizers on a GPU against torch and a device copy.

`run(quick)` gives the rows of `weft bench gather` that need a GPU, and the marks G3a to G5. As a
program of its own: python3 -m weft.bench.gather.gpu [--quick] [--build DIR] [--json FILE].
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from . import cuda_calls
from . import gpu_cases as cases
from . import gpu_marks as goals
from . import gpu_timing as timing
from . import gpu_updates as optimizers

LIBRARY = "libweft_cuda.so"


def unavailable() -> str | None:
    """Why nothing can be measured here; None if it can."""
    try:
        import torch
    except ImportError:
        return "no torch"
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    return None


def find_library(build: Path | None = None) -> Path | None:
    """The kernels: in a build folder, or beside the installed package's libweft."""
    folders = [build] if build else [Path(__file__).resolve().parents[2]]
    return next((f / LIBRARY for f in folders if (f / LIBRARY).is_file()), None)


def run(quick: bool, build: Path | None = None, show: bool = False) -> list[dict]:
    """All rows and marks; marks without a verdict where there is no GPU or no library."""
    why = unavailable()
    library = None if why else find_library(build)
    if why is None and library is None:
        why = f"no {LIBRARY}: install nvcc and build weft again"
    if why is not None or library is None:
        return [goals.unjudged(name, why or "") for name in goals.MARKS]
    import torch

    bench = timing.Bench(cuda_calls.Kernels(library), quick, show)
    free = torch.cuda.mem_get_info()[0]
    payload = timing.GIB if free > 40 * timing.GIB else timing.GIB // 8
    table_bytes = min(32 * timing.GIB, free // 2 // timing.GIB * timing.GIB)
    if table_bytes < 32 * timing.GIB:
        bench.tell(f"the table has {table_bytes / timing.GIB:.0f} GiB only: the GPU has no more")
    memory = torch.empty(table_bytes, dtype=torch.uint8, device="cuda")
    timing.fill(memory)
    near = bench.attempt(cases.hbm, memory, payload)
    bench.attempt(cases.small_batches, memory)
    bench.attempt(cases.through_libweft, memory, library)
    if not quick:
        bench.attempt(cases.fetch_sizes, memory, payload)
        bench.attempt(cases.writes, memory, payload)
    del memory
    torch.cuda.empty_cache()
    ratios = bench.attempt(optimizers.updates, payload)
    far = bench.attempt(cases.host, (1 if quick else 8) * timing.GIB)
    marks = goals.marks_of(near, far, ratios)
    for mark, what in zip(marks, ("hbm", "hbm", "host", "updates"), strict=True):
        mark["reason"] = bench.failed.get(what, mark["reason"])
    return [*bench.rows, *marks]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--build", type=Path, help=f"the folder with {LIBRARY}")
    parser.add_argument("--json", type=Path, help="where the rows go")
    args = parser.parse_args(argv)
    began = time.monotonic()
    rows = run(args.quick, args.build, show=True)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    words = {True: "met", False: "NOT MET", None: "not judged"}
    for row in rows:
        if "mark" in row:
            for one in row.get("all", []):
                print(
                    f"  {row['mark']:4} {one['case']:18} {one['ratio']:8.3f} {row['direction']} "
                    f"{one['goal']:.3g}  / {one['against']}"
                )
            print(f"{row['mark']}: {words[row['met']]} {row['reason']}")
    print(f"{time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
