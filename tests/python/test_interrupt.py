# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in the middle of a blocking call."""

import importlib
import os
import signal
import threading
import time

import numpy as np
import pytest
import ranks
import weft

PROMPT = 20.0  # seconds; everything here waits for minutes, if it is not interrupted


class Nagging:
    """Signals until the main thread has seen several inside a function: then Ctrl-C."""

    def __init__(self, *inside):
        self.inside, self.seen, self.over = inside, 0, threading.Event()
        signal.signal(signal.SIGINT, self.handle)
        threading.Thread(target=self.nag, daemon=True).start()

    def nag(self):
        while not self.over.wait(0.05):
            os.kill(os.getpid(), signal.SIGINT)

    def handle(self, number, frame):
        while frame is not None and frame.f_code.co_name not in self.inside:
            frame = frame.f_back
        self.seen += frame is not None
        if self.seen == 4 and not self.over.is_set():
            self.over.set()
            raise KeyboardInterrupt


def expect_interrupted(function, *inside):
    nagging = Nagging(*inside)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        function()
    assert nagging.over.is_set()
    assert time.monotonic() - began < PROMPT


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


class Nowhere:
    """A meeting place to which nobody else comes."""

    size = 2

    def __init__(self, rank):
        self.rank = rank

    def set(self, key, value):
        pass

    def get(self, key, timeout):
        time.sleep(timeout)
        raise TimeoutError(f"nobody set {key}")


def waiting_alone(kind, rank):
    os.environ["WEFT_RANK"] = str(rank)
    os.environ["WEFT_RANKS"] = "2"
    join = {"environment": weft.init, "meeting": lambda: weft.init(Nowhere(rank))}
    if kind in ("store", "torch"):
        import torch.distributed as dist

        store = dist.HashStore()
        join["store"] = lambda: weft.init(store=store, rank=rank, size=2)
        join["torch"] = lambda: dist.init_process_group(
            "weft", store=store, rank=rank, world_size=2
        )
        if kind == "torch":
            importlib.import_module("weft.torch")  # makes the backend known
    expect_interrupted(join[kind], "init", "init_process_group")


@pytest.mark.parametrize(
    ("kind", "rank"),
    [
        ("environment", 0),
        ("environment", 1),
        ("directory", 0),
        ("directory", 1),
        ("meeting", 0),
        ("store", 1),
        ("torch", 0),
    ],
)
def test_ctrl_c_ends_a_wait_for_ranks_that_do_not_come(kind, rank, tmp_path):
    if kind in ("store", "torch"):
        pytest.importorskip("torch")
    environment = {"WEFT_BOOT_DIR": str(tmp_path)} if kind == "directory" else {}
    which = "environment" if kind == "directory" else kind
    ranks.run(1, waiting_alone, which, rank, environment=environment)


def interrupted_in_creation():
    world = weft.init(timeout=1800)
    if world.rank == 1:
        expect_interrupted(lambda: world.comm.subset([0, 1]), "<lambda>")
    with pytest.raises(weft.AbortedError, match=r"rank 1.*interrupted"):
        while True:
            world.comm.barrier()


def test_ctrl_c_ends_the_making_of_a_communicator_and_tells_the_others():
    ranks.run(3, interrupted_in_creation, seconds=60)
