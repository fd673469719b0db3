# SPDX-License-Identifier: Apache-2.0
"""One rank of `weft bench torch`: what gloo_rank.py does, over any backend of torch.distributed.

    python -m weft.bench.torch.rank BACKEND PAGE_LIBRARY STORE --serve SOCKET PAGE CORES

The backend "noop" is torch's own "fake": a c10d::Backend in C++ that is reached by the same path as
weft and gloo, makes a Work for each call and does nothing else. It needs no compiler, and nobody
can say that it was made to suit weft.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from ..collectives.gloo_rank import Page, Rank, serve
from .operations import NAMES_IN_C, block_bytes

_MODEL_MS = 8  # a step takes milliseconds, so its block is so many times longer


class TorchRank(Rank):
    """Takes torch's names, and sizes of the larger tensor; knows models besides."""

    def __init__(self, torch: Any, page: Any, rank: int, ranks: int, shared: bool):
        super().__init__(torch, page, rank, ranks)
        self._shared = shared
        self._models: dict[str, Any] = {}

    def _choose(self, op: str) -> None:
        """The type, and numbers whose sums are exact in it."""
        half = op.endswith("bf16")
        self._dtype = self._torch.bfloat16 if half else self._torch.float32
        self._highest = 256 // self._ranks if half else 1024

    def _block_bytes(self, op: str, bytes_: int) -> int:
        return block_bytes(op, bytes_, self._ranks)

    def _tensor(self, bytes_: int) -> Any:
        if not self._shared:
            return super()._tensor(bytes_)
        import weft.torch

        with weft.torch.shared(minimum=1):
            tensor = self._torch.empty(max(bytes_ // self._dtype.itemsize, 1), dtype=self._dtype)
        if not weft.torch.is_shared(tensor):
            raise ValueError(f"the arena has no room for a tensor of {bytes_} bytes")
        return tensor

    def _model(self, op: str) -> Any:
        if op not in self._models:
            from .models import MAKERS

            self._models[op] = MAKERS[op]()
        return self._models[op]

    def check(self, op: str, bytes_: int, seed: int) -> None:
        if op in NAMES_IN_C:
            self._choose(op)
            super().check(NAMES_IN_C[op], self._block_bytes(op, bytes_), seed)
        else:
            self._model(op).check()

    def block(self, op: str, bytes_: int, ms: float, seed: int) -> list[float]:
        if op in NAMES_IN_C:
            self._choose(op)
            return super().block(NAMES_IN_C[op], self._block_bytes(op, bytes_), ms, seed)
        once = self._model(op).once
        self._page.sync()
        before = self._page.probe()
        figures = self._time(once, 1, ms * _MODEL_MS)
        return [before, self._page.probe(), *figures]


def _shares() -> bool:
    """Are tensors to lie in the arena?"""
    return "BENCH_SHARE" in os.environ


def _join(backend: str, store: str, rank: int, ranks: int) -> None:
    import torch.distributed as dist

    if backend == "noop":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
        return
    if backend == "weft":
        import weft.torch  # registers the backend

        if _shares():
            weft.torch.share_all()
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=ranks)


def main() -> int:
    backend, library, store, _serve, address, path, cores = sys.argv[1:]
    rank, ranks = int(os.environ["BENCH_RANK"]), int(os.environ["BENCH_RANKS"])
    chosen = [int(core) for core in cores.split(",")]
    pinned = "BENCH_FREE" not in os.environ
    # Before a backend starts its threads, which inherit it.
    os.sched_setaffinity(0, {chosen[rank % len(chosen)]} if pinned else chosen)
    import torch

    torch.set_num_threads(1)
    # Newer names of the same functions, which torch 2.11 does not have.
    warnings.simplefilter("ignore", FutureWarning)
    try:
        _join(backend, store, rank, ranks)
    except (ImportError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    # One core means to the page that there is no placement to probe: a rank that is not pinned has
    # none, and one that talks to nobody needs none.
    page = Page(library, path, rank, ranks, len(chosen) if pinned and backend != "noop" else 1)
    serve(address, rank, ranks, TorchRank(torch, page, rank, ranks, _shares()))


if __name__ == "__main__":
    sys.exit(main())
