# SPDX-License-Identifier: Apache-2.0
"""One table of features that all ranks of a host read.

    python examples/features.py                         # alone
    torchrun --nproc-per-node 4 examples/features.py    # or mpirun, srun, ...

Each rank fills the rows that it owns. Then all of them gather random batches out
of the whole table, as a data loader for a graph or a recommender does. The
memory is there once, however many ranks there are: each prints how much of it is
its own and how much it sees.
"""

import argparse
import pathlib
import re

import numpy as np
import weft


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--batch", type=int, default=4096)
    return parser.parse_args()


def feature(rows, width):
    """What row number `i` holds, so that every reader can check it."""
    return (np.asarray(rows)[:, None] + np.arange(width) / width).astype("f4")


def proportional_megabytes():
    """Memory of shared tensors, each page divided by the processes that map it."""
    text = pathlib.Path("/proc/self/smaps").read_text()
    kilobytes = re.findall(r"a weft region(?:.*\n)*?Pss: +(\d+) kB", text)
    return sum(map(int, kilobytes)) / 1024


def main():
    options = parse()
    comm = weft.init().comm
    table = weft.empty((options.rows, options.width), "float32", like="numpy")
    region = weft.region(table)
    for first, after in region.ranges():
        table[first:after] = feature(range(first, after), options.width)
    region.barrier()  # from here on every rank sees every row

    generator = np.random.default_rng(comm.rank)
    batch = np.empty((options.batch, options.width), "f4")  # used again and again
    for _ in range(options.batches):
        ids = generator.integers(0, options.rows, options.batch)
        weft.gather(table, ids, batch)
        assert (batch == feature(ids, options.width)).all()

    table.sum()  # touch all of it, so that the system counts it
    region.barrier()
    stats = region.stats()
    print(
        f"rank {comm.rank}: sees {table.nbytes >> 20} MiB, owns {stats['own_bytes'] >> 20} MiB, "
        f"is charged {proportional_megabytes():.0f} MiB; gathered {stats['rows_own']} rows of its "
        f"own and {stats['rows_node']} of others",
        flush=True,
    )
    region.barrier()


if __name__ == "__main__":
    main()
