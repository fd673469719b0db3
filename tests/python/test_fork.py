# SPDX-License-Identifier: Apache-2.0
"""Forked children of ranks with operations under way: they end in every way that a process can end,
and call what they like; their parents' jobs go on.
"""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback

import numpy as np
import pytest
import ranks
import weft

WAYS = ("exit at once", "sys.exit", "return")
LARGE = 1 << 20  # elements; more than any ring holds
LONG = 1800  # seconds: what waits for a deadline does not end in time
IN_TIME = 60


class Child(Exception):
    """Raised in a child that shall return from everything it is in."""


def fork(body, way):
    """Fork a child that calls `body` and ends in this `way`; the parent checks that it did."""
    sys.stdout.flush()
    pid = os.fork()
    if pid != 0:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status == 0, f"the child that was to end by {way!r} ended with {status}"
        return
    signal.alarm(IN_TIME)
    try:
        body()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    if way == "exit at once":
        os._exit(0)
    if way == "sys.exit":
        sys.exit(0)
    raise Child


def in_children(*bodies):
    for body in bodies:
        for way in WAYS:
            fork(body, way)


def told(call, *args, error=Exception, **kwargs):
    with pytest.raises(error, match="forked"):
        call(*args, **kwargs)


def nothing():
    pass


def returning(body):
    """A body that a child of it, too, returns from."""
    with contextlib.suppress(Child):
        body()


# --- weft itself ---------------------------------------------------------------


def core_body():
    returning(with_core)


def with_core():
    world = weft.init(timeout=LONG)
    comm = world.comm
    other = 1 - world.rank
    data = np.full(LARGE, 1.0 + world.rank)
    into = np.zeros(LARGE)
    sums = np.ones(4)
    table = weft.full((4, 2), 1.0, like="numpy")
    if world.rank == 0:
        sent = comm.isend(data, other)
        received = comm.irecv(into, other)
        summed = comm.iallreduce(sums)

        def use():
            for request in (sent, received, summed):
                told(request.wait, error=weft.ClosedError)
                told(request.test, error=weft.ClosedError)
            told(comm.barrier, error=weft.ClosedError)
            told(weft.region(table).barrier, error=weft.ClosedError)
            assert table.sum() == 8

        in_children(nothing, use)
        comm.send(np.zeros(1), other, tag=9)  # nothing comes before
        received.wait()
        summed.wait()
    else:
        comm.recv(np.zeros(1), other, tag=9)
        sent = comm.isend(data, other)
        comm.recv(into, other)
        sums = comm.allreduce(sums)
    sent.wait()
    assert (into == 1.0 + other).all()
    comm.barrier()
    weft.region(table).barrier()


def test_a_child_takes_nothing_from_requests_of_its_parent():
    ranks.run(2, core_body, seconds=IN_TIME)


# --- weft.mpi ------------------------------------------------------------------


def mpi_body():
    returning(with_mpi)


def with_mpi():
    import torch
    from weft import mpi

    weft.init(timeout=LONG)
    comm = mpi.COMM_WORLD
    other = 1 - comm.rank
    x = torch.full((LARGE,), 1.0 + comm.rank, requires_grad=True)
    if comm.rank == 0:
        handle = comm.Isend(x, other, 3)
        summed = comm.Iallreduce(torch.ones(4))
        lined_up = [comm.Irecv(torch.empty_like(x), mpi.ANY_SOURCE, 4) for _ in range(2)]

        def use():
            for one in lined_up:
                told(comm.Wait, one)
            told(comm.Wait, handle)
            told(comm.Wait, summed)
            told(comm.Allreduce, torch.ones(4))
            told(comm.Send, torch.ones(4), other)
            told(comm.Recv, torch.ones(4), other)
            told(comm.Barrier)
            told(mpi.backward, x.sum() * 0)
            comm.Free()

        in_children(nothing, use)
        comm.Send(torch.ones(1), other, 9)
        y = comm.Recv(torch.empty_like(x), other, 3)
        for one in lined_up:
            assert (comm.Wait(one) == 1.0 + other).all()
        total = comm.Wait(summed)
    else:
        comm.Recv(torch.ones(1), other, 9)
        handle = comm.Isend(x, other, 3)
        y = comm.Recv(torch.empty_like(x), other, 3)
        for _ in range(2):
            comm.Send(x.detach(), other, 4)
        total = comm.Allreduce(torch.ones(4))
    done = comm.Wait(handle)
    assert (y == 1.0 + other).all() and (total == 2).all()
    mpi.backward(y.sum() + 0 * done.sum())
    assert (x.grad == 1).all()
    comm.Barrier()


