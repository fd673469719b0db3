# SPDX-License-Identifier: Apache-2.0
"""Run a function on several ranks of a weft job.

    def body(comm, factor): ...              # runs in every rank; returns a value
    jobs.run(3, body, 2.0)                   # a list with what each rank returned
    jobs.errors(2, body)                     # what each rank raised, as text

Ranks are forked, because importing torch takes longer than most tests.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
import warnings

import torch
import torch.distributed as dist
import weft
from weft import mpi

DEADLINE = 150.0  # seconds; a rank that takes longer is killed and reported
TIMEOUT = 60.0
FULL = os.environ.get("WT_FULL") == "1"
SIZES = (1, 2, 3, 5, 7) if FULL else (1, 2, 3, 5)

FORK = multiprocessing.get_context("fork")
# For bodies that use a GPU: the engine's threads for it do not survive a fork.
SPAWN = multiprocessing.get_context("spawn")

# What these import when they are first used, ranks would import each.
torch.testing.assert_close(torch.ones(1), torch.ones(1))
torch.vmap(torch.func.grad(lambda x: x.sum()))(torch.ones(2, 2))


def run(size, body, *args, timeout=TIMEOUT, context=FORK):
    """Run `body(comm, *args)` on `size` ranks; return what each returned."""
    ended = start(size, body, *args, timeout=timeout, context=context)
    problems = [f"rank {i}: {error}" for i, (_, error) in enumerate(ended) if error]
    assert not problems, "\n".join(problems)
    return [value for value, _ in ended]


def errors(size, body, *args, timeout=10.0):
    """The text of what each rank raised; None where it raised nothing."""
    return [error for _, error in start(size, body, *args, timeout=timeout)]


def start(size, body, *args, timeout=TIMEOUT, context=FORK):
    """The same, but tell how each rank ended: (value, error)."""
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(size):
            ours, theirs = context.Pipe(duplex=False)
            place = (os.path.join(folder, "store"), rank, size, timeout)
            process = context.Process(target=_child, args=(theirs, place, body, args))
            process.start()
            theirs.close()
            ranks.append((process, ours))
        end = time.monotonic() + DEADLINE
        return [_collect(process, pipe, end) for process, pipe in ranks]


def _collect(process, pipe, end):
    ended = None
    try:
        if pipe.poll(max(0.0, end - time.monotonic())):
            ended = pickle.loads(pipe.recv_bytes())
    except EOFError:
        pass
    process.join(max(1.0, end - time.monotonic()))
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        return None, "did not end in time"
    if ended is None or (process.exitcode != 0 and ended[1] is None):
        return None, f"ended with {process.exitcode}"
    return ended


def _child(pipe, place, body, args):
    file, rank, size, timeout = place
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        weft.init(store=dist.FileStore(file, size), rank=rank, size=size, timeout=timeout)
        torch.manual_seed(rank)
        ended = (body(mpi.COMM_WORLD, *args), None)
        weft.finalize()
    except BaseException:
        ended = (None, traceback.format_exc())
    pipe.send_bytes(pickle.dumps(ended))
    pipe.close()
    os._exit(0)
