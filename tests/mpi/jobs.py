# SPDX-License-Identifier: Apache-2.0
"""Run a function on several ranks of a weft job.

    def body(comm, factor): ...              # runs in every rank; returns a value
    jobs.run(3, body, 2.0)                   # a list with what each rank returned
    jobs.errors(2, body)                     # what each rank raised, as text

Ranks are forked, because importing torch takes longer than most tests.
"""

import os
import sys
import tempfile
import warnings

import processes
import torch
import torch.distributed as dist
import weft
from processes import FORK, SPAWN  # noqa: F401  for those who say which
from weft import mpi

DEADLINE = 300.0  # seconds; a rank that takes longer is killed and reported
TIMEOUT = 60.0
FULL = os.environ.get("WT_FULL") == "1"
SIZES = (1, 2, 3, 5, 7) if FULL else (1, 2, 3, 5)

# What these import when they are first used, ranks would import each.
torch.testing.assert_close(torch.ones(1), torch.ones(1))
torch.vmap(torch.func.grad(lambda x: x.sum()))(torch.ones(2, 2))


def run(size, body, *args, timeout=TIMEOUT, context=FORK):
    """Run `body(comm, *args)` on `size` ranks; return what each returned."""
    return processes.values(start(size, body, *args, timeout=timeout, context=context))


def each(comm, bodies):
    """A body for run(): many, one after the other, and one that fails is named."""
    for body in bodies:
        try:
            body(comm)
            comm.detach_history()
            comm.Barrier()
        except BaseException as error:
            raise AssertionError(f"{body.__name__}: {error!r}") from error


def errors(size, body, *args, timeout=TIMEOUT):
    """The text of what each rank raised; None where it raised nothing."""
    return [ended.error for ended in start(size, body, *args, timeout=timeout)]


def start(size, body, *args, timeout=TIMEOUT, context=FORK):
    """The same, but tell how each rank ended."""
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        place = (os.path.join(folder, "store"), size, timeout)
        return processes.start(size, _rank, place, body, args, deadline=DEADLINE, context=context)


def _rank(rank, place, body, args):
    file, size, timeout = place
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    weft.init(store=dist.FileStore(file, size), rank=rank, size=size, timeout=timeout)
    torch.manual_seed(rank)
    value = body(mpi.COMM_WORLD, *args)
    weft.finalize()
    return value
