# SPDX-License-Identifier: Apache-2.0
"""A process of `weft bench store` that has a store together with another one.

With WEFT_NODE the two are on different hosts, else on one.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import torch

from ..piped import serve
from .library import PULL_PUSH, READS, WRITES, Library

_IDS = 1 << 16
_FOREVER = 1 << 40  # ticks of a clock
_REST = 0.3  # s; after a while of nothing to do a server gives memory back


def _pss() -> int:
    """The memory of this process in bytes, its share of what is shared; heap that is free apart."""
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


class HostRank:
    """Answers commands; the methods that begin with `do_` are the commands."""

    def __init__(self, at_work: Callable[[], None] = lambda: None) -> None:
        self._at_work = at_work
        self._library: Library | None = None
        torch.set_num_threads(1)

    @property
    def library(self) -> Library:
        assert self._library is not None
        return self._library

    def do_pin(self, core: int) -> dict:
        os.sched_setaffinity(0, [core])
        return {}

    def do_open(self, path: str) -> dict:
        self._library = Library(path)
        self._moved = torch.empty(0, dtype=torch.int64)
        return {}

    def do_make(self, number: int, row: int, cache: int = 0, flat: bool = False) -> dict:
        """A store, and beside it a flat array, if wanted. Collective."""
        self.library.unmake()
        self.library.make(number, row // 4, cache, flat)
        self._number = number
        return {}

    def do_begin(self, keep: int = sys.maxsize) -> dict:
        """Find the keys that began here, and write to them; keep a list of others."""
        here = torch.zeros(self._number, dtype=torch.uint8)
        for at in range(0, self._number, 1 << 18):
            self.library.where(at, here[at : at + (1 << 18)])
            self._at_work()
        for at in range(0, self._number, 1 << 18):
            self._fill(at, here[at : at + (1 << 18)])
        away = (here == 0).nonzero().flatten()
        self._away = away[torch.randperm(len(away))][:keep].clone()
        return {}

    def _fill(self, at: int, here: torch.Tensor) -> None:
        """Write to keys from `at` on that are here, run by run."""
        turns = (here[1:] != here[:-1]).nonzero().flatten() + 1
        for first, end in pairwise([0, *turns.tolist(), len(here)]):
            if here[first]:
                self.library.fill(at + first, at + end, secrets.randbits(16))
        self._at_work()

    # Two ranks of one host.

    def do_hot(self, system: str, first: int, number: int, keys: int, ms: float) -> dict:
        """Pull and push keys out of [first, first + number)."""
        ids = torch.randint(first, first + number, (_IDS,))
        self.library.ids(ids)
        return {"us": self.library.time(PULL_PUSH[system], keys, ms)}

    # Two hosts.

    def do_remote(self, push: bool, keys: int, ms: float) -> dict:
        """Calls on keys that are elsewhere."""
        return self._timed(self._away, push, keys, ms)

    def do_moved(self, push: bool, keys: int, ms: float) -> dict:
        """Calls on keys that an intent brought here."""
        return self._timed(self._moved, push, keys, ms)

    def _timed(self, ids: torch.Tensor, push: bool, keys: int, ms: float) -> dict:
        self.library.ids(ids)
        return {"us": self.library.time((WRITES if push else READS)["weft"], keys, ms)}

    def _fresh(self, count: int) -> torch.Tensor:
        """Keys that were elsewhere until now."""
        if len(self._away) < count:
            raise AssertionError("all keys have been used")
        taken, self._away = self._away[:count], self._away[count:]
        return taken.clone()

    def do_intent(self, keys: int) -> dict:
        """From an intent for fresh keys until they are here."""
        self._moved = self._fresh(keys)
        return {"us": self.library.until_local(self._moved)}

    def do_stream(self, steps: int, keys: int, ahead: int) -> dict:
        """Steps with fresh keys; those without an intent stay where they are."""
        some = self._away[: steps * keys].clone() if ahead == 0 else self._fresh(steps * keys)
        us, local = self.library.stream(some, keys, ahead)
        return {"us": us, "local": local}

    # Two hosts that are namespaces.

    def do_tcp(self, address: str) -> dict:
        """Connect the ranks, the second of which has this address; or end that, without one."""
        if address:
            self.library.tcp_open(address)
        else:
            self.library.tcp_close()
        return {}

    def do_network(self, what: str, words: list[int]) -> dict:
        """What the network does by itself, or pulls of keys that are elsewhere."""
        self.library.ids(self._away)
        return {"us": self.library.network(what, *words)}

    def do_zipf(self, number: int, exponent: float, steps: int, keys: int) -> dict:
        """Draw the keys of steps to come, which few of all keys have most of."""
        shares = torch.arange(1, number + 1, dtype=torch.float64).pow(-exponent).cumsum(0)
        ranks = torch.searchsorted(shares, torch.rand(steps * keys).double() * shares[-1])
        # The frequent ones are anywhere, the same ones for all.
        places = torch.randperm(number, generator=torch.Generator().manual_seed(1))
        self._drawn = places[ranks.clamp_(max=number - 1)].contiguous()
        return {}

    def do_train(self, keys: int, ahead: int, compute_us: float) -> dict:
        us, local = self.library.stream(self._drawn, keys, ahead, compute_us)
        return {"us": us, "local": local}

    # Memory, and what is done while nothing is asked for.

    def do_memory(self) -> dict:
        time.sleep(_REST)
        return {"bytes": _pss()}

    def do_move(self, keys: int) -> dict:
        """Bring keys here whose intents end at once."""
        for part in self._fresh(keys).split(10_000):
            self.library.until_local(part)
            self._at_work()
        self.library.wait_sync()
        return {}

    def do_want(self, first: int, keys: int, step: int) -> dict:
        """An intent without an end for keys in steps from `first` on."""
        some = torch.arange(first, first + keys * step, step)
        for part in some.split(10_000):
            self.library.intent(part, _FOREVER)
            self.library.wait_sync()
            self._at_work()
        return {"copies": self.library.copies()}

    def do_idle(self, seconds: float) -> dict:
        """The share of a core that this process takes while it does nothing."""
        begin, used = time.perf_counter(), time.process_time()
        time.sleep(seconds)
        return {"share": (time.process_time() - used) / (time.perf_counter() - begin)}


if __name__ == "__main__":
    sys.exit(serve(HostRank))
