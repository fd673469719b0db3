# SPDX-License-Identifier: Apache-2.0
"""One rank of torch.distributed on a host of its own, which torchrun's variables describe.

python -m weft.bench.hosts.rank BACKEND PAGE_LIBRARY STORE --serve SOCKET PAGE CORES
"""

from __future__ import annotations

import os
import sys
import warnings

from ..collectives.gloo_rank import Page, Rank, serve


def main() -> int:
    backend, library, _store, _serve, address, path, cores = sys.argv[1:]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    chosen = [int(core) for core in cores.split(",")]
    pinned = "BENCH_FREE" not in os.environ
    # Before a backend starts its threads, which inherit it.
    os.sched_setaffinity(0, {chosen[rank % len(chosen)]} if pinned else chosen)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if backend == "weft":
        import weft.torch  # noqa: F401  registers the backend
    try:
        dist.init_process_group(backend)
        dist.barrier()
    except (ImportError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    # One core means to the page that there is no placement to probe.
    serve(address, rank, ranks, Rank(torch, Page(library, path, rank, ranks, 1), rank, ranks))


if __name__ == "__main__":
    sys.exit(main())
