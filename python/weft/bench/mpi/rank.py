# SPDX-License-Identifier: Apache-2.0
"""One rank of `weft bench mpi`.

    python -m weft.bench.mpi.rank SYSTEM PAGE_LIBRARY STORE --serve SOCKET PAGE CORES

A system is a class with a method for each operation, which returns what is to be timed and what it
leaves: the results to be checked. All have the same numbers to work on.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from ..collectives.gloo_rank import Page, serve

Once = Callable[[], Any]
# A reading of the clock costs tens of ns, so short calls are timed in groups.
_GROUPS = ((2_000, 32), (20_000, 8), (200_000, 2))
_SLOW_NS = 10_000_000
_MOST_CALLS = 20_000


class System:
    """What ranks of all systems have in common: who they are, and their numbers."""

    def __init__(self, store: str, rank: int, ranks: int):
        self.rank, self.ranks = rank, ranks
        self.left, self.right = (rank - 1) % ranks, (rank + 1) % ranks

    def divisible(self, count: int) -> int:
        """At least `count`, and as many for each rank."""
        return -(-count // self.ranks) * self.ranks

    def tidy(self) -> None:
        """After a block."""


class _Torch(System):
    """Tensors, and one function in the middle."""

    def __init__(self, store: str, rank: int, ranks: int):
        super().__init__(store, rank, ranks)
        import torch

        torch.set_num_threads(1)
        self._torch = torch

    def values(self, count: int, seed: int, rank: int) -> Any:
        torch = self._torch
        source = torch.Generator().manual_seed(seed * 1000 + rank)
        some = torch.randint(1, 1025, (min(count, 1 << 20),), generator=source).float()
        return some.repeat(-(-count // some.numel()))[:count]

    def all_values(self, count: int, seed: int) -> list[Any]:
        return [self.values(count, seed, rank) for rank in range(self.ranks)]

    def allreduce(self) -> Callable[[Any], Any]:
        raise NotImplementedError

    def expected(self, parts: list[Any]) -> Any:
        return sum(parts[1:], parts[0])

    def forward(self, count: int, seed: int) -> tuple[Once, Callable[[], bool]]:
        function = self.allreduce()
        x = self.values(count, seed, self.rank).requires_grad_()

        def is_right() -> bool:
            y = function(x)
            want = self.expected(self.all_values(count, seed))
            return y.requires_grad and self._torch.equal(y.detach(), want)

        return lambda: function(x), is_right

    def forward_backward(self, count: int, seed: int) -> tuple[Once, Callable[[], bool]]:
        function = self.allreduce()
        x = self.values(count, seed, self.rank).requires_grad_()
        g = self.values(count, seed + 1, self.rank)

        def once() -> None:
            y = function(x)
            y.backward(g)
            x.grad = None

        def is_right() -> bool:
            function(x).backward(g)
            right = self._torch.equal(x.grad, self.expected(self.all_values(count, seed + 1)))
            x.grad = None
            return right

        return once, is_right


class Clone(_Torch):
    """A node that torch itself brings: nobody can say that it was made to suit weft."""

    def allreduce(self) -> Callable[[Any], Any]:
        return self._torch.Tensor.clone

    def expected(self, parts: list[Any]) -> Any:
        return parts[self.rank]


class Weft(_Torch):
    """weft.mpi."""

    def __init__(self, store: str, rank: int, ranks: int):
        super().__init__(store, rank, ranks)
        import torch.distributed as dist

        import weft
        from weft import mpi

        weft.init(store=dist.FileStore(store, ranks), rank=rank, size=ranks)
        self._comm = mpi.COMM_WORLD

        self._clone = Clone(store, rank, ranks)
        self.clone_forward = self._clone.forward
        self.clone_forward_backward = self._clone.forward_backward

    def tidy(self) -> None:
        """Recorded operations without a backward would wait for one."""
        self._comm.detach_history()

    def allreduce(self) -> Callable[[Any], Any]:
        return self._comm.Allreduce

    def kept_forward_backward(self, count: int, seed: int) -> tuple[Once, Any]:
        """What forward and backward communicate, with results that are there already."""
        allreduce = self._comm.weft_comm.allreduce
        sources = [self.values(count, seed + i, self.rank) for i in (0, 1)]
        results = [self._torch.full((count,), float("nan")) for _ in sources]

        def once() -> None:
            for source, result in zip(sources, results, strict=True):
                allreduce(source, out=result)

        def is_right() -> bool:
            once()
            wanted = [self.expected(self.all_values(count, seed + i)) for i in (0, 1)]
            return all(map(self._torch.equal, results, wanted))

        return once, is_right

    def alltoall(self, count: int, seed: int, grad: bool = False) -> tuple[Once, Any]:
        comm, count = self._comm, self.divisible(count)
        x = self.values(count, seed, self.rank).requires_grad_(grad)

        def is_right() -> bool:
            each = count // self.ranks
            mine = slice(self.rank * each, (self.rank + 1) * each)
            want = self._torch.cat([part[mine] for part in self.all_values(count, seed)])
            y = comm.Alltoall(x)
            return y.requires_grad == grad and self._torch.equal(y.detach(), want)

        return lambda: comm.Alltoall(x), is_right

    def alltoall_grad(self, count: int, seed: int) -> tuple[Once, Any]:
        return self.alltoall(count, seed, True)

    def ring(self, count: int, seed: int, grad: bool = False) -> tuple[Once, Any]:
        comm, left, right = self._comm, self.left, self.right
        x = self.values(count, seed, self.rank).requires_grad_(grad)
        like = self._torch.full((count,), float("nan"))

        def once() -> Any:
            sent = comm.Isend(x, right)
            received = comm.Irecv(like, left)
            comm.Wait(sent)
            return comm.Wait(received)

        def is_right() -> bool:
            y = once()
            same = self._torch.equal(y.detach(), self.values(count, seed, left))
            return y.requires_grad == grad and same

        return once, is_right

    def ring_grad(self, count: int, seed: int) -> tuple[Once, Any]:
        return self.ring(count, seed, True)


class Gloo(_Torch):
    """torch.distributed.nn.functional."""

    def __init__(self, store: str, rank: int, ranks: int):
        super().__init__(store, rank, ranks)
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)

    def allreduce(self) -> Callable[[Any], Any]:
        from torch.distributed.nn.functional import all_reduce

        return all_reduce


class Mpi4py(System):
    """Kept buffers whose type MPI is told: its fastest way."""

    def __init__(self, store: str, rank: int, ranks: int):
        import numpy
        from mpi4py import MPI

        self._mpi, self._np = MPI, numpy
        self._comm = MPI.COMM_WORLD
        super().__init__(store, self._comm.rank, self._comm.size)

    def _values(self, count: int, seed: int, rank: int) -> Any:
        source = self._np.random.default_rng(seed * 1000 + rank)
        some = source.integers(1, 1025, min(count, 1 << 20)).astype("f")
        return self._np.resize(some, count)

    def _buffers(self, count: int, seed: int) -> tuple[Any, Any, list[Any], list[Any]]:
        x = self._values(count, seed, self.rank)
        y: Any = self._np.full(count, self._np.nan, "f")
        return x, y, [x, self._mpi.FLOAT], [y, self._mpi.FLOAT]

    def _reduce(self, count: int, seed: int, calls: int) -> tuple[Once, Any]:
        _x, y, send, receive = self._buffers(count, seed)
        allreduce = self._comm.Allreduce

        def once() -> None:
            for _ in range(calls):
                allreduce(send, receive)

        def is_right() -> bool:
            once()
            want = sum(self._values(count, seed, rank) for rank in range(self.ranks))
            return bool((y == want).all())

        return once, is_right

    def forward(self, count: int, seed: int) -> tuple[Once, Any]:
        return self._reduce(count, seed, 1)

    def forward_backward(self, count: int, seed: int) -> tuple[Once, Any]:
        return self._reduce(count, seed, 2)

    def alltoall(self, count: int, seed: int) -> tuple[Once, Any]:
        count = self.divisible(count)
        _x, y, send, receive = self._buffers(count, seed)
        alltoall = self._comm.Alltoall

        def is_right() -> bool:
            alltoall(send, receive)
            each = count // self.ranks
            mine = slice(self.rank * each, (self.rank + 1) * each)
            parts = [self._values(count, seed, rank)[mine] for rank in range(self.ranks)]
            return bool((y == self._np.concatenate(parts)).all())

        return lambda: alltoall(send, receive), is_right

    def ring(self, count: int, seed: int) -> tuple[Once, Any]:
        _x, y, send, receive = self._buffers(count, seed)
        comm, left, right = self._comm, self.left, self.right

        def once() -> None:
            sent = comm.Isend(send, right)
            received = comm.Irecv(receive, left)
            sent.Wait()
            received.Wait()

        def is_right() -> bool:
            once()
            return bool((y == self._values(count, seed, left)).all())

        return once, is_right


SYSTEMS = {"weft": Weft, "gloo": Gloo, "mpi4py": Mpi4py}


class Worker:
    """Checks and blocks, as the coordinator asks for them."""

    def __init__(self, system: Any, page: Page):
        self._system, self._page = system, page

    def _prepared(self, op: str, bytes_: int, seed: int) -> tuple[Once, Callable[[], bool]]:
        return getattr(self._system, op)(max(bytes_ // 4, 1), seed)

    def check(self, op: str, bytes_: int, seed: int) -> None:
        _once, is_right = self._prepared(op, bytes_, seed)
        right = is_right()
        self._system.tidy()
        if not right:
            raise ValueError(f"{op} of {bytes_} bytes is wrong")

    def block(self, op: str, bytes_: int, ms: float, seed: int) -> list[float]:
        once, _is_right = self._prepared(op, bytes_, seed)
        # What talks to nobody has no placement.
        probe = (lambda: 0.0) if op.startswith("clone") else self._page.probe
        self._page.sync()
        before = probe()
        figures = self._time(once, ms)
        self._system.tidy()
        return [before, probe(), *figures]

    def _time(self, once: Once, ms: float) -> list[float]:
        """Median, fastest, slowest and number of the calls, as in driver/timed.c."""
        clock = time.perf_counter_ns
        start = clock()
        once()
        warm = self._page.agree(2 if clock() - start > _SLOW_NS else 20)
        start = clock()
        for _ in range(warm):
            once()
        each = (clock() - start) / warm
        group = self._page.agree(next((n for most, n in _GROUPS if each < most), 1))
        fit = int(ms * 1e6 / (each * group))
        samples = self._page.agree(min(max(fit, 4), _MOST_CALLS // group))
        turns = range(group)
        ns = []
        then = clock()
        for _ in range(samples):
            for _ in turns:
                once()
            now = clock()
            ns.append((now - then) / group)
            then = now
        self._page.sync()
        return [statistics.median(ns), min(ns), max(ns), samples * group]


def main() -> int:
    name, library, store, _serve, address, path, cores = sys.argv[1:]
    rank, ranks = int(os.environ.get("BENCH_RANK", "0")), int(os.environ.get("BENCH_RANKS", "1"))
    chosen = [int(core) for core in cores.split(",")]
    pinned = "BENCH_FREE" not in os.environ
    if name != "mpi4py":
        # Before a backend starts its threads, which inherit it.
        os.sched_setaffinity(0, {chosen[rank % len(chosen)]} if pinned else chosen)
    warnings.simplefilter("ignore")
    try:
        system = SYSTEMS[name](store, rank, ranks)
    except (ImportError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    rank, ranks = system.rank, system.ranks
    if name == "mpi4py":  # who it is, it knows only now
        os.sched_setaffinity(0, {chosen[rank % len(chosen)]})
    # One core means to the page that there is no placement to probe: a rank that is not pinned has
    # none.
    page = Page(library, path, rank, ranks, len(chosen) if pinned else 1)
    serve(address, rank, ranks, Worker(system, page))


if __name__ == "__main__":
    sys.exit(main())
