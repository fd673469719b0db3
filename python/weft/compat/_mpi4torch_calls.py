# SPDX-License-Identifier: Apache-2.0
"""What the calls of mpi4torch do, on weft.mpi."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft import InvalidError, mpi

MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD = range(4)
MPI_LAND, MPI_BAND, MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR = range(4, 10)
MPI_MINLOC, MPI_MAXLOC = 10, 11

_OPS = (
    *(mpi.MAX, mpi.MIN, mpi.SUM, mpi.PROD),
    *(mpi.LAND, mpi.BAND, mpi.LOR, mpi.BOR, mpi.LXOR, mpi.BXOR),
)


class _Join(torch.autograd.Function):
    """The first tensor, which also depends on the others."""

    generate_vmap_rule = True

    @staticmethod
    def forward(through: Tensor, *dummies: Tensor) -> Tensor:
        return through.detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.dummies = [(d.shape, d.dtype, d.device) for d in inputs[1:]]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        # Zeros, not None: a leaf that is a dummy has a gradient.
        zeros = [
            torch.zeros((), dtype=dtype, device=device).expand(shape)
            for shape, dtype, device in ctx.dummies
        ]
        return gradients[0], *zeros

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return None if tangents[0] is None else tangents[0].view_as(tangents[0])


class _InPlaceOf(torch.autograd.Function):
    """The value, in the memory of `dst`, which must not require grad."""

    @staticmethod
    def forward(value: Tensor, dst: Tensor) -> Tensor:
        return dst.copy_(value).detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


class _Spent(torch.autograd.Function):
    """A tensor whose value is another one's now: what still uses it is a mistake."""

    @staticmethod
    def forward(ctx: Any, dst: Tensor) -> Tensor:
        ctx.mark_dirty(dst)
        return dst

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(
            "mpi4torch: Reuse of variables passed to in-place MPI kernels not supported! "
            "Try using the return value"
        )


def join(through: Tensor, dummies: list[Tensor]) -> Tensor:
    needed = [d for d in dummies if d.requires_grad]
    return _Join.apply(through, *needed) if needed else through


def _is_wrapped(x: Tensor) -> bool:
    return torch._C._functorch.is_functorch_wrapped_tensor(x)


def _can_write(dst: Tensor, value: Tensor) -> bool:
    """Not if elements share memory, or in a transform that only the value is part of."""
    overlaps = any(n > 1 and step == 0 for n, step in zip(dst.shape, dst.stride(), strict=True))
    return not overlaps and (_is_wrapped(dst) or not _is_wrapped(value))


def _written(dst: Tensor, value: Tensor) -> Tensor:
    """`dst` with a new value, as autograd is to see it."""
    if not _can_write(dst, value):
        return value
    wholes = [dst] if dst._base is None else [dst, dst._base]
    if torch.is_grad_enabled() and any(t.is_leaf and t.requires_grad for t in wholes):
        return _InPlaceOf.apply(value, dst.detach())
    return dst.copy_(value)


def _reduced(dst: Tensor, value: Tensor) -> Tensor:
    """The value, in the memory of `dst`, which has no gradient from now on.

    A leaf, which has no history, and a view, whose base has other parts, go on as autograd
    has them after a change in place.
    """
    spent = torch.is_grad_enabled() and dst.grad_fn is not None and dst._base is None
    if not spent or not _can_write(dst, value) or _is_wrapped(dst):
        return _written(dst, value)
    result = _InPlaceOf.apply(value, dst.detach())
    _Spent.apply(dst)
    return result


@dataclass
class Started:
    """What a handle stands for."""

    comm: mpi.Comm
    handle: Any
    tensor: Tensor
    receives: bool
    dummies: list[Tensor]

    def wait(self) -> Tensor:
        """What was received, or the sent tensor as a dummy: its gradient is of no interest."""
        result = self.comm.Wait(self.handle)
        if not self.receives:
            return join(self.tensor.detach(), [result, *self.dummies])
        with torch.no_grad():
            if _can_write(self.tensor, result):
                self.tensor.copy_(result)
        return join(result, [self.tensor, *self.dummies])


