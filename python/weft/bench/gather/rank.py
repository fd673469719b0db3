# SPDX-License-Identifier: Apache-2.0
"""A process of `weft bench gather`: makes a table, and times what is done with its rows.

All systems have the same table, the same ids and the same other rows, which are gathered into or
scattered from, and are written to before anything is timed. Every call has other ids than the one
before, so that no row is found in a cache because it was just there.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from ..piped import serve
from .calls import Library, Region

_HUGE_PAGE = 2 << 20
# Ids of one row size: at 64 B they reach more memory than caches hold.
_IDS = 1 << 20
# Words that are filled while they are in a cache, and an odd number that spreads their bits.
_FILLED_AT_ONCE = 1 << 20
_SPREAD = -1640531527
# The bits of a float that lies from 1 to 2: which of them may differ, and the others.
_FRACTION, _ONE = 0x007FFFFF, 0x3F800000
# After a call torch's threads poll for some milliseconds (300 000 pauses in libgomp); the next
# system is not to share its cores with them.
_PAUSE = 0.02


def _map(size: int, huge: bool) -> torch.Tensor:
    """Private memory of the page size that is asked for, aligned to huge pages, as floats."""
    room = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    room.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    whole = torch.frombuffer(room, dtype=torch.float32)
    skip = -whole.data_ptr() % _HUGE_PAGE // 4
    return whole[skip : skip + size // 4]


def _fill(
    memory: torch.Tensor,
    at_work: Callable[[], None],
    numbers: bool = False,
    seed: int | None = None,
    part: tuple[int, int] = (0, 1),
) -> None:
    """Other bits in every word: a wrong row cannot pass for the right one, nor for zeros.

    With `numbers` they are ordinary ones: to add to others may take a CPU much longer.
    `at_work` is called after each piece. Of several that fill one memory each has its `part`,
    the first number of so many, and all have one seed.
    """
    words = memory.view(torch.int32)
    seed = secrets.randbits(30) if seed is None else seed
    number, parts = part
    for at in range(number * _FILLED_AT_ONCE, words.numel(), parts * _FILLED_AT_ONCE):
        piece = words[at : at + _FILLED_AT_ONCE]
        torch.arange(at + seed, at + seed + piece.numel(), dtype=torch.int32, out=piece)
        piece.mul_(_SPREAD)
        if numbers:
            piece.bitwise_and_(_FRACTION).bitwise_or_(_ONE)
        at_work()


def _huge_kib() -> int:
    """How much of this process is in transparent huge pages."""
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))


class Batch:
    """One row size and number of ids: the table's view, ids, and rows outside of the table."""

    def __init__(self, memory: torch.Tensor, row: int, count: int, call: str):
        width = row // 4
        rows = memory.numel() // width
        self.call = call
        self.table = memory[: rows * width].view(rows, width)
        self.ids = _ids(rows, max(4, _IDS // count), count, distinct=call != "gather")
        self.out = _map(count * row, huge=False)[: count * width].view(count, width)
        self.out.fill_(float("nan")) if call == "gather" else self.out.uniform_()
        self.rows = rows
        self.count = count
        self._turn = 0

    def next_ids(self) -> torch.Tensor:
        self._turn = (self._turn + 1) % len(self.ids)
        return self.ids[self._turn]

    def next_rows(self) -> torch.Tensor:
        """As many rows one after the other, for a copy."""
        self._turn = (self._turn + 1) % len(self.ids)
        first = self._turn * self.count % max(1, self.rows - self.count)
        return self.table[first : first + self.count]

    def by_torch(self) -> Callable[[torch.Tensor], Any]:
        """The same by torch's own call."""
        if self.call == "gather":
            return lambda ids: torch.index_select(self.table, 0, ids, out=self.out)
        if self.call == "scatter":
            return lambda ids: self.table.index_copy_(0, ids, self.out)
        return lambda ids: self.table.index_add_(0, ids, self.out)

    def by_copy(self) -> Callable[[torch.Tensor], Any]:
        """As many rows, in the same direction, but one after the other."""
        return self.out.copy_ if self.call == "gather" else lambda rows: rows.copy_(self.out)

    def want(self, ids: torch.Tensor) -> torch.Tensor:
        """What a call with these ids has to leave behind."""
        if self.call == "scatter":
            return self.out.clone()
        found = self.table[ids]
        return found if self.call == "gather" else found + self.out

    def result(self, ids: torch.Tensor) -> torch.Tensor:
        """What it leaves behind."""
        return self.out if self.call == "gather" else self.table[ids]

    def put_back(self, ids: torch.Tensor, result: torch.Tensor) -> None:
        if self.call == "gather":
            self.out.copy_(result)
        else:
            self.table[ids] = result


def _ids(rows: int, sets: int, count: int, distinct: bool) -> torch.Tensor:
    """Random ones. Distinct in each set: of two that write one row, torch lets either win."""
    if not distinct:
        return torch.randint(0, rows, (sets, count))
    stride = max(1, rows // count)
    chosen = torch.arange(count) * stride + torch.randint(0, stride, (sets, count))
    return chosen[:, torch.randperm(count)] % rows


class Rank:
    """Answers commands; the methods that begin with `do_` are the commands."""

    def __init__(self, at_work: Callable[[], None] = lambda: None) -> None:
        self._at_work = at_work
        self._library: Library | None = None
        self._memory: torch.Tensor | None = None
        self._region: Region | None = None
        self._batch: Batch | None = None

    def do_library(self, path: str) -> dict:
        self._library = Library(path)
        return {}

    def do_table(self, size: int, huge: bool, numbers: bool) -> dict:
        """A table in private memory. Tells how much of it is in huge pages."""
        self._batch = self._memory = None
        before = _huge_kib()
        self._memory = _map(size, huge)
        _fill(self._memory, self._at_work, numbers)
        return {"huge": (_huge_kib() - before) << 10}

    def do_region(self, size: int, seed: int) -> dict:
        """A table that all ranks share. All fill it, so that nobody waits for long in silence."""
        assert self._library is not None
        self._region = Region(self._library, size)
        pointer = (ctypes.c_float * (size // 4)).from_address(self._region.base)
        self._memory = torch.frombuffer(pointer, dtype=torch.float32)
        part = (self._region.rank, self._region.size)
        _fill(self._memory, self._at_work, seed=seed, part=part)
        self._region.barrier()
        return {}

    def do_rows(self, row: int, count: int, threads: int, call: str = "gather") -> dict:
        """Get ready for rows of this size; whose results are wrong is told."""
        assert self._memory is not None
        torch.set_num_threads(threads)
        self._batch = Batch(self._memory, row, count, call)
        return {"wrong": self._wrong(threads)}

    def _wrong(self, threads: int) -> list[str]:
        """Bit by bit: floats as integers, since a place may look like a NaN."""
        batch = self._batch
        assert batch is not None
        ids = batch.ids[0]
        before, want = batch.result(ids).clone(), batch.want(ids).view(torch.int32)
        wrong = []
        for name in ("weft", "torch"):
            batch.put_back(ids, before)
            self._call(name, threads)(ids)
            if not torch.equal(batch.result(ids).view(torch.int32), want):
                wrong.append(name)
        return wrong

    def _call(self, system: str, threads: int) -> Callable[[torch.Tensor], Any]:
        batch = self._batch
        assert batch is not None and self._library is not None
        if system == "weft":
            return self._library.rows(batch.call, batch.table, batch.out, threads, self._region)
        if system == "torch":
            return batch.by_torch()
        if system == "embedding":
            return lambda ids: torch.nn.functional.embedding(ids, batch.table)
        return batch.by_copy()

    def do_block(self, system: str, threads: int, ms: float) -> dict:
        """The median time of a call, in us."""
        batch = self._batch
        assert batch is not None
        call = self._call(system, threads)
        argument = batch.next_rows if system == "copy" else batch.next_ids
        time.sleep(_PAUSE)
        call(argument())
        times: list[int] = []
        end = time.perf_counter() + ms / 1000
        while len(times) < 3 or time.perf_counter() < end:
            given = argument()
            start = time.perf_counter_ns()
            call(given)
            times.append(time.perf_counter_ns() - start)
        return {"us": statistics.median(times) / 1000}

    def do_rate(self, system: str, ms: float) -> dict:
        """Calls a second on one thread, while another rank may do the same."""
        batch = self._batch
        assert batch is not None
        call = self._call(system, 1)
        argument = batch.next_rows if system == "copy" else batch.next_ids
        call(argument())
        calls = 0
        start = now = time.perf_counter()
        while now < start + ms / 1000:
            call(argument())
            calls += 1
            now = time.perf_counter()
        return {"per_s": calls / (now - start)}

    def do_pin(self, cores: list[int]) -> dict:
        """Stay on these cores, with a thread for each.

        Threads that share a core poll in turn for those that wait for it: 16 of them on one
        take minutes for what one does in seconds.
        """
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(len(cores))
        return {}


if __name__ == "__main__":
    sys.exit(serve(Rank))
