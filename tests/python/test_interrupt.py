# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in the middle of a blocking call."""

import os
import signal
import time

import numpy as np
import pytest
import ranks
import weft


def wait_until_in(world, rank, what):
    """Wait until `rank` has called an operation."""
    end = time.monotonic() + ranks.DEADLINE
    while f" in {what}" not in (line := world.dump().splitlines()[rank]):
        assert time.monotonic() < end, line


CALLS = {
    "barrier": lambda comm: comm.barrier(),
    "allreduce": lambda comm: comm.allreduce(np.ones(3)),
    "allgather": lambda comm: comm.allgather(np.ones(1), np.ones(comm.size)),
    "receive": lambda comm: comm.recv(bytearray(1), 1 - comm.rank),
}


def interrupted():
    world = weft.init(timeout=60)
    for name, blocking in CALLS.items():
        comm = world.comm.dup()
        if comm.rank == 0:
            with pytest.raises(KeyboardInterrupt):
                blocking(comm)
            assert comm.broken
        else:
            wait_until_in(world, 0, name)
            os.kill(world.peers[0].pid, signal.SIGINT)
        with pytest.raises(weft.AbortedError, match=r"rank 0.*interrupted"):
            while True:  # rank 1 may be here before rank 0 is told
                comm.recv(bytearray(1), 1 - comm.rank)
        with pytest.raises(weft.AbortedError, match="interrupted"):
            comm.barrier()
        world.comm.barrier()


def test_ctrl_c_ends_a_blocking_call_and_tells_the_others():
    ranks.run(2, interrupted)


def behind_requests():
    world = weft.init(timeout=60)
    comm = world.comm.dup()
    if comm.rank == 0:
        x = np.ones(4)
        request = comm.iallreduce(x)
        with pytest.raises(KeyboardInterrupt):
            comm.allreduce(np.ones(1))  # waits behind the request
        with pytest.raises(weft.AbortedError, match="interrupted"):
            request.wait()
    else:
        wait_until_in(world, 0, "allreduce of 1 ")
        os.kill(world.peers[0].pid, signal.SIGINT)
        with pytest.raises(weft.AbortedError, match="interrupted"):
            comm.recv(bytearray(1), 0)
    world.comm.barrier()


def test_ctrl_c_is_seen_by_a_call_behind_pending_requests():
    ranks.run(2, behind_requests)


def handled():
    world = weft.init(timeout=60)
    comm = world.comm
    side = comm.dup()
    seen = []

    def tell(*unused):
        seen.append(comm.broken)
        side.send(b"!", 1)  # a handler may use another communicator

    if comm.rank == 0:
        signal.signal(signal.SIGUSR1, tell)
        side.barrier()
        assert comm.recv(bytearray(1), 1).length == 1
        assert seen == [False]
    else:
        side.barrier()
        wait_until_in(world, 0, "receive")
        os.kill(world.peers[0].pid, signal.SIGUSR1)
        side.recv(bytearray(1), 0)
        comm.send(b"x", 0)
    comm.barrier()


def test_a_handler_that_returns_lets_the_call_go_on():
    ranks.run(2, handled)
