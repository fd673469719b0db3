# SPDX-License-Identifier: Apache-2.0
"""Communicators whose operations have gradients.

The collectives and messages are methods of the C++ class that Comm derives from;
this file adds what need not be fast, and the branches for torch.compile.
"""

import atexit
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch

import weft
from weft import _job
from weft._core import ANY_SOURCE, ClosedError, InvalidError
from weft.mpi import _origin, _traced
from weft.torch._group_comm import GroupComm
from weft.torch._shim import shim

# The numbers are those of weft_op_kind.
SUM, PROD, MIN, MAX, AVG, BAND, BOR, BXOR, LAND, LOR, LXOR = range(11)
MINLOC, MAXLOC = 12, 13
PROC_NULL = -1

# How long a communicator that is freed waits for its last messages to be received.
_DRAIN_SECONDS = 5.0

_tracing = torch.compiler.is_dynamo_compiling
Handle: Any = shim.MpiHandle
_MpiComm: Any = shim.MpiComm

_all: "weakref.WeakSet[Comm]" = weakref.WeakSet()
_world: "Comm | None" = None


class Comm(_MpiComm):
    """A communicator: MPI's names, on tensors, with gradients.

    It is made from a weft communicator, a torch process group over weft (with
    which it shares the order of operations), or an mpi4py communicator. All
    operations return new tensors; those whose names end in an underscore also
    write into their argument. All ranks make the same calls in the same order.

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
      join(loss): the loss, ordered after all communications so far
      detach_history(): drop the recorded communications
      history: the number of communications whose backward has not run
    """

    def __init__(self, comm: Any = None) -> None:
        self._group_comm: GroupComm | None
        self._kept: Any  # must live as long as this object
        if isinstance(comm, Comm):
            comm.weft_comm  # noqa: B018  raises if it was freed
            self._group_comm, self._kept = comm._group_comm, comm
        else:
            self._group_comm, self._kept = _origin.group_comm_of(comm)
        super().__init__(self._group_comm)
        # torch.compile can read plain attributes only.
        self._number_of_comm, self._order = self._id, shim.mpi_order(self._id)
        self._rank, self._ranks = super().rank, super().size
        self._replicates = int(self._replicated)
        _all.add(self)

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._ranks

    @property
    def weft_comm(self) -> weft.Comm:
        """The weft communicator below; its calls are part of the same order."""
        if self._group_comm is None:
            raise ClosedError(
                "weft.mpi: this communicator was freed, or weft.finalize() was called"
            )
        return self._group_comm.comm

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
            raise InvalidError(f"convention is {name!r}; it must be 'sum' or 'replicated'")
        self._replicated = name == "replicated"
        self._replicates = int(self._replicated)

    def set_history_limit(self, operations: int) -> None:
        """Set the number of recorded communications above which unused ones are dropped."""
        self._set_history_limit(operations)

    def set_cache_limit(self, nbytes: int) -> None:
        """Set how many bytes of freed results are cached for reuse; the default is 256 MiB."""
        self._set_cache_limit(nbytes)

    # torch.compile traces the functions of _traced; otherwise the C++ methods run.

    def Allreduce(self, x: Any, op: Any = SUM) -> Any:
        """Reduce over all ranks. MINLOC and MAXLOC take and return (values, indices)."""
        if op is MAXLOC or op is MINLOC or not isinstance(x, torch.Tensor):
            return _allreduce_pairs(self, x, op)
        if _tracing():
            return _traced.allreduce(self, x, op)
        return _MpiComm.Allreduce(self, x, op)

    def Reduce(self, x: torch.Tensor, op: Any = SUM, root: int = 0) -> torch.Tensor:
        """Reduce; the result is on rank `root`, zeros on the others."""
        if _tracing():
            return _traced.reduce(self, x, op, root)
        return _MpiComm.Reduce(self, x, op, root)

    def Bcast(self, x: torch.Tensor, root: int = 0) -> torch.Tensor:
        """Return the tensor of rank `root`; x must have its shape and type on all ranks."""
        if _tracing():
            return _traced.bcast(self, x, root)
        return _MpiComm.Bcast(self, x, root)

    def Allgather(self, x: torch.Tensor, axis: int = 0) -> torch.Tensor:
        """Concatenate the tensors of all ranks, of equal length, along an axis."""
        if _tracing():
            return _traced.allgather(self, x, axis, None)
        return _MpiComm.Allgather(self, x, axis)

    def Reduce_scatter(self, x: torch.Tensor, op: Any = SUM, axis: int = 0) -> torch.Tensor:
        """Reduce; rank r gets part r of equal parts along an axis."""
        if _tracing():
            return _traced.reduce_scatter(self, x, op, axis, None)
        return _MpiComm.Reduce_scatter(self, x, op, axis)

    def Alltoall(self, x: torch.Tensor, gatheraxis: int = 0, scatteraxis: int = 0) -> torch.Tensor:
        """Send part s along scatteraxis to rank s; concatenate what comes along gatheraxis."""
        if _tracing():
            return _traced.alltoall(self, x, gatheraxis, scatteraxis)
        return _MpiComm.Alltoall(self, x, gatheraxis, scatteraxis)

    def Scan(self, x: torch.Tensor, op: Any = SUM) -> torch.Tensor:
        """Reduce over the ranks up to this one."""
        if _tracing():
            return _traced.scan(self, x, op, exclusive=False)
        return _MpiComm.Scan(self, x, op)

    def Exscan(self, x: torch.Tensor, op: Any = SUM) -> torch.Tensor:
        """Reduce over the ranks before this one; rank 0 gets the neutral element, 0 for SUM."""
        if _tracing():
            return _traced.scan(self, x, op, exclusive=True)
        return _MpiComm.Exscan(self, x, op)

    def Reduce_scatterv(
        self, x: torch.Tensor, counts: Sequence[int], op: Any = SUM, axis: int = 0
    ) -> torch.Tensor:
        """Reduce; rank r gets counts[r] slices along the axis."""
        if _tracing():
            return _traced.reduce_scatter(self, x, op, axis, counts)
        return self._Reduce_scatterv(x, op, list(counts), axis)

    def Ireduce_scatterv(
        self, x: torch.Tensor, counts: Sequence[int], op: Any = SUM, axis: int = 0
    ) -> Any:
        return self.I_Reduce_scatterv(x, op, list(counts), axis)

    def Gather(self, x: torch.Tensor, axis: int = 0, root: int = 0) -> torch.Tensor:
        """Concatenate all ranks' tensors on rank `root`; the others get length 0."""
        if _tracing():
            return _traced.gather(self, x, axis, root, None)
        return _MpiComm.Gather(self, x, axis, root)

    def Gatherv(
        self,
        x: torch.Tensor,
        axis: int = 0,
        root: int = 0,
        counts: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Gather tensors of any lengths, which are exchanged if counts is None."""
        if _tracing():
            if counts is not None:
                return _traced.gather(self, x, axis, root, counts)
            _traced.break_graph("Gatherv without counts")
        return _MpiComm.Gatherv(self, x, axis, root, counts)

    def Allgatherv(
        self, x: torch.Tensor, axis: int = 0, counts: Sequence[int] | None = None
    ) -> torch.Tensor:
        """Allgather tensors of any lengths, which are exchanged if counts is None."""
        if _tracing():
            if counts is not None:
                return _traced.allgather(self, x, axis, counts)
            _traced.break_graph("Allgatherv without counts")
        return _MpiComm.Allgatherv(self, x, axis, counts)

    def Scatter(self, x: torch.Tensor, axis: int = 0, root: int = 0) -> torch.Tensor:
        """Rank r gets part r, of equal parts along an axis, of rank `root`'s tensor."""
        if _tracing():
            return _traced.scatter(self, x, axis, root)
        return _MpiComm.Scatter(self, x, axis, root)

    def Alltoallv(
        self,
        x: torch.Tensor,
        sendcounts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        gatheraxis: int = 0,
        scatteraxis: int = 0,
    ) -> torch.Tensor:
        """Alltoall with any lengths, which are exchanged if recvcounts is None."""
        if _tracing():
            if recvcounts is not None:
                counts, axes = (sendcounts, recvcounts), (gatheraxis, scatteraxis)
                return _traced.alltoallv(self, x, counts, axes)
            _traced.break_graph("Alltoallv without recvcounts")
        return _MpiComm.Alltoallv(self, x, sendcounts, recvcounts, gatheraxis, scatteraxis)

    def Replicate(self, x: torch.Tensor) -> torch.Tensor:
        """Return x, whose gradient is summed over all ranks; see `convention`."""
        return _traced.replicate(self, x) if _tracing() else _MpiComm.Replicate(self, x)

    def Barrier(self) -> None:
        """Wait until all ranks have called it."""
        if _tracing():
            _traced.barrier(self)
        else:
            _MpiComm.Barrier(self)

    # In place: autograd sees a copy of the result into x.

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
        """Return x, ordered after all communications so far: its backward runs all of them.

        Inside torch.func, which sees only values, pass the `results` (of sends, for
        example) on which x must depend.
        """
        for result in results:
            nothing = result.reshape(-1)[:0].sum()
            x = x + (nothing.real if nothing.is_complex() else nothing).to(x.dtype)
        return _traced.join(self, x) if _tracing() else _MpiComm.join(self, x)

    # Messages. PROC_NULL is neither sent to nor received from.

    def Send(self, x: torch.Tensor, dest: int, tag: int = 0) -> torch.Tensor:
        """Send x; the result is an empty tensor that depends on it."""
        if dest != PROC_NULL and _tracing():
            return _traced.send(self, x, dest, tag)
        return x.new_empty(0) if dest == PROC_NULL else _MpiComm.Send(self, x, dest, tag)

    def Recv(self, like: torch.Tensor, source: int, tag: int = 0) -> torch.Tensor:
        """Receive a tensor of the shape and type of `like`, which is not written to.

        The result requires grad if the sent tensor does; in compiled code, if
        gradients are enabled.
        """
        if source != PROC_NULL and _tracing():
            return _traced.recv(self, like, source, tag)
        return like.clone() if source == PROC_NULL else _MpiComm.Recv(self, like, source, tag)

    def Isend(self, x: torch.Tensor, dest: int, tag: int = 0) -> Any:
        if dest == PROC_NULL or _tracing():
            return _Done(self.Send(x, dest, tag))
        return _MpiComm.Isend(self, x, dest, tag)

    def Irecv(self, like: torch.Tensor, source: int, tag: int = 0) -> Any:
        if source == PROC_NULL:
            return _Done(like.clone())
        if _tracing():
            _traced.break_graph("Irecv")
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
        if source == ANY_SOURCE:
            sent = self.Isend(x, dest, sendtag)
            received = self.Recv(like, source, recvtag)
            sent.wait()
            return received
        if _tracing():
            return _traced.sendrecv(self, x, like, (dest, sendtag), (source, recvtag))
        return _MpiComm.Sendrecv(self, x, dest, sendtag, like, source, recvtag)

    def Wait(self, handle: Any) -> torch.Tensor:
        """Wait for a nonblocking operation; returns its result, of a send an empty tensor."""
        return handle.wait()

    def Waitall(self, handles: Sequence[Any]) -> list[torch.Tensor]:
        """Wait for all handles; returns their results in order."""
        return [handle.wait() for handle in handles]

    # Communicators.

    def Split(self, color: int | None, key: int = 0) -> "Comm | None":
        """Return the communicator of the ranks with this color; None if color is None."""
        part = self.weft_comm.split(color, key)
        return None if part is None else Comm(part)

    def Dup(self) -> "Comm":
        """Return a communicator of the same ranks with its own order and history."""
        return Comm(self.weft_comm.dup())

    def Create_cart(
        self, dims: Sequence[int], periods: Sequence[bool] | bool = False
    ) -> "weft.mpi.CartComm":
        """Arrange the ranks on a grid; see weft.mpi.CartComm."""
        from weft.mpi.halo import CartComm

        return CartComm(self, dims, periods)

    def Free(self) -> None:
        """Free the communicator; later calls fail."""
        global _world
        _all.discard(self)
        if _world is self:
            _world = None
        self.detach_history()
        lost = self._lost_gradient()
        if lost:
            warnings.warn(lost, RuntimeWarning, stacklevel=2)
        left = self._drain(_DRAIN_SECONDS)
        if left:
            warnings.warn(
                f"weft.mpi: {left} messages of rank {self.rank} were not received and are lost; "
                "wait for the handles of Isend",
                RuntimeWarning,
                stacklevel=2,
            )
        self._close()
        self._group_comm = self._kept = None

    def __reduce__(self) -> Any:
        if self is _world:
            return (world, ())
        raise TypeError("weft.mpi: only COMM_WORLD can be pickled, not other communicators")

    # A copy of a model uses the same communicator.

    def __copy__(self) -> "Comm":
        return self

    def __deepcopy__(self, memo: Any) -> "Comm":
        return self

    def __repr__(self) -> str:
        return f"<weft.mpi.Comm: rank {self.rank} of {self.size}>"


class _Done:
    """A handle of an operation that completed at once."""

    def __init__(self, result: torch.Tensor) -> None:
        self._result: torch.Tensor | None = result

    def wait(self) -> torch.Tensor:
        if self._result is None:
            raise ValueError("weft.mpi Wait: this handle was waited for before")
        result, self._result = self._result, None
        return result

    def test(self) -> bool:
        return True


def world() -> Comm:
    """Return the communicator of all ranks; joins the job if needed."""
    global _world
    if _world is None:
        _world = Comm()
    elif _world.size == 1:
        _job.init()  # raises if a process group of several ranks was made meanwhile
    return _world


def backward(loss: torch.Tensor, comm: Comm | None = None, **options: Any) -> None:
    """Run loss.backward() through every communication of every rank.

    Every rank calls it, also one whose loss depends on no communication: its
    communications take part with zero gradients. With `comm` only its
    communications are included, otherwise those of all communicators. The
    options are those of Tensor.backward.
    """
    comms = [comm] if comm is not None else sorted(_all, key=lambda c: c._id)
    with torch.enable_grad():  # Tensor.backward works under no_grad, too
        for each in comms:
            if each.history:
                loss = each.join(loss)
    if loss.requires_grad:
        loss.backward(**options)


def _allreduce_pairs(comm: Comm, pair: Any, op: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """MINLOC and MAXLOC: of equal values the smallest index wins."""
    if op not in (MINLOC, MAXLOC) and getattr(op, "name", op) not in ("minloc", "maxloc"):
        if not isinstance(pair, (tuple, list)):
            raise TypeError(f"weft.mpi Allreduce takes a tensor, not a {type(pair).__name__}")
        raise InvalidError("weft.mpi Allreduce: pairs require MINLOC or MAXLOC")
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError("weft.mpi Allreduce: MINLOC and MAXLOC take a pair (values, indices)")
    values, indices = pair
    if values.shape != indices.shape or indices.is_floating_point():
        raise InvalidError("weft.mpi Allreduce: indices must be integers, one for each value")
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


def _free_all(world: weft.World | None = None) -> None:
    """Free all communicators, or those of one world. Their nodes may hold Python objects and must
    not outlive the interpreter.
    """
    for comm in sorted(_all, key=lambda c: c._id):
        if comm._is_open and (world is None or comm.weft_comm.world is world):
            comm.Free()


atexit.register(_free_all)
_job._before_leaving.append(lambda: _free_all(_job._world))
