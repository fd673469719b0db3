# SPDX-License-Identifier: Apache-2.0
"""A process for each rank, and how each of them ended."""

import contextlib
import dataclasses
import multiprocessing
import os
import pickle
import signal
import time
import traceback

import gpu
import on_hosts

# Importing torch takes longer than most tests.
FORK = multiprocessing.get_context("fork")
# For what uses a GPU: neither CUDA nor its threads in torch survive a fork.
SPAWN = multiprocessing.get_context("spawn")


@dataclasses.dataclass
class Ended:
    """How a rank ended: with a value, or with an error as text."""

    value: object = None
    error: str | None = None


def start(size, work, *args, deadline, context=FORK, spread=True):
    """Run `work(rank, *args)` in `size` processes; one that is later than `deadline` is killed.

    spread: they may be on several hosts (on_hosts)
    """
    if spread and size > 1 and on_hosts.MPI is not None:
        import launched

        return launched.start(size, work, *args, deadline=deadline)
    if spread:
        on_hosts.bed()  # made here, and not by each rank
    with gpu.shown() if context is SPAWN else contextlib.nullcontext():
        ranks = [_begin(rank, size if spread else 0, work, args, context) for rank in range(size)]
    end = time.monotonic() + deadline
    return [_collect(process, pipe, end) for process, pipe in ranks]


def _begin(rank, spread, work, args, context):
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(theirs, work, rank, spread, args))
    process.start()
    theirs.close()
    return process, ours


def outcome(work, rank, args):
    """Do it, in the process of that rank."""
    try:
        return Ended(value=work(rank, *args))
    except BaseException:
        return Ended(error=traceback.format_exc())


def values(ended):
    """What all of them returned; fails with the errors, if there are any."""
    problems = [f"rank {i}: {e.error}" for i, e in enumerate(ended) if e.error]
    assert not problems, "\n".join(problems)
    return [e.value for e in ended]


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


def _child(pipe, work, rank, spread, args):
    def there(rank, *args):
        if spread:
            on_hosts.enter(rank, spread)
        return work(rank, *args)

    pipe.send_bytes(pickle.dumps(outcome(there, rank, args)))
    pipe.close()
    os._exit(0)
