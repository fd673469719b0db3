# SPDX-License-Identifier: Apache-2.0
"""Ranks of tests on several hosts, though the tests were written for one.

    WT_HOSTS=2 WT_TRANSPORTS=self,shm,ucx python -m pytest tests/mpi

The processes that `processes` and `ranks` start are then spread over so many hosts
(weft.bench.bed), the first ones on the first host; messages between hosts take these transports.
The hosts are made when they are first needed, and end with this process. With WT_PRETEND=1 they
are pretended instead: nodes of this host (WEFT_NODE), between which shared memory carries messages.
With WT_MPI=openmpi (or mpich) its mpirun starts the ranks, and messages take it (launched.py).
"""

import functools
import os
import tempfile

HOSTS = int(os.environ.get("WT_HOSTS", "1"))
MPI = os.environ.get("WT_MPI")
PRETENDED = os.environ.get("WT_PRETEND") == "1"
ENVIRONMENT = (
    {
        "WEFT_TRANSPORTS": os.environ.get("WT_TRANSPORTS", "self,shm,ucx"),
        "GLOO_SOCKET_IFNAME": "eth0",  # for tests that use gloo beside weft
    }
    if HOSTS > 1 and not PRETENDED
    else {}
)


@functools.cache
def bed():
    """The hosts; None if all ranks are on this one."""
    if HOSTS == 1 or PRETENDED:
        return None
    from weft.bench.bed import Bed

    return Bed(HOSTS)


if MPI is not None and (HOSTS == 1 or PRETENDED):
    raise SystemExit("WT_MPI needs WT_HOSTS=2 or more, and no WT_PRETEND")
if MPI is not None and not {"OMPI_COMM_WORLD_RANK", "PMI_RANK"} & os.environ.keys():
    # What hosts share is this folder; those that mpirun enters have a /tmp of their own.
    tempfile.tempdir = str(bed().shared)


def host_of(rank, size):
    return rank * HOSTS // size


def node_of(rank, size):
    return f"node{host_of(rank, size)}"


def enter(rank, size):
    """Called in a forked rank: go to its host."""
    if PRETENDED:
        os.environ["WEFT_NODE"] = node_of(rank, size)
    elif bed() is not None:
        bed().enter(host_of(rank, size))
        os.environ.update(ENVIRONMENT)


def command(rank, size, words):
    """What starts such a rank there."""
    if PRETENDED:
        return ["env", f"WEFT_NODE={node_of(rank, size)}", *words]
    return words if bed() is None else [*bed().entering(host_of(rank, size)), *words]
