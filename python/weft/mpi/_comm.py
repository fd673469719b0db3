# SPDX-License-Identifier: Apache-2.0
"""Communicators whose operations have gradients.

The collectives and messages are methods of the C++ class that Comm derives from;
what is written here is what they need no speed for.
"""

import atexit
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

import weft
from weft import _job
from weft._core import InvalidError
from weft.torch import _place
from weft.torch._shim import shim

# The numbers are those of weft_op_kind.
SUM, PROD, MIN, MAX, AVG, BAND, BOR, BXOR, LAND, LOR, LXOR = range(11)
MINLOC, MAXLOC = 12, 13
PROC_NULL = -1

_tracing = torch.compiler.is_dynamo_compiling
_ops: Any = torch.ops.weft
Handle: Any = shim.MpiHandle
_MpiComm: Any = shim.MpiComm

_all: "weakref.WeakSet[Comm]" = weakref.WeakSet()
_world: "Comm | None" = None


class Comm(_MpiComm):
    """A communicator: MPI's names, on tensors, with gradients.

    Made from a weft communicator, a torch process group over weft (which it
    shares the order of operations with), or an mpi4py communicator. All
    operations return new tensors. Those that other libraries call in place end
    in an underscore. All ranks make the same calls in the same order.

    Collectives (each also as Iallreduce and so on, which return a handle):
      Allreduce(x, op), Reduce(x, op, root), Scan(x, op), Exscan(x, op)
      Reduce_scatter(x, op, axis), Reduce_scatterv(x, counts, op, axis)
      Bcast(x, root), Gather(x, axis, root), Gatherv(x, axis, root, counts)
      Allgather(x, axis), Allgatherv(x, axis, counts)
      Scatter(x, axis, root), Scatterv(x, axis, numelem, root)
      Alltoall(x, gatheraxis, scatteraxis)
      Alltoallv(x, sendcounts, recvcounts, gatheraxis, scatteraxis)
      Repartition(x, axis, numelem), Barrier()
    Messages:
      Send(x, dest, tag), Recv(like, source, tag), Isend, Irecv, Sendrecv
      Wait(handle), Waitall(handles)
    Gradients:
      join(loss): the loss, behind all communications so far
      detach_history(): forget the communications so far
      history: how many communications no backward has come to yet
    """

    def __init__(self, comm: Any = None) -> None:
        place, self._kept = _place_of(comm)
        super().__init__(place)
        self._place = place
        # What torch.compile can read: plain attributes.
        self._number_of_comm, self._ranks, self._replicates = self._id, self.size, 0
        _all.add(self)

    @property
    def weft_comm(self) -> weft.Comm:
        """The communicator underneath; calls on it are part of the same order."""
        return self._place.comm

    @property
    def convention(self) -> str:
        """What is differentiated: "sum" (of all ranks' losses) or "replicated".

        With "sum", the default, the adjoint of Allreduce is an Allreduce. With
        "replicated" the results of Allreduce and Allgather are taken to be one
        value that all ranks have, whose gradient is the same on all: then the
        adjoint of Allreduce is the identity, that of Allgather this rank's part.
        """
        return "replicated" if self._replicated else "sum"

    @convention.setter
    def convention(self, name: str) -> None:
        if name not in ("sum", "replicated"):
            raise InvalidError(f"convention is {name!r}; it can be 'sum' or 'replicated'")
        self._replicated = name == "replicated"
        self._replicates = int(self._replicated)

    def set_history_limit(self, operations: int) -> None:
        """How many communications may wait for a backward before unused ones are dropped."""
        self._set_history_limit(operations)

    def set_cache_limit(self, nbytes: int) -> None:
        """How much memory of freed results is kept for new ones; 256 MiB at first."""
        self._set_cache_limit(nbytes)

    # What torch.compile traces; else the C++ methods.

    def Allreduce(self, x: Any, op: Any = SUM) -> Any:
        """Reduce over all ranks. MINLOC and MAXLOC take and return (values, indices)."""
        if _tracing():
            return _ops.allreduce(
                x, self._number_of_comm, 0, [_traced_op(op, AVG, MAX, MIN), self._replicates]
            )
        if op is MAXLOC or op is MINLOC or not isinstance(x, torch.Tensor):
            return _allreduce_pairs(self, x, op)
        return _MpiComm.Allreduce(self, x, op)

    def Reduce(self, x: torch.Tensor, op: Any = SUM, root: int = 0) -> torch.Tensor:
        """Reduce; the result is on rank `root`, zeros on the others."""
        if _tracing():
            return _ops.reduce(x, self._number_of_comm, 0, [_traced_op(op, AVG), root])
        return _MpiComm.Reduce(self, x, op, root)

    def Bcast(self, x: torch.Tensor, root: int = 0) -> torch.Tensor:
        """The tensor of rank `root`; that of the others says shape and type."""
        if _tracing():
            return _ops.bcast(x, self._number_of_comm, 0, [root])
        return _MpiComm.Bcast(self, x, root)

    def Allgather(self, x: torch.Tensor, axis: int = 0) -> torch.Tensor:
        """All ranks' tensors, which have the same length, along an axis."""
        if _tracing():
            x = x.unsqueeze(0) if x.dim() == 0 else x
            axis = axis + x.dim() if axis < 0 else axis
            args = [axis, self._replicates, *([x.shape[axis]] * self._ranks)]
            return _ops.allgather(x, self._number_of_comm, 0, args)
        return _MpiComm.Allgather(self, x, axis)

    def Reduce_scatter(self, x: torch.Tensor, op: Any = SUM, axis: int = 0) -> torch.Tensor:
        """Reduce; rank r gets part r of equal parts along an axis."""
        if _tracing():
            axis = axis + x.dim() if axis < 0 else axis
            counts = [x.shape[axis] // self._ranks] * self._ranks
            args = [_traced_op(op, AVG), axis, *counts]
            return _ops.reduce_scatter(x, self._number_of_comm, 0, args)
        return _MpiComm.Reduce_scatter(self, x, op, axis)

    def Alltoall(self, x: torch.Tensor, gatheraxis: int = 0, scatteraxis: int = 0) -> torch.Tensor:
        """Part s along the scatter axis goes to rank s; what comes is joined along the other."""
        if _tracing():
            to = gatheraxis + x.dim() if gatheraxis < 0 else gatheraxis
            cut = scatteraxis + x.dim() if scatteraxis < 0 else scatteraxis
            sent = [x.shape[cut] // self._ranks] * self._ranks
            received = sent if to == cut else [x.shape[to]] * self._ranks
            return _ops.alltoall(x, self._number_of_comm, 0, [to, cut, *sent, *received])
        return _MpiComm.Alltoall(self, x, gatheraxis, scatteraxis)

    def Scan(self, x: torch.Tensor, op: Any = SUM) -> torch.Tensor:
        """Reduce over the ranks up to this one."""
        if _tracing():
            return _ops.scan(x, self._number_of_comm, 0, [_traced_op(op), 0])
        return _MpiComm.Scan(self, x, op)

    def Exscan(self, x: torch.Tensor, op: Any = SUM) -> torch.Tensor:
        """Reduce over the ranks before this one; on rank 0 what changes nothing: 0 for SUM."""
        if _tracing():
            return _ops.exscan(x, self._number_of_comm, 0, [_traced_op(op), 0])
        return _MpiComm.Exscan(self, x, op)

    def Reduce_scatterv(
        self, x: torch.Tensor, counts: Sequence[int], op: Any = SUM, axis: int = 0
    ) -> torch.Tensor:
        """Reduce; rank r gets counts[r] slices along the axis."""
        return self._Reduce_scatterv(x, op, list(counts), axis)

    def Ireduce_scatterv(
        self, x: torch.Tensor, counts: Sequence[int], op: Any = SUM, axis: int = 0
    ) -> Any:
        return self.I_Reduce_scatterv(x, op, list(counts), axis)

    # In place: the new value is copied into x, as autograd sees it.

    def Allreduce_(self, x: torch.Tensor, op: Any = SUM) -> torch.Tensor:
        return x.copy_(self.Allreduce(x, op))

    def Reduce_(self, x: torch.Tensor, op: Any = SUM, root: int = 0) -> torch.Tensor:
        return x.copy_(self.Reduce(x, op, root))

    def Bcast_(self, x: torch.Tensor, root: int = 0) -> torch.Tensor:
        return x.copy_(self.Bcast(x, root))

    def Scan_(self, x: torch.Tensor, op: Any = SUM) -> torch.Tensor:
        return x.copy_(self.Scan(x, op))

    def Exscan_(self, x: torch.Tensor, op: Any = SUM) -> torch.Tensor:
        return x.copy_(self.Exscan(x, op))

    def Recv_(self, x: torch.Tensor, source: int, tag: int = 0) -> torch.Tensor:
        return x.copy_(self.Recv(x, source, tag))

    def join(self, x: torch.Tensor, *results: torch.Tensor) -> torch.Tensor:
        """x, behind all communications so far: its backward runs all of them.

        Only torch.compile and torch.func, which see no more than the values, have
        to be told which results, of sends say, x is to depend on.
        """
        for result in results:
            nothing = result.reshape(-1)[:0].sum()
            x = x + (nothing.real if nothing.is_complex() else nothing).to(x.dtype)
        return x if _tracing() else _MpiComm.join(self, x)

    # Messages to nobody.

    def Send(self, x: torch.Tensor, dest: int, tag: int = 0) -> torch.Tensor:
        """Send; the result is an empty tensor that depends on x."""
        if dest != PROC_NULL and _tracing():
            return _ops.send(x, self._number_of_comm, 0, [dest, tag, 0, 1])
        return x.new_empty(0) if dest == PROC_NULL else _MpiComm.Send(self, x, dest, tag)

    def Recv(self, like: torch.Tensor, source: int, tag: int = 0) -> torch.Tensor:
        """Receive a tensor of the shape and type of `like`, which is not written to.

        It requires grad if what was sent does; in compiled code, if `like` does.
        """
        if source != PROC_NULL and _tracing():
            return _ops.recv(like, self._number_of_comm, 0, [source, tag, 0])
        return like.clone() if source == PROC_NULL else _MpiComm.Recv(self, like, source, tag)

    def Isend(self, x: torch.Tensor, dest: int, tag: int = 0) -> Any:
        return _Done(x.new_empty(0)) if dest == PROC_NULL else _MpiComm.Isend(self, x, dest, tag)

    def Irecv(self, like: torch.Tensor, source: int, tag: int = 0) -> Any:
        if source == PROC_NULL:
            return _Done(like.clone())
        return _MpiComm.Irecv(self, like, source, tag)

    def Sendrecv(  # noqa: PLR0917  the order of arguments is MPI's
        self,
        x: torch.Tensor,
        dest: int,
        sendtag: int = 0,
        like: torch.Tensor | None = None,
        source: int | None = None,
        recvtag: int | None = None,
    ) -> torch.Tensor:
        """Send x to dest and receive from source, at once; from dest if source is None."""
        like = x if like is None else like
        source = dest if source is None else source
        recvtag = sendtag if recvtag is None else recvtag
        if dest == PROC_NULL:
            return self.Recv(like, source, recvtag)
        if source == PROC_NULL:
            self.Send(x, dest, sendtag)
            return like.clone()
        return _MpiComm.Sendrecv(self, x, dest, sendtag, like, source, recvtag)

    def Wait(self, handle: Any) -> torch.Tensor:
        """The result of what was started: of a send, an empty tensor."""
        return handle.wait()

    def Waitall(self, handles: Sequence[Any]) -> list[torch.Tensor]:
        """The results of all of them, in their order."""
        return [handle.wait() for handle in handles]

    # Communicators.

    def Split(self, color: int | None, key: int = 0) -> "Comm | None":
        """A communicator for the ranks of each colour; None for those without one."""
        part = self.weft_comm.split(color, key)
        return None if part is None else Comm(part)

    def Dup(self) -> "Comm":
        """The same ranks with an order, and a history, of their own."""
        return Comm(self.weft_comm.dup())

    def Create_cart(
        self, dims: Sequence[int], periods: Sequence[bool] | bool = False
    ) -> "weft.mpi.CartComm":
        """The same ranks on a grid; see weft.mpi.CartComm."""
        from weft.mpi.halo import CartComm

        return CartComm(self, dims, periods)

    def Free(self) -> None:
        """Give the communicator back; later calls fail."""
        global _world
        _all.discard(self)
        if _world is self:
            _world = None
        self._close()

    def __reduce__(self) -> Any:
        if self is _world:
            return (world, ())
        raise TypeError("of communicators only weft.mpi.COMM_WORLD can be pickled")

    def __repr__(self) -> str:
        return f"<weft.mpi.Comm: rank {self.rank} of {self.size}>"


def _traced_op(op: Any, *others: int) -> int:
    """The number of a reduction that has a derivative as one operation."""
    if op not in (SUM, *others):
        raise InvalidError("in compiled code only Allreduce takes MAX and MIN, none takes PROD")
    return op


class _Done:
    """A handle whose result was there at once."""

    def __init__(self, result: torch.Tensor) -> None:
        self._result: torch.Tensor | None = result

    def wait(self) -> torch.Tensor:
        if self._result is None:
            raise ValueError("weft.mpi Wait: this handle was waited for before")
        result, self._result = self._result, None
        return result

    def test(self) -> bool:
        return True


def _place_of(comm: Any) -> tuple[_place.Place, Any]:
    """A place that lends the communicator, and what must live as long."""
    if comm is None:
        return _place.Place(_job.init().comm), None
    if isinstance(comm, weft.Comm):
        return _place.Place(comm), comm
    if isinstance(comm, Comm):
        return comm._place, comm
    if isinstance(comm, dist.ProcessGroup):
        from weft.torch import _group

        return _group.backend_of(comm).place, comm
    if hasattr(comm, "Get_rank") and hasattr(comm, "allgather"):
        return _of_mpi4py(comm)
    raise InvalidError(
        f"a {type(comm).__name__} is no communicator: pass a weft.Comm, a process group over "
        "weft, or an mpi4py communicator"
    )


def _of_mpi4py(comm: Any) -> tuple[_place.Place, Any]:
    """The ranks of an mpi4py communicator. Collective over them."""
    from weft import _boot, _core

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


def _mpi_world_size(comm: Any) -> int:
    import importlib

    mpi = importlib.import_module(type(comm).__module__)
    return mpi.COMM_WORLD.Get_size() if hasattr(mpi, "COMM_WORLD") else comm.Get_size()


def world() -> Comm:
    """The communicator of all ranks; joins the job if that was not done yet."""
    global _world
    if _world is None:
        _world = Comm()
    return _world


def backward(loss: torch.Tensor, comm: Comm | None = None, **options: Any) -> None:
    """loss.backward(), through every communication of every rank.

    Every rank calls it, also one whose loss depends on no communication: its
    communications take part with zero gradients. With `comm` only the
    communications of that one are joined, else those of all. The options are
    those of Tensor.backward.
    """
    comms = [comm] if comm is not None else sorted(_all, key=lambda c: c._id)
    for each in comms:
        if each.history:
            loss = each.join(loss)
    if loss.requires_grad:
        loss.backward(**options)


def _allreduce_pairs(comm: Comm, pair: Any, op: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and where they were found. Of equal values the smallest index wins."""
    if op not in (MINLOC, MAXLOC) and getattr(op, "name", op) not in ("minloc", "maxloc"):
        raise InvalidError("pairs of values and indices are for MINLOC and MAXLOC")
    values, indices = pair
    if values.shape != indices.shape or indices.is_floating_point():
        raise InvalidError("indices must be whole numbers, one for each value")
    most = op == MAXLOC or getattr(op, "name", op) == "maxloc"
    best = comm.Allreduce(values.detach(), MAX if most else MIN)
    here = (values.detach() == best) | (values.detach() != values.detach())
    far = torch.iinfo(torch.int64).max
    index = comm.Allreduce(torch.where(here, indices.to(torch.int64), far), MIN)
    index = index.to(indices.dtype)
    if values.requires_grad or torch.autograd.forward_ad._current_level >= 0:
        mine = here & (indices == index)
        best = comm.Allreduce(torch.where(mine, values, torch.zeros_like(values)), SUM)
    return best, index


def _leave_at_exit() -> None:
    # Nodes may hold Python objects, which must not outlive the interpreter.
    for comm in list(_all):
        comm.detach_history()
        comm.Free()


def _let_world_go() -> None:
    if _world is not None:
        _world.Free()


atexit.register(_leave_at_exit)
_job._before_leaving.append(_let_world_go)
