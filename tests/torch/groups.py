# SPDX-License-Identifier: Apache-2.0
"""Run a function on several ranks of a process group.

    def body(factor): ...                    # runs in every rank; returns a value
    groups.run(3, body, 2.0)                 # a list with what each rank returned
    groups.same_as_gloo(2, body, 2.0)        # the same results over weft and gloo

With WT_SHARE_ALL in the environment every tensor of every rank lies in the arena, where there is
room: weft.torch.share_all.

Ranks are forked, because importing torch takes longer than most tests. So a
test module does nothing with torch at its top that starts threads.
"""

import datetime
import os
import signal
import tempfile
import warnings

import processes
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import weft.torch
from processes import FORK, SPAWN  # noqa: F401  for those who say which

DEADLINE = 180.0  # seconds; a rank that takes longer is killed and reported
TIMEOUT = datetime.timedelta(seconds=60)
TORCH = tuple(int(n) for n in torch.__version__.split(".")[:2])


def run(size, body, *args, backend="weft", environment=None, context=FORK):
    """Run `body(*args)` in a group of `size` ranks; return what each returned."""
    ended = start(size, body, *args, backend=backend, environment=environment, context=context)
    return processes.values(ended)


def start(size, body, *args, backend="weft", environment=None, context=FORK):
    """The same, but tell how each rank ended."""
    with tempfile.TemporaryDirectory() as folder:
        place = (os.path.join(folder, "store"), size, backend, environment or {})
        return processes.start(
            size,
            _rank,
            place,
            body,
            args,
            deadline=DEADLINE,
            context=context,
            spread=backend == "weft",
        )


def same_as_gloo(size, body, *args, exact=True, context=FORK):
    """`body` returns tensors; they must be the same over both backends."""
    ours = run(size, body, *args, context=context)
    theirs = run(size, body, *args, backend="gloo", context=context)
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-6}
    for mine, peer in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, peer, **tolerance)


def meet(where):
    """Called in ranks: wait for all of them in the store, beside the group.

    After a collective of the group a rank may be gone while another is still in it.
    """
    store = c10d._get_default_store()
    store.set(f"{where} {dist.get_rank()}", "")
    store.wait([f"{where} {rank}" for rank in range(dist.get_world_size())])


def _rank(rank, place, body, args):
    file, size, backend, environment = place
    os.environ.update(environment)
    dist.set_debug_level_from_env()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if "WT_SHARE_ALL" in os.environ and backend == "weft":
        weft.torch.share_all(minimum=1)
    store = dist.FileStore(file, size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    torch.manual_seed(0)
    value = body(*args)
    # A gloo group that ends on one of its own threads aborts the process.
    if dist.is_initialized() and backend in ("weft", "sml"):
        dist.destroy_process_group()
    return value


class DieInBackward(torch.autograd.Function):
    """The identity; its backward is the end of rank 1."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return grad
