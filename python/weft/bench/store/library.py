# SPDX-License-Identifier: Apache-2.0
"""The functions of driver/store.h, called with torch tensors."""

from __future__ import annotations

import ctypes
from typing import Any

BATCH_MAX = 10_000
# What bench_time is asked for, by system; of reads and of writes.
READS = {"loop": 0, "gather": 1, "weft": 2}
WRITES = {"loop": 3, "weft": 4}
PULL_PUSH = {"weft": 5, "loop": 8}
AWAITED = {"loop": 6, "weft": 7}


class LibraryError(Exception):
    """A call failed; what it said is on standard error."""


class Library:
    """One rank of a job, with at most one store."""

    def __init__(self, path: str):
        self._lib = ctypes.CDLL(path)
        self._lib.bench_open.restype = ctypes.c_void_p
        self._lib.bench_flat.restype = ctypes.c_void_p
        self._lib.bench_time.restype = ctypes.c_double
        self._lib.bench_until_local.restype = ctypes.c_double
        for name in ("stream", "ping", "flow", "cold", "outstanding", "tcp"):
            getattr(self._lib, f"bench_{name}").restype = ctypes.c_double
        self._lib.bench_copies.restype = ctypes.c_uint64
        for name in ("make", "fill", "check", "where", "intent", "wait_sync", "tcp_open"):
            getattr(self._lib, f"bench_{name}").restype = ctypes.c_bool
        self._at = ctypes.c_void_p(self._lib.bench_open())
        if not self._at:
            raise LibraryError("bench_open failed")

    def _must(self, name: str, *words: Any) -> None:
        if not getattr(self._lib, name)(self._at, *words):
            raise LibraryError(f"{name} failed")

    def make(self, keys: int, length: int, cache: int = 0, flat: bool = False) -> None:
        words = (ctypes.c_uint64(word) for word in (keys, length, cache))
        self._must("bench_make", *words, ctypes.c_bool(flat))

    def unmake(self) -> None:
        self._lib.bench_unmake(self._at)

    def flat(self) -> int:
        return self._lib.bench_flat(self._at)

    def fill(self, first: int, end: int, seed: int) -> None:
        words = (ctypes.c_uint64(word) for word in (first, end, seed))
        self._must("bench_fill", *words)

    def ids(self, keys: Any) -> None:
        """Take keys from this tensor, which the caller keeps."""
        self._lib.bench_ids(self._at, *_array(keys))

    def check(self, keys: int) -> None:
        self._must("bench_check", ctypes.c_uint64(keys))

    def time(self, kind: int, keys: int, ms: float) -> float:
        """The median time of a call, in us."""
        ns = self._lib.bench_time(
            self._at, ctypes.c_int(kind), ctypes.c_uint64(keys), ctypes.c_double(ms)
        )
        return _us(ns)

    def where(self, first: int, here: Any) -> None:
        """Which keys from `first` on are on this host, into a tensor of uint8."""
        at, count = _array(here)
        self._must("bench_where", ctypes.c_uint64(first), count, at)

    def intent(self, keys: Any, ticks: int) -> None:
        self._must("bench_intent", *_array(keys), ctypes.c_int64(ticks))

    def advance(self) -> None:
        self._lib.bench_advance(self._at)

    def wait_sync(self) -> None:
        self._must("bench_wait_sync")

    def copies(self) -> int:
        return self._lib.bench_copies(self._at)

    def until_local(self, keys: Any) -> float:
        """From an intent until all keys are here, in us."""
        return _us(self._lib.bench_until_local(self._at, *_array(keys)))

    def stream(
        self, keys: Any, batch: int, ahead: int, compute_us: float = 0
    ) -> tuple[float, float]:
        """The time of a step in us, and the share of keys that were here."""
        steps, local = len(keys) // batch, ctypes.c_uint64()
        at, _ = _array(keys)
        words = (ctypes.c_uint64(word) for word in (steps, batch, ahead, int(1000 * compute_us)))
        us = _us(self._lib.bench_stream(self._at, at, *words, ctypes.byref(local)))
        return us / steps, local.value / (steps * batch)

    def network(self, what: str, *words: int) -> float:
        """The time of bench_ping, _flow, _cold, _outstanding or _tcp, in us."""
        function = getattr(self._lib, f"bench_{what}")
        return _us(function(self._at, *(ctypes.c_uint64(word) for word in words)))

    def tcp_open(self, address: str) -> None:
        self._must("bench_tcp_open", ctypes.c_char_p(address.encode()))

    def tcp_close(self) -> None:
        self._lib.bench_tcp_close(self._at)


def _array(tensor: Any) -> tuple[ctypes.c_void_p, ctypes.c_uint64]:
    return ctypes.c_void_p(tensor.data_ptr()), ctypes.c_uint64(tensor.numel())


def _us(ns: float) -> float:
    if ns < 0:
        raise LibraryError("a call that was timed failed")
    return ns / 1000
