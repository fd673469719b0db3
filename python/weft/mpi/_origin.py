# SPDX-License-Identifier: Apache-2.0
"""What a communicator can be made from."""

import os
import warnings
from typing import Any

import torch.distributed as dist

import weft
from weft import _job
from weft._core import InvalidError
from weft.torch import _place


def place_of(comm: Any) -> tuple[_place.Place, Any]:
    """A place that lends the communicator, and what must live as long."""
    if comm is None:
        return _place.Place(_job.init().comm), None
    if isinstance(comm, weft.Comm):
        return _place.Place(comm), comm
    if isinstance(comm, dist.ProcessGroup):
        from weft.torch import _group

        return _group.backend_of(comm).place, comm
    if hasattr(comm, "Get_rank") and hasattr(comm, "allgather"):
        return _of_mpi4py(comm)
    raise InvalidError(
        f"a {type(comm).__name__} is not a communicator: pass a weft.Comm, a process group over "
        "weft, or an mpi4py communicator"
    )


def _of_mpi4py(comm: Any) -> tuple[_place.Place, Any]:
    """The ranks of an mpi4py communicator. Collective over them."""
    from weft import _boot, _core

    _warn_of_ranks_alone(comm)
    if _job._world is None and comm.Get_size() == _mpi_world_size(comm):
        return _place.Place(_job.init(comm=comm).comm), comm
    if _job._world is not None:
        ranks = comm.allgather(_job._world.rank)
        if len(ranks) == _job._world.size and ranks == sorted(ranks):
            return _place.Place(_job._world.comm), comm
        if len(set(ranks)) == len(ranks):
            return _place.Place(_job._world.comm.subset(ranks)), comm
    world = _core.create(_boot.Mpi(comm), None)
    return _place.Place(world.comm, _place._Stay(world)), comm


def _warn_of_ranks_alone(comm: Any) -> None:
    """Under torchrun each process is an MPI job of its own: no error, and hardly ever meant."""
    started = os.environ.get("WORLD_SIZE", "1")
    if started != "1" and _mpi_world_size(comm) == 1:
        warnings.warn(
            f"weft.mpi: torchrun started {started} ranks, but mpi4py knows only of this one: use "
            "weft.mpi.COMM_WORLD, or start the program with the mpirun of mpi4py's MPI library",
            stacklevel=5,
        )


def _mpi_world_size(comm: Any) -> int:
    import importlib

    mpi = importlib.import_module(type(comm).__module__)
    return mpi.COMM_WORLD.Get_size() if hasattr(mpi, "COMM_WORLD") else comm.Get_size()
