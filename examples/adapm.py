# SPDX-License-Identifier: Apache-2.0
"""A program for AdaPM's Python binding, which runs on weft as it is.

    python examples/adapm.py                         # one node
    torchrun --nproc-per-node 2 examples/adapm.py    # two nodes; or mpirun, srun, ...

Each process is a node: it has a server, and a worker in each of its threads. With the
distribution in compat/ the import is `import adapm`, as it was.
"""

import argparse
import threading

import numpy as np
import torch
from weft.compat import adapm


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--length", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2, help="threads of each node")
    parser.add_argument("--steps", type=int, default=50)
    return parser.parse_args()


def with_torch(kv, options):
    """Synchronous operations on tensors."""
    keys = torch.tensor([1, 2, 3, 4])
    values = torch.ones(len(keys), options.length)
    kv.push(keys, values)
    kv.pull(keys, values)
    kv.localize(keys)


def with_numpy(kv, options):
    """Asynchronous operations on arrays: each returns a timestamp to wait for."""
    keys = np.array([5, 6, 7])
    values = np.ones((len(keys), options.length), dtype=np.float32)
    kv.push(keys, values, True)
    timestamp = kv.pull(keys, values, True)
    kv.localize(keys, True)
    kv.wait(timestamp)
    kv.waitall()


def count_with_intent(kv, options):
    """Add one to a few keys in each step, and announce them three steps early."""
    ahead = 3
    random = torch.Generator().manual_seed(0)  # all workers use the same keys
    steps = torch.randint(options.keys, (options.steps, 20), generator=random)
    ones = torch.ones(20, options.length)
    for step in range(min(ahead, options.steps)):
        kv.intent(steps[step], step)
    for step, keys in enumerate(steps):
        if step + ahead < options.steps:
            kv.intent(steps[step + ahead], step + ahead)
        kv.push(keys, ones, True)
        kv.advance_clock()
    kv.waitall()
    return 20 * options.steps


def negative_samples(kv, options):
    """Keys that the store draws, with their values."""
    sample = kv.prepare_sample(8, kv.current_clock())
    keys, values = torch.empty(8, dtype=torch.int64), torch.empty(8, options.length)
    kv.wait(kv.pull_sample(sample, keys, values, True))
    assert ((keys >= 0) & (keys < options.keys)).all()


def run_worker(kv, options, report):
    with_torch(kv, options)
    with_numpy(kv, options)
    kv.begin_setup()  # all workers are here, and then all begin with zeros
    kv.set(torch.arange(options.keys), torch.zeros(options.keys, options.length))
    kv.end_setup()
    pushed = count_with_intent(kv, options)
    negative_samples(kv, options)
    for _ in range(2):  # after this everybody sees all pushes of all workers
        kv.wait_sync()
        kv.barrier()
    values = torch.empty(options.keys, options.length)
    kv.pull(torch.arange(options.keys), values)
    report.append((pushed, values[:, 0].double().sum().item()))
    kv.finalize()


def main():
    options = parse()
    adapm.scheduler(options.keys, options.workers)  # not needed; returns at once
    adapm.setup(options.keys, options.workers)
    server = adapm.Server(options.length)
    server.enable_sampling_support("naive", True, "uniform", 0, options.keys)
    report = []
    workers = [
        threading.Thread(target=run_worker, args=(adapm.Worker(i, server), options, report))
        for i in range(options.workers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(report) == options.workers, "a worker failed"
    if server.my_rank() == 0:
        for pushed, sum_of_all in report:
            assert sum_of_all % pushed == 0
            print(f"each worker has pushed {pushed} rows, and sees {sum_of_all:.0f}")
    server.shutdown()


if __name__ == "__main__":
    main()
