# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in whatever call waits for other ranks, in operations and on shared tensors."""

import functools
import os
import secrets
import signal
import time

import numpy as np
import processes
import pytest
import weft

LONG = 1 << 20  # bytes; so many go through no buffer
HOUR = 3600.0
SOON = 30.0  # seconds, on a crowded machine; nothing here may wait for the hour


def table(comm):
    return weft.region(weft.full((30, 2), 4.0, "f4", comm=comm, max_rows=60, like="numpy"))


# Each takes the communicator, a table and a folder.
CALLS = {
    "broadcast": lambda comm, rows, folder: comm.broadcast(np.ones(3), 1),
    "alltoall": lambda comm, rows, folder: comm.alltoall(np.ones(2), np.ones(2)),
    "long send": lambda comm, rows, folder: comm.send(bytes(LONG), 1),
    "sendrecv": lambda comm, rows, folder: comm.sendrecv(b"x", 1, bytearray(1)),
    "probe": lambda comm, rows, folder: comm.probe(1),
    "any rank": lambda comm, rows, folder: comm.recv(bytearray(1), weft.ANY_SOURCE),
    "request": lambda comm, rows, folder: comm.iallreduce(np.ones(3)).wait(),
    "request with a timeout": lambda comm, rows, folder: comm.ibarrier().wait(HOUR),
    "split": lambda comm, rows, folder: comm.split(0),
    "dup": lambda comm, rows, folder: comm.dup(),
    "shared memory": lambda comm, rows, folder: comm.empty(10, "f4", like="numpy"),
    "barrier of a table": lambda comm, rows, folder: rows.barrier(),
    "barrier with a timeout": lambda comm, rows, folder: rows.barrier(HOUR),
    "signal of a table": lambda comm, rows, folder: rows.wait(1),
    "signal with a timeout": lambda comm, rows, folder: rows.wait(1, timeout=HOUR),
    "resize": lambda comm, rows, folder: rows.resize(40),
    "new table": lambda comm, rows, folder: table(comm),
    "new table with a timeout": lambda comm, rows, folder: weft.empty(
        (9, 2), "f4", like="numpy", timeout=HOUR
    ),
    "save": lambda comm, rows, folder: rows.save(f"{folder}/other"),
    "load": lambda comm, rows, folder: rows.load(f"{folder}/saved"),
    "file": lambda comm, rows, folder: weft.from_file(f"{folder}/saved", mmap=True, like="numpy"),
    "new store": lambda comm, rows, folder: weft.Store(5, 2, comm=comm),
    "barrier of a store": lambda comm, rows, folder: stores[0].barrier(),
    "save a store": lambda comm, rows, folder: stores[0].save(f"{folder}/other"),
}
stores = []


def joined(job, name, folder, rank):
    os.environ.update(WEFT_JOB=job, WEFT_RANK=str(rank), WEFT_RANKS="2")
    comm = weft.init(timeout=HOUR).comm
    beside = comm.dup()
    rows = table(comm)
    rows.save(f"{folder}/saved")
    stores.append(weft.Store(30, 2, comm=comm))
    call(comm, beside, rows, name, folder) if rank == 0 else interrupt(comm, beside)


def call(comm, beside, rows, name, folder):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        beside.send(b"!", 1)
        CALLS[name](comm, rows, folder)
        time.sleep(SOON)
    assert time.monotonic() - start < SOON
    beside.send(b"x", 1)


def interrupt(comm, beside):
    beside.recv(bytearray(1), 0)
    end = time.monotonic() + 1.0  # not every wait is on the board
    while time.monotonic() < end:
        line = comm.world.dump().splitlines()[0]
        if "last in" not in line and "send of 1 " not in line:
            break
        time.sleep(0.01)
    os.kill(comm.world.peers[0].pid, signal.SIGINT)
    beside.recv(bytearray(1), 0)


@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_is_seen_at_once_in_every_call_that_waits(name, tmp_path):
    work = functools.partial(joined, secrets.token_hex(8), name, str(tmp_path))
    processes.values(processes.start(2, work, deadline=4 * SOON))