def test_nor_from_those_of_weft_mpi():
    ranks.run(2, mpi_body, seconds=2 * IN_TIME)


# --- torch.distributed ---------------------------------------------------------


def dist_body(folder):
    returning(lambda: with_dist(folder))


def with_dist(folder):
    import datetime

    import torch
    import torch.distributed as dist
    import weft.torch  # noqa: F401  registers the backend

    rank = int(os.environ["WEFT_RANK"])
    dist.init_process_group(
        "weft",
        store=dist.FileStore(os.path.join(folder, "store"), 2),
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=LONG),
    )
    data = torch.full((LARGE,), 1.0 + rank)
    into = torch.zeros(LARGE)
    total = torch.ones(4)
    if rank == 0:
        sent = dist.isend(data, 1)
        received = dist.irecv(into, 1)
        summed = dist.all_reduce(total, async_op=True)
        future = summed.get_future()

        def use():
            for work in (sent, received, summed):
                assert work.is_completed()
                told(work.wait)
            told(future.wait)
            told(dist.all_reduce, torch.ones(4))
            told(dist.barrier)
            told(dist.send, torch.ones(4), 1)
            dist.destroy_process_group()

        def ask():
            assert sent.is_completed()

        in_children(nothing, ask, use)
        dist.send(torch.zeros(1), 1, tag=9)
        received.wait()
        summed.wait()
    else:
        dist.recv(torch.zeros(1), 0, tag=9)
        sent = dist.isend(data, 0)
        dist.recv(into, 0)
        dist.all_reduce(total)
    sent.wait()
    assert (into == 2.0 - rank).all() and (total == 2).all()
    dist.barrier()
    dist.destroy_process_group()


def test_nor_from_those_of_torch_distributed(tmp_path):
    ranks.run(2, dist_body, str(tmp_path), seconds=2 * IN_TIME)


# --- while another thread is inside a call -------------------------------------


def thread_body(folder):
    returning(lambda: with_thread(folder))


def inside_of(call, world):
    """A thread that is inside a call which waits for rank 1."""
    thread = threading.Thread(target=call)
    thread.start()
    while ": in allreduce" not in world.dump().splitlines()[0]:
        time.sleep(0.001)
    return thread


def with_thread(folder):
    import torch
    import torch.distributed as dist
    import weft.torch
    from weft import mpi

    weft.init(timeout=LONG)
    comm = mpi.COMM_WORLD
    beside = comm.Dup()
    store = dist.FileStore(os.path.join(folder, "store"), 2)
    dist.init_process_group("weft", store=store, rank=comm.rank, world_size=2)
    for call, on in (
        (lambda: comm.Allreduce(torch.ones(4)), comm),
        (lambda: dist.all_reduce(torch.ones(4)), mpi.Comm(dist.group.WORLD)),
    ):
        if comm.rank == 0:
            thread = inside_of(call, on.weft_comm.world)

            def use(call=call):
                told(call)
                told(beside.Barrier)
                told(beside.Isend, torch.ones(4), 1)

            in_children(nothing, use)
            beside.Send(torch.ones(1), 1, 5)
            thread.join()
        else:
            beside.Recv(torch.ones(1), 0, 5)
            call()
    beside.Barrier()
    dist.destroy_process_group()


def test_nor_from_a_thread_that_is_inside_a_call(tmp_path):
    ranks.run(2, thread_body, str(tmp_path), seconds=2 * IN_TIME)
