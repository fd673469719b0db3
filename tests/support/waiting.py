# SPDX-License-Identifier: Apache-2.0
"""Waiting until a process has come to where a test needs it."""

import os
import pathlib
import time

SECONDS = 120.0


def until(is_so, what, seconds=SECONDS):
    """Wait until `is_so()`; `what` is for the error."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"not after {seconds:.0f} s: {what}"
        time.sleep(0.01)


def bound(promised, ranks, times=3):
    """A bound of a promise, for a test of which so many ranks are busy.

    It is so many times as large where others use the machine, too: where more are ready to run, on
    the average of a minute, than the cores and these ranks.
    """
    return promised * (times if os.getloadavg()[0] > os.cpu_count() + ranks else 1)


def asleep(pid):
    """Does the main thread of a process sleep in the kernel?

    A call of the library that waits polls for a moment and then sleeps; so does
    nothing else that a rank of a test does after it said that it would call.
    """
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/stat").read_text()
    return text.rpartition(")")[2].split()[0] == "S"


def until_asleep(pid):
    until(lambda: asleep(pid), f"process {pid} sleeps")


def until_waits_in(world, rank, call):
    """Wait until `rank`, by what it shows, has begun `call`, and sleeps."""

    def is_so():
        line = world.dump().splitlines()[rank]
        return f" in {call}" in line and asleep(world.peers[rank].pid)

    until(is_so, f"rank {rank} waits in {call}")
