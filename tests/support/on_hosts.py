# SPDX-License-Identifier: Apache-2.0
"""Ranks of tests on several hosts, though the tests were written for one.

    WT_HOSTS=2 WT_TRANSPORTS=self,shm,ucx python -m pytest tests/mpi

The processes that `processes` and `ranks` start are then spread over so many hosts
(weft.bench.bed), the first ones on the first host; messages between hosts take these transports.
The hosts are made when they are first needed, and end with this process.
"""

import functools
import os

HOSTS = int(os.environ.get("WT_HOSTS", "1"))
ENVIRONMENT = (
    {
        "WEFT_TRANSPORTS": os.environ.get("WT_TRANSPORTS", "self,shm,ucx"),
        "GLOO_SOCKET_IFNAME": "eth0",  # for tests that use gloo beside weft
    }
    if HOSTS > 1
    else {}
)


@functools.cache
def bed():
    """The hosts; None if all ranks are on this one."""
    if HOSTS == 1:
        return None
    from weft.bench.bed import Bed

    return Bed(HOSTS)


def host_of(rank, size):
    return rank * HOSTS // size


def enter(rank, size):
    """Called in a forked rank: go to its host."""
    if bed() is not None:
        bed().enter(host_of(rank, size))
        os.environ.update(ENVIRONMENT)


def command(rank, size, words):
    """What starts such a rank there."""
    return words if bed() is None else [*bed().entering(host_of(rank, size)), *words]
