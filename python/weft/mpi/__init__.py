# SPDX-License-Identifier: Apache-2.0
"""MPI with gradients.

    import torch
    from weft import mpi

    comm = mpi.COMM_WORLD
    y = comm.Allreduce(x, mpi.SUM)         # a new tensor; x is not written to
    loss = (y * y).sum()
    mpi.backward(loss)                     # every rank calls it

It works alone, under torchrun, mpirun and srun, from a torch process group and
from an mpi4py communicator. The guide is docs/guide/mpi.md.
"""

from typing import Any

from weft import _missing
from weft._core import ANY_SOURCE

try:
    import torch  # noqa: F401  all that follows needs it
except ModuleNotFoundError as error:
    raise _missing.torch("weft.mpi", error) from None

from weft.mpi import _compile  # noqa: F401  registers fake kernels, vmap rules and effects
from weft.mpi._comm import (
    AVG,
    BAND,
    BOR,
    BXOR,
    LAND,
    LOR,
    LXOR,
    MAX,
    MAXLOC,
    MIN,
    MINLOC,
    PROC_NULL,
    PROD,
    SUM,
    Comm,
    Handle,
    backward,
    world,
)
from weft.mpi._compile import checkpoint_policy
from weft.mpi.gradcheck import gradcheck
from weft.mpi.halo import CartComm

__all__ = [
    "ANY_SOURCE",
    "AVG",
    "BAND",
    "BOR",
    "BXOR",
    "COMM_WORLD",
    "LAND",
    "LOR",
    "LXOR",
    "MAX",
    "MAXLOC",
    "MIN",
    "MINLOC",
    "PROC_NULL",
    "PROD",
    "SUM",
    "CartComm",
    "Comm",
    "Handle",
    "backward",
    "checkpoint_policy",
    "gradcheck",
]

COMM_WORLD: Comm


def __getattr__(name: str) -> Any:
    """COMM_WORLD joins the job, so it is made when it is asked for."""
    if name == "COMM_WORLD":
        return world()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
