# SPDX-License-Identifier: Apache-2.0
"""One rank of a gloo job: what driver/measure.c does, through torch.distributed.

Started as a script, so that it imports nothing but torch:

    gloo_rank.py PAGE_LIBRARY STORE_FILE --serve SOCKET PAGE CORES
"""

import ctypes
import mmap
import os
import socket
import statistics
import sys
import time
from typing import NoReturn


class Page:
    """The functions of driver/page.h, from the shared object at `library`."""

    def __init__(self, library, path, rank, ranks, cores):
        lib = ctypes.CDLL(library)
        lib.page_open.restype = ctypes.c_void_p
        lib.page_open.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]
        lib.page_sync.argtypes = [ctypes.c_void_p]
        lib.page_agree.restype = ctypes.c_uint64
        lib.page_agree.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        lib.page_probe.restype = ctypes.c_double
        lib.page_probe.argtypes = [ctypes.c_void_p]
        self._lib = lib
        self._at = lib.page_open(path.encode(), rank, ranks, cores)
        if not self._at:
            raise OSError(f"cannot map {path}")

    def sync(self):
        self._lib.page_sync(self._at)

    def agree(self, value):
        return self._lib.page_agree(self._at, value)

    def probe(self):
        return self._lib.page_probe(self._at)


# By torch's names: which operations have a block for each rank in their source or result, take
# a root, and leave the result where the source was (torch's reduce knows no other way).
SRC_FOR_ALL = ("reduce_scatter", "alltoall", "scatter")
DST_FOR_ALL = ("allgather", "alltoall", "gather")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
IN_PLACE = ("allreduce", "barrier", "broadcast", "reduce", "cycle")