def _op(op: int) -> int:
    if not hasattr(op, "__index__"):
        raise TypeError(f"mpi4torch: op is {op!r}; it must be mpi4torch.MPI_SUM or another of them")
    if 0 <= op < len(_OPS):
        return _OPS[op]
    if op in (MPI_MINLOC, MPI_MAXLOC):
        raise RuntimeError(
            "mpi4torch: MINLOC and MAXLOC are for pairs: weft.mpi takes (values, indices)"
        )
    raise RuntimeError(f"mpi4torch: Collective operation not supported! (op is {op})")


def _peer(rank: int) -> int:
    """The rank, or what mpi4py's constants stand for, whose values differ between MPIs."""
    if rank >= 0:
        return rank
    mpi4py = sys.modules.get("mpi4py.MPI")
    if mpi4py is not None and rank == mpi4py.ANY_SOURCE:
        return mpi.ANY_SOURCE
    if mpi4py is not None and rank == mpi4py.PROC_NULL:
        return mpi.PROC_NULL
    # -1 is any source to one MPI and nobody to another; most often it is a mistake.
    raise InvalidError(
        f"mpi4torch: rank {rank} is out of range; for any or no source pass mpi4py's constants"
    )


def _axis(x: Tensor, axis: int) -> int:
    if not -x.dim() <= axis < x.dim():
        raise IndexError(f"mpi4torch: axis {axis} is out of range ({x.dim()} axes)")
    return axis % x.dim()


def _alltoall(comm: mpi.Comm, x: Tensor, gatheraxis: int, scatteraxis: int, numelem: int) -> Tensor:
    to, cut = _axis(x, gatheraxis), _axis(x, scatteraxis)
    if to == cut:
        return comm.Repartition(x, to, numelem)
    # All learn all of it, so that all can see what is wrong.
    told = comm.Allgather(torch.tensor([[numelem, x.shape[to], x.shape[cut]]]))
    wanted, lengths, there = told.T.tolist()
    if any(n != sum(wanted) for n in there):
        raise InvalidError(
            f"mpi4torch Alltoall: ranks want {wanted} slices, but have {there} along axis {cut}"
        )
    return comm.Alltoallv(x, wanted, lengths, to, cut)


def isend(comm: mpi.Comm, x: Tensor, dest: int, tag: int) -> Started:
    return Started(comm, comm.Isend(x, _peer(dest), tag), x, False, [])


def irecv(comm: mpi.Comm, x: Tensor, source: int, tag: int) -> Started:
    return Started(comm, comm.Irecv(x.detach(), _peer(source), tag), x, True, [])


def dummy_of(started: Started) -> Tensor:
    """Of a send that is recorded: depends on all communications so far. Else on the tensor."""
    nothing, tensor = torch.zeros(()), started.tensor
    if tensor.requires_grad and not started.receives:
        return started.comm.join(nothing)
    return join(nothing, [tensor])


# What both ways of calling do: from Python at once, from TorchScript as an operation.
CALLS: dict[str, Callable[..., Any]] = {
    "Allreduce": lambda comm, x, op: comm.Allreduce(x, _op(op)),
    "Bcast_": lambda comm, x, root: _written(x, comm.Bcast(x, root)),
    "Reduce_": lambda comm, x, op, root: _reduced(x, comm.Reduce(x, _op(op), root)),
    "Gather": lambda comm, x, axis, root: comm.Gatherv(x, _axis(x, axis), root),
    "Allgather": lambda comm, x, axis: comm.Allgatherv(x, _axis(x, axis)),
    "Scatter": lambda comm, x, axis, numelem, root: comm.Scatterv(x, axis, numelem, root),
    "Alltoall": _alltoall,
    "Send": lambda comm, x, dest, tag: isend(comm, x, dest, tag).wait(),
    "Recv": lambda comm, x, source, tag: irecv(comm, x, source, tag).wait(),
}
