# SPDX-License-Identifier: Apache-2.0
"""Make a communicator from the objects that weft.mpi.Comm accepts."""

import os
import warnings
from typing import Any

import torch.distributed as dist

import weft
from weft import _job
from weft._core import InvalidError
from weft.torch._group_comm import GroupComm, OwnedWorld


def group_comm_of(comm: Any) -> tuple[GroupComm, Any]:
    """Return (the GroupComm of `comm`, an object that must live as long)."""
    if comm is None:
        return GroupComm(_job.init().comm), None
    if isinstance(comm, weft.Comm):
        return GroupComm(comm), comm
    if isinstance(comm, dist.ProcessGroup):
        from weft.torch import _group

        return _group.backend_of(comm).group_comm, comm
    if hasattr(comm, "Get_rank") and hasattr(comm, "allgather"):
        return _of_mpi4py(comm)
    raise InvalidError(
        f"{type(comm).__name__} is not a communicator: pass a weft.Comm, a process group over "
        "weft, or an mpi4py communicator"
    )


def _of_mpi4py(comm: Any) -> tuple[GroupComm, Any]:
    """Convert an mpi4py communicator. Collective over its ranks."""
    from weft import _boot, _core

    _warn_of_ranks_alone(comm)
    if _job._world is None and comm.Get_size() == _mpi_world_size(comm):
        return GroupComm(_job.init(comm=comm).comm), comm
    if _job._world is not None:
        ranks = comm.allgather(_job._world.rank)
        if len(ranks) == _job._world.size and ranks == sorted(ranks):
            return GroupComm(_job._world.comm), comm
        if len(set(ranks)) == len(ranks):
            return GroupComm(_job._world.comm.subset(ranks)), comm
    world = _core.create(_boot.Mpi(comm), None)
    return GroupComm(world.comm, OwnedWorld(world)), comm


def _warn_of_ranks_alone(comm: Any) -> None:
    """Under torchrun each process is its own MPI job, which is valid but rarely intended."""
    started = os.environ.get("WORLD_SIZE", "1")
    if started != "1" and _mpi_world_size(comm) == 1:
        warnings.warn(
            f"weft.mpi: torchrun started {started} ranks, but mpi4py knows only this one; use "
            "weft.mpi.COMM_WORLD, or start the program with the mpirun of mpi4py's MPI library",
            stacklevel=5,
        )


def _mpi_world_size(comm: Any) -> int:
    import importlib

    mpi = importlib.import_module(type(comm).__module__)
    return mpi.COMM_WORLD.Get_size() if hasattr(mpi, "COMM_WORLD") else comm.Get_size()
