# SPDX-License-Identifier: Apache-2.0
"""The process that measures the machine: no call takes less time than its limit.

Multiply-adds cannot go faster than from registers, and operands have to be read at least once,
from the cache that holds all of them if there is one.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

from ..piped import serve


class Rank:
    """Answers commands; the methods that begin with `do_` are the commands."""

    def __init__(self, at_work: Callable[[], None] = lambda: None) -> None:
        self._library: ctypes.CDLL | None = None
        self._threads = 1
        self._work = (0.0, 0, False)

    def do_start(self, cores: list[int], threads: int, path: str) -> dict:
        os.sched_setaffinity(0, cores)
        self._library = ctypes.CDLL(path)
        for name in ("peak_flops", "peak_read"):
            getattr(self._library, name).restype = ctypes.c_double
        self._threads = threads
        return {}

    def do_case(self, flops: float, bytes: int, dtype: str) -> dict:
        self._work = (flops, bytes, dtype == "float64")
        return {"wrong": None, "path": ""}

    def do_block(self, ms: float) -> dict:
        """The least time of the call, in us."""
        assert self._library is not None
        flops, size, f64 = self._work
        half = ctypes.c_double(ms / 2)
        peak = self._library.peak_flops(f64, self._threads, half)
        read = self._library.peak_read(ctypes.c_size_t(size), self._threads, half)
        if not peak or not read:
            raise OSError("the threads or the memory for it cannot be had")
        # GFLOP/s and GB/s are operations and bytes a nanosecond.
        return {"us": max(flops / peak, size / read) / 1000}


if __name__ == "__main__":
    sys.exit(serve(Rank))
