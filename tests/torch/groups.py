# SPDX-License-Identifier: Apache-2.0
"""Run a function on several ranks of a process group.

    def body(factor): ...                    # runs in every rank; returns a value
    groups.run(3, body, 2.0)                 # a list with what each rank returned
    groups.same_as_gloo(2, body, 2.0)        # the same results over weft and gloo

Ranks are forked, because importing torch takes longer than most tests. So a
test module does nothing with torch at its top that starts threads.
"""

import dataclasses
import datetime
import multiprocessing
import os
import pickle
import signal
import tempfile
import time
import traceback
import warnings

import torch
import torch.distributed as dist
import weft.torch  # noqa: F401  registers the backend

DEADLINE = 180.0  # seconds; a rank that takes longer is killed and reported
TIMEOUT = datetime.timedelta(seconds=60)
TORCH = tuple(int(n) for n in torch.__version__.split(".")[:2])

_context = multiprocessing.get_context("fork")


@dataclasses.dataclass
class Ended:
    """How a rank ended: with a value, an error, or a signal."""

    value: object = None
    error: str | None = None


def run(size, body, *args, backend="weft", environment=None):
    """Run `body(*args)` in a group of `size` ranks; return what each returned."""
    ended = start(size, body, *args, backend=backend, environment=environment)
    problems = [f"rank {i}: {e.error}" for i, e in enumerate(ended) if e.error]
    assert not problems, "\n".join(problems)
    return [e.value for e in ended]


def start(size, body, *args, backend="weft", environment=None):
    """The same, but tell how each rank ended."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(size):
            ours, theirs = _context.Pipe(duplex=False)
            place = (os.path.join(folder, "store"), rank, size, backend, environment or {})
            process = _context.Process(target=_child, args=(theirs, place, body, args))
            process.start()
            theirs.close()
            ranks.append((process, ours))
        end = time.monotonic() + DEADLINE
        return [_collect(process, pipe, end) for process, pipe in ranks]


def same_as_gloo(size, body, *args, exact=True):
    """`body` returns tensors; they must be the same over both backends."""
    ours = run(size, body, *args)
    theirs = run(size, body, *args, backend="gloo")
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-6}
    for mine, peer in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, peer, **tolerance)


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
        return Ended(error="did not end in time")
    if ended is None or (process.exitcode != 0 and ended.error is None):
        return Ended(error=f"ended with {process.exitcode}")
    return ended


def _child(pipe, place, body, args):
    file, rank, size, backend, environment = place
    os.environ.update(environment)
    dist.set_debug_level_from_env()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        store = dist.FileStore(file, size)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        torch.manual_seed(0)
        value = body(*args)
        # A gloo group that ends on one of its own threads aborts the process.
        if dist.is_initialized() and backend == "weft":
            dist.destroy_process_group()
        ended = Ended(value=value)
    except BaseException:
        ended = Ended(error=traceback.format_exc())
    pipe.send_bytes(pickle.dumps(ended))
    pipe.close()
    os._exit(0)
