# SPDX-License-Identifier: Apache-2.0
"""A process of `weft bench store`: a store, a flat array of the same rows, and random keys.

What is written in C is timed in C (driver/store.c); torch's calls, and those of weft.Store, are
timed here, in groups that take as long. All are done by one thread.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import weft

from ..piped import serve
from .library import AWAITED, READS, WRITES, Library

# Random keys: at 64 B their rows are more than caches hold.
_IDS = 1 << 20
_FILLED_AT_ONCE = 1 << 18
_GROUP = 50  # calls with one key that are timed together


class Rank:
    """Answers commands; the methods that begin with `do_` are the commands."""

    def __init__(self, at_work: Callable[[], None] = lambda: None) -> None:
        self._at_work = at_work
        self._library: Library | None = None
        self._store: weft.Store | None = None
        self._flat: Any = None
        self._turn = 0
        torch.set_num_threads(1)

    def do_pin(self, cores: list[int]) -> dict:
        os.sched_setaffinity(0, cores)
        return {}

    def do_open(self, path: str) -> dict:
        self._library = Library(path)
        return {}

    @property
    def library(self) -> Library:
        assert self._library is not None
        return self._library

    def do_table(self, number: int, row: int) -> dict:
        """A store of `number` rows and a flat array of the same numbers; checked."""
        length = row // 4
        if self._store is not None:
            self._store.close()
            self._store = None
        self._flat = None
        self.library.unmake()
        self.library.make(number, length, flat=True)
        for at in range(0, number, _FILLED_AT_ONCE):
            self.library.fill(at, min(at + _FILLED_AT_ONCE, number), secrets.randbits(16))
            self._at_work()
        words = (ctypes.c_float * (number * length)).from_address(self.library.flat())
        self._flat = torch.frombuffer(words, dtype=torch.float32).view(number, length)
        self._ids = torch.randint(0, number, (_IDS,))
        self.library.ids(self._ids)
        self.library.check(1000)
        return {}

    def do_block(
        self, system: str, push: bool, keys: int, ms: float, awaited: bool = False
    ) -> dict:
        """The median time of a call, in us."""
        if system == "torch":
            return {"us": self._time_python(self._torch_call(push, keys), keys, ms)}
        kind = (AWAITED if awaited else WRITES if push else READS)[system]
        return {"us": self.library.time(kind, keys, ms)}

    def _torch_call(self, push: bool, keys: int) -> Callable[[torch.Tensor], Any]:
        flat, other = self._flat, torch.rand(keys, self._flat.shape[1])
        if push:
            return lambda ids: flat.index_add_(0, ids, other)
        return lambda ids: torch.index_select(flat, 0, ids, out=other)

    def do_python_store(self) -> dict:
        """A weft.Store of the rows of the flat array; checked."""
        number, length = self._flat.shape
        self._store = weft.Store(number, length)
        for at in range(0, number, _FILLED_AT_ONCE):
            part = self._flat[at : at + _FILLED_AT_ONCE]
            self._store.set(torch.arange(at, at + len(part)), part)
            self._at_work()
        some = self._ids[:1000]
        if not torch.equal(self._store.pull(some), self._flat[some]):
            raise AssertionError("weft.Store.pull: wrong rows")
        return {}

    def do_python_block(self, system: str, push: bool, keys: int, ms: float) -> dict:
        call = self._torch_call(push, keys) if system == "torch" else self._store_call(push, keys)
        return {"us": self._time_python(call, keys, ms)}

    def _store_call(self, push: bool, keys: int) -> Callable[[torch.Tensor], Any]:
        store, other = self._store, torch.rand(keys, self._flat.shape[1])
        assert store is not None
        if push:
            return lambda ids: store.push(ids, other)
        return lambda ids: store.pull(ids, out=other)

    def _time_python(self, call: Callable[[torch.Tensor], Any], keys: int, ms: float) -> float:
        """The median time of a call, in us; each has other keys."""
        group = _GROUP if keys == 1 else 1
        sets = self._ids[: _IDS // (keys * group) * keys * group].view(-1, group, keys)
        end = time.perf_counter() + ms / 1000
        times: list[float] = []
        while len(times) < 3 or time.perf_counter() < end:
            self._turn = (self._turn + 1) % len(sets)
            batches = sets[self._turn].unbind()
            start = time.perf_counter_ns()
            for ids in batches:
                call(ids)
            times.append((time.perf_counter_ns() - start) / group)
        return statistics.median(times) / 1000


if __name__ == "__main__":
    sys.exit(serve(Rank))
