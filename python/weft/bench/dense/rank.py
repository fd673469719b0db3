# SPDX-License-Identifier: Apache-2.0
"""The process that measures PyTorch on one BLAS library, preloaded or its own."""

from __future__ import annotations

import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from ...doctor.pytorch import mapped, symbol_file
from ..piped import serve
from .products import PRODUCTS

# Threads of a library poll for a while after a call; the next system's turn is not to suffer.
_PAUSE = 0.03
# Entering a mode of oneDNN warns about GPUs.
warnings.filterwarnings("ignore", message="TF32 acceleration")


class Rank:
    """Answers commands; the methods that begin with `do_` are the commands."""

    def __init__(self, at_work: Callable[[], None] = lambda: None) -> None:
        self._call: Callable[[], Any] = lambda: None
        self._onednn = True
        self._threads = 1

    def do_start(self, cores: list[int], threads: int) -> dict:
        """Stay on these cores. Tells whose routines PyTorch calls, after it has called one."""
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)
        self._threads = threads
        torch.mm(torch.ones(64, 64), torch.ones(64, 64))
        own = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
        return {
            "torch": torch.__version__,
            "own": os.path.realpath(own),
            "sgemm": symbol_file(own, "sgemm_"),
            "mapped": [os.path.realpath(file) for file in mapped()],
        }

    def do_case(self, kind: str, dtype: str, shape: list[int], onednn: bool) -> dict:
        """Get ready for it; nothing is timed whose result is wrong."""
        self._onednn = onednn
        with torch.inference_mode(), torch.backends.mkldnn.flags(enabled=onednn):
            product = PRODUCTS[kind](torch, getattr(torch, dtype), shape)
            self._call = product.call
            wrong = product.wrong(product.call())
            return {"wrong": wrong, "path": product.path()}

    def do_block(self, ms: float) -> dict:
        """The median time of a call, in us."""
        with torch.inference_mode(), torch.backends.mkldnn.flags(enabled=self._onednn):
            times: list[int] = []
            end = time.perf_counter() + ms / 1000
            while not times or time.perf_counter() < end:
                start = time.perf_counter_ns()
                self._call()
                times.append(time.perf_counter_ns() - start)
        if self._threads > 1:
            time.sleep(_PAUSE)
        # The first call of several finds other data in the caches.
        return {"us": statistics.median(times[1:] or times) / 1000}


if __name__ == "__main__":
    sys.exit(serve(Rank))
