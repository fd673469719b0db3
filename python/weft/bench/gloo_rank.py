# SPDX-License-Identifier: Apache-2.0
"""One rank of a gloo job: the loops of driver/measure.c, through torch.distributed.

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


class Rank:
    """Checks and blocks for gloo."""

    def __init__(self, torch, page, rank, ranks):
        self._torch, self._page, self._rank, self._ranks = torch, page, rank, ranks
        self._dist = torch.distributed
        self._root = 0

    def _tensor(self, bytes_):
        """A tensor on 4 KiB pages, as the other drivers have it."""
        memory = mmap.mmap(-1, max(bytes_, 4))
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        return self._torch.frombuffer(memory, dtype=self._torch.float32)

    def _values(self, count, seed, rank):
        source = self._torch.Generator().manual_seed(seed * 1000 + rank)
        return self._torch.randint(1, 1025, (count,), generator=source, dtype=self._torch.float32)

    def check(self, op, bytes_, seed):
        tensor = self._tensor(bytes_)
        count = tensor.numel()
        if op == "barrier":
            self._dist.barrier()
        elif op == "allreduce":
            tensor.copy_(self._values(count, seed, self._rank))
            self._dist.all_reduce(tensor)
            want = sum(self._values(count, seed, rank) for rank in range(self._ranks))
            if not self._torch.equal(tensor, want):
                raise ValueError(f"allreduce of {bytes_} bytes is wrong")
        else:
            for root in range(self._ranks):
                want = self._values(count, seed, root)
                tensor.copy_(want if root == self._rank else self._torch.full((count,), -1.0))
                self._dist.broadcast(tensor, root)
                if not self._torch.equal(tensor, want):
                    raise ValueError(f"broadcast of {bytes_} bytes is wrong")

    def _run(self, op, tensor, calls):
        dist = self._dist
        for _ in range(calls):
            if op == "allreduce":
                dist.all_reduce(tensor)
            elif op == "broadcast":
                dist.broadcast(tensor, self._root)
                self._root = (self._root + 1) % self._ranks
            else:
                dist.barrier()

    def block(self, op, bytes_, ms, seed):
        tensor = self._tensor(bytes_)
        tensor.copy_(self._values(tensor.numel(), seed, self._rank))
        self._root = 0
        self._page.sync()
        before = self._page.probe()
        start = time.perf_counter_ns()
        self._run(op, tensor, 1)
        slow = time.perf_counter_ns() - start > 10_000_000
        warm = self._page.agree(1 if slow else 4)
        start = time.perf_counter_ns()
        self._run(op, tensor, warm)
        once = (time.perf_counter_ns() - start) / warm
        # No call of gloo is short enough to be timed in groups.
        samples = self._page.agree(int(min(max(ms * 1e6 / once, 4), 20000)))
        ns = []
        then = time.perf_counter_ns()
        for _ in range(samples):
            self._run(op, tensor, 1)
            now = time.perf_counter_ns()
            ns.append(now - then)
            then = now
        self._page.sync()
        after = self._page.probe()
        return [before, after, statistics.median(ns), min(ns), max(ns), samples]


def serve(sock, worker):
    """Obey the coordinator until it closes the socket."""
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
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(address)
        sock.send(f"hello {rank} {ranks}".encode())
        serve(sock, Rank(torch, page, rank, ranks))
    # Tearing a group down waits for peers; the job is over, so leave.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
