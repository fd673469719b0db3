# SPDX-License-Identifier: Apache-2.0
"""Sort numbers that are spread over all ranks.

    python examples/sort.py                         # alone
    torchrun --nproc-per-node 4 examples/sort.py    # or mpirun, srun, ...

Each rank sorts its own, looks at a few of everybody's to find out where to cut,
and sends each rank the numbers of its share. Shares differ in length, which is
what `counts` is for.
"""

import numpy as np
import weft

SAMPLES = 32  # of each rank


def sort(comm, mine):
    """This rank's share of everybody's numbers, in order; rank 0 has the smallest."""
    mine = np.sort(mine)
    samples = np.empty(SAMPLES * comm.size)
    comm.allgather(np.quantile(mine, np.linspace(0, 1, SAMPLES)), samples)
    cuts = np.quantile(samples, np.arange(1, comm.size) / comm.size)
    counts = np.diff(np.searchsorted(mine, cuts), prepend=0, append=len(mine))
    coming = comm.alltoall(counts, np.empty_like(counts))
    share = np.empty(coming.sum())
    comm.alltoall(mine, share, counts, coming)
    return np.sort(share)


def main():
    comm = weft.init().comm
    mine = np.random.default_rng(comm.rank).normal(comm.rank, 2, 100_000)
    share = sort(comm, mine)
    print(f"rank {comm.rank}: {len(share)} numbers from {share[0]:.3f} to {share[-1]:.3f}")

    lengths = comm.allgather(np.array(len(share)), np.empty(comm.size, int))
    everything = np.empty(lengths.sum()) if comm.rank == 0 else None
    comm.gather(share, everything, counts=lengths)
    total = comm.reduce(np.array([mine.sum(), len(mine)]))
    if comm.rank == 0:
        assert (np.diff(everything) >= 0).all() and len(everything) == total[1]
        assert np.isclose(everything.sum(), total[0])
        print(f"all {len(everything)} numbers are in order")


if __name__ == "__main__":
    main()
