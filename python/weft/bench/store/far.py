# SPDX-License-Identifier: Apache-2.0
"""The store and regions over cables of several lengths: `python -m weft.bench.store.far`.

Two hosts that are namespaces have a cable of a rate and a round trip between them (`cable.py`).
For each: the rate of pulls of many keys as a share of the cable's, how long a pull of one key takes
by itself and meanwhile, and the rate at which rows of a region are gathered.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from ..bed import SHARED_CORES, Bed, missing
from ..bed_ranks import bed_ranks
from ..piped import serve
from .cable import folder, long_cable

_KEYS = 200_000  # half of them on each host
_CALL = 80_000  # keys, or rows, of a long call
_WIDTH = 128  # floats of a row
_CALLS = 3
_ROW = 4 * _WIDTH  # bytes
_ENV = {"WEFT_TRANSPORTS": "self,shm,ucx", **SHARED_CORES}
_COMMAND = (sys.executable, "-m", "weft.bench.store.far", "--rank")


class FarRank:
    """Answers commands; the methods that begin with `do_` are the commands."""

    def __init__(self, at_work: Callable[[], None] = lambda: None) -> None:
        self._at_work = at_work

    def do_make(self) -> dict:
        """A store and a region, and what of them is on the other host. Collective."""
        import torch

        import weft

        self._store = weft.Store(_KEYS, _WIDTH)
        self._table = weft.table((_KEYS, _WIDTH))
        self._away = torch.arange(1, _KEYS, 2)  # seen from the first host, as is
        self._rows = torch.arange(_KEYS // 2, _KEYS // 2 + _CALL)
        self._long, self._short = self._store.worker(), self._store.worker()
        self._store.barrier()
        return {}

    def do_end(self) -> dict:
        self._store.barrier()
        return {}

    def _one(self, times: int, going: Callable[[], bool] = lambda: True) -> list[float]:
        """Milliseconds of pulls of one key."""
        took: list[float] = []
        while len(took) < times and going():
            begin = time.perf_counter()
            self._short.pull(self._away[-1:])
            took.append(1e3 * (time.perf_counter() - begin))
        return took

    def do_measure(self) -> dict:
        """MB/s and milliseconds, each once the window is learnt."""
        import weft

        long = self._away[:_CALL]
        self._long.pull(long)
        alone = statistics.median(self._one(9))
        meanwhile: list[float] = []
        running = threading.Event()
        running.set()
        thread = threading.Thread(
            target=lambda: meanwhile.extend(self._one(1 << 20, running.is_set))
        )
        thread.start()
        store = self._rate(lambda: self._long.pull(long))
        running.clear()
        thread.join()
        region = self._rate(lambda: weft.gather(self._table, self._rows))
        most = statistics.median(meanwhile)
        return {"store": store, "region": region, "alone": alone, "meanwhile": most}

    def _rate(self, call: Callable[[], object]) -> float:
        took = []
        for _ in range(_CALLS):
            begin = time.perf_counter()
            call()
            took.append(time.perf_counter() - begin)
            self._at_work()
        return _CALL * _ROW / statistics.median(took) / 1e6


def _measure(delay_ms: float, megabytes: float) -> dict:
    with ExitStack() as stack:
        bed = stack.enter_context(Bed(2, visible=[folder()]))
        stack.enter_context(long_cable(bed, delay_ms, megabytes))
        both = stack.enter_context(bed_ranks(bed, _COMMAND, (0, 1), **_ENV))
        both.all("make")
        found = both.one("measure")
        both.all("end")
        return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m weft.bench.store.far", description=__doc__)
    parser.add_argument("--rate", type=float, default=125.0, help="of the cable, MB/s")
    parser.add_argument("--delays", default="0.1,10,40", help="round trips, ms")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        return serve(FarRank)
    if why := missing():
        print(f"no hosts can be made here: {why}", file=sys.stderr)
        return 1
    print(f"a cable of {options.rate:g} MB/s; {os.cpu_count()} cores")
    print("round trip   pulls of many keys   one key alone, meanwhile   rows of a region")
    for delay in map(float, options.delays.split(",")):
        found = _measure(delay, options.rate)
        print(
            f"{delay:7g} ms   {found['store']:6.0f} MB/s  {found['store'] / options.rate:5.2f}   "
            f"{found['alone']:8.1f} ms {found['meanwhile']:8.1f} ms   "
            f"{found['region']:6.0f} MB/s  {found['region'] / options.rate:5.2f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