class Rank:
    """Checks and blocks for gloo."""

    def __init__(self, torch, page, rank, ranks):
        self._torch, self._page, self._rank, self._ranks = torch, page, rank, ranks
        self._dist = torch.distributed
        self._dtype = torch.float32
        self._highest = 1024
        self._root = 0
        self._turn = 0

    def _tensor(self, bytes_):
        """A tensor on 4 KiB pages, as the other drivers have it."""
        memory = mmap.mmap(-1, max(bytes_, 4))
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        count = max(bytes_ // self._dtype.itemsize, 1)
        return self._torch.frombuffer(memory, dtype=self._dtype, count=count)

    def _tensors(self, op, bytes_):
        """The source and the result; one and the same in place."""
        src = self._tensor(bytes_ * (self._ranks if op in SRC_FOR_ALL else 1))
        if op in IN_PLACE:
            return src, src
        return src, self._tensor(bytes_ * (self._ranks if op in DST_FOR_ALL else 1))

    def _values(self, count, seed, rank):
        source = self._torch.Generator().manual_seed(seed * 1000 + rank)
        shape = {"size": (count,), "generator": source, "dtype": self._dtype}
        return self._torch.randint(1, self._highest + 1, **shape)

    def _fill(self, tensor, seed):
        """Fresh numbers to be timed with; drawing 256 MiB of them would take seconds."""
        some = self._values(min(tensor.numel(), 1 << 20), seed, self._rank)
        for part in tensor.split(some.numel()):
            part.copy_(some[: part.numel()])

    def _expected(self, op, count, seed, root):
        """What must be in the result, from the sources of `count` elements, block by block."""
        ranks, block = range(self._ranks), count // self._ranks
        whole, mine = slice(None), slice(self._rank * block, (self._rank + 1) * block)
        part = mine if op in SRC_FOR_ALL else whole
        sources = (self._values(count, seed, rank)[part] for rank in ranks)
        if op in ("broadcast", "scatter"):
            yield self._values(count, seed, root)[part]
        elif op in DST_FOR_ALL:
            yield from sources
        else:
            yield sum(sources)

    def _is_right(self, op, dst, count, seed, root):
        blocks = dst.chunk(self._ranks if op in DST_FOR_ALL else 1)
        expected = self._expected(op, count, seed, root)
        return all(map(self._torch.equal, blocks, expected))

    def check(self, op, bytes_, seed):
        if op == "barrier":
            self._dist.barrier()
            return
        src, dst = self._tensors(op, bytes_)
        call = self._caller(op, src, dst)
        for root in range(self._ranks if op in ROOTED else 1):
            dst.fill_(-1.0)
            if op != "broadcast" or root == self._rank:
                src.copy_(self._values(src.numel(), seed, self._rank))
            call(root)
            if op in ("reduce", "gather") and root != self._rank:
                continue
            if not self._is_right(op, dst, src.numel(), seed, root):
                raise ValueError(f"{op} of {bytes_} bytes from root {root} is wrong")

    def _caller(self, op, src, dst):
        """A function of the root that does one call on kept tensors."""
        dist, me = self._dist, self._rank
        parts = {"gather": dst, "scatter": src}.get(op)
        parts = None if parts is None else list(parts.chunk(self._ranks))
        return {
            "allreduce": lambda root: dist.all_reduce(src),
            "cycle": lambda root: dist.all_reduce(src),
            "barrier": lambda root: dist.barrier(),
            "broadcast": lambda root: dist.broadcast(src, root),
            "reduce": lambda root: dist.reduce(src, root),
            "reduce_scatter": lambda root: dist.reduce_scatter_tensor(dst, src),
            "allgather": lambda root: dist.all_gather_into_tensor(dst, src),
            "alltoall": lambda root: dist.all_to_all_single(dst, src),
            "gather": lambda root: dist.gather(src, parts if root == me else None, root),
            "scatter": lambda root: dist.scatter(dst, parts if root == me else None, root),
        }[op]

    def block(self, op, bytes_, ms, seed):
        src, dst = self._tensors(op, bytes_)
        self._fill(dst, seed + 1)
        self._fill(src, seed)
        call = self._caller(op, src, dst)
        together = self._ranks if op in ROOTED else 1
        self._root = 0
        self._page.sync()
        before = self._page.probe()
        if op == "cycle":
            figures = self._cycle(call, src, ms)
        else:
            figures = self._time(lambda: self._next(call), together, ms)
        return [before, self._page.probe(), *figures]

    def _next(self, call):
        call(self._root)
        self._root = (self._root + 1) % self._ranks

    def _cycle(self, call, tensor, ms):
        """Write, reduce and read, less write and read; see driver/cycle.h."""

        def local():
            self._turn += 1
            tensor.fill_(1.0 + self._turn % 1024)
            tensor.sum()

        def full():
            self._turn += 1
            tensor.fill_(1.0 + self._turn % 1024)
            call(0)
            tensor.sum()

        *times, calls = self._time(full, 1, ms / 2)
        less = self._time(local, 1, ms / 2)[0]
        return [*(ns - less for ns in times), calls]

    def _time(self, once, together, ms):
        """Median, fastest, slowest and number of the calls, as in driver/timed.c."""
        start = time.perf_counter_ns()
        once()
        slow = time.perf_counter_ns() - start > 10_000_000
        warm = self._page.agree(1 if slow else 4)
        start = time.perf_counter_ns()
        for _ in range(warm):
            once()
        each = (time.perf_counter_ns() - start) / warm * together
        # No call of gloo is short enough to be timed in groups.
        least = 4 if together == 1 else 2
        samples = self._page.agree(int(min(max(ms * 1e6 / each, least), 20000)))
        ns = []
        then = time.perf_counter_ns()
        for _ in range(samples):
            for _ in range(together):
                once()
            now = time.perf_counter_ns()
            ns.append((now - then) / together)
            then = now
        self._page.sync()
        return [statistics.median(ns), min(ns), max(ns), samples * together]


def _obey(sock, worker):
    """Do what the coordinator asks until it closes the socket."""
    while text := sock.recv(256).decode():
        verb, op, bytes_, _pages, ms, seed = text.split()
        try:
            if verb == "check":
                worker.check(op, int(bytes_), int(seed))
                answer = []
            else:
                answer = worker.block(op, int(bytes_), float(ms), int(seed))
            reply = " ".join(["ok", *(f"{figure:.2f}" for figure in answer)])
        except (RuntimeError, ValueError) as error:
            print(error, file=sys.stderr, flush=True)
            reply = "failed"
        sock.send(reply.encode())


def serve(address, rank, ranks, worker) -> NoReturn:
    """Obey the coordinator at `address`; the process ends with its last word."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(address)
        sock.send(f"hello {rank} {ranks}".encode())
        _obey(sock, worker)
    # Tearing a group down waits for peers; the job is over, so leave.
    sys.stderr.flush()
    os._exit(0)


def main():
    library, store, _serve, address, path, cores = sys.argv[1:]
    rank, ranks = int(os.environ["BENCH_RANK"]), int(os.environ["BENCH_RANKS"])
    chosen = [int(core) for core in cores.split(",")]
    # Before gloo starts its threads, which inherit it.
    os.sched_setaffinity(0, {chosen[rank % len(chosen)]})
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks
    )
    page = Page(library, path, rank, ranks, len(chosen))
    serve(address, rank, ranks, Rank(torch, page, rank, ranks))


if __name__ == "__main__":
    main()
