# SPDX-License-Identifier: Apache-2.0
"""The API of mpi4torch, on weft.mpi: the same names and results, without its defects.

    import weft.compat.mpi4torch as mpi4torch

    comm = mpi4torch.COMM_WORLD
    y = comm.Allreduce(x, mpi4torch.MPI_SUM)

It works alone, under torchrun, mpirun and srun. Backward communications run in
reverse order and none is left out, so JoinDummies is allowed everywhere and
needed nowhere but at the end: what a loss does not depend on at all.

The classes and functions can be used in TorchScript. There, each call is an
operation weft_mpi4torch::* that leads back to Python.

docs/guide/mpi4torch.md tells what is different.
"""

import copyreg
import itertools
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, List  # noqa: UP035  TorchScript reads annotations

from weft import _missing

try:
    import torch
except ModuleNotFoundError as error:
    raise _missing.torch("weft.compat.mpi4torch", error) from None

from torch import Tensor

from weft import mpi
from weft.compat._mpi4torch_calls import (
    CALLS,
    MPI_BAND,
    MPI_BOR,
    MPI_BXOR,
    MPI_LAND,
    MPI_LOR,
    MPI_LXOR,
    MPI_MAX,
    MPI_MAXLOC,
    MPI_MIN,
    MPI_MINLOC,
    MPI_PROD,
    MPI_SUM,
    Started,
    dummy_of,
    irecv,
    isend,
    join,
)

__all__ = [
    "COMM_WORLD",
    "MPI_BAND",
    "MPI_BOR",
    "MPI_BXOR",
    "MPI_LAND",
    "MPI_LOR",
    "MPI_LXOR",
    "MPI_MAX",
    "MPI_MAXLOC",
    "MPI_MIN",
    "MPI_MINLOC",
    "MPI_PROD",
    "MPI_SUM",
    "JoinDummies",
    "JoinDummiesHandle",
    "MPI_Communicator",
    "WaitHandle",
    "comm_from_mpi4py",
    "deactivate_cuda_aware_mpi_support",
]


def _check_dummies(dummies: Any) -> None:
    """The two mistakes that are easy to make: no list, and a handle among the dummies."""
    if not isinstance(dummies, (list, tuple)):
        raise TypeError(f"mpi4torch: dummies are a list of tensors, not a {_kind(dummies)}")
    for dummy in dummies:
        if isinstance(dummy, WaitHandle):
            raise TypeError("mpi4torch: a handle is no dummy; pass handle.dummy")
        if not isinstance(dummy, Tensor):
            raise TypeError(f"mpi4torch: a dummy is a tensor, not a {_kind(dummy)}")


def _check_handle(handle: Any) -> None:
    if not isinstance(handle, WaitHandle):
        raise TypeError(
            f"mpi4torch: a handle is what Isend and Irecv of mpi4torch gave, not a {_kind(handle)}"
        )


def _kind(thing: Any) -> str:
    return type(thing).__name__


# By the number that scripts know; whoever holds the MPI_Communicator holds it.
_comms: "weakref.WeakValueDictionary[int, mpi.Comm]" = weakref.WeakValueDictionary()
_in_scripts: dict[int, Started] = {}
_numbers = itertools.count(1)


def _numbered(number: int) -> mpi.Comm:
    comm = _comms.get(number)
    if comm is None:
        raise RuntimeError(
            "mpi4torch: Unknown MPI communicator (it is gone, or was saved by another process)"
        )
    return comm


class WaitHandle:
    """An Isend or Irecv under way; for Wait, JoinDummiesHandle, and `dummy`."""

    _started: Any  # where it was made in Python; no attribute for scripts

    def __init__(self, dummy: Tensor, number: int):
        self._dummy = dummy
        self._number = number

    @property
    def dummy(self) -> Tensor:
        """A tensor that depends on what was started, for JoinDummies."""
        if torch.jit.is_scripting():
            return self._dummy
        else:
            return join(dummy_of(_started_of(self)), [self._dummy])


class MPI_Communicator:
    """A communicator of mpi4torch; made by comm_from_mpi4py, or COMM_WORLD."""

    _weft: Any  # the weft.mpi.Comm; no attribute for scripts

    def __init__(self, number: int, rank: int, size: int):
        self._number = number
        self.rank = rank
        self.size = size

    def Allreduce(self, tensor: Tensor, op: int) -> Tensor:
        """Reduce over all ranks."""
        if torch.jit.is_scripting():
            return torch.ops.weft_mpi4torch.Allreduce(tensor, self._number, op)
        else:
            return CALLS["Allreduce"](self._weft, tensor, op)

    def Bcast_(self, tensor: Tensor, root: int) -> Tensor:
        """Write rank `root`'s values into `tensor`; returns it."""
        if torch.jit.is_scripting():
            return torch.ops.weft_mpi4torch.Bcast_(tensor, self._number, root)
        else:
            return CALLS["Bcast_"](self._weft, tensor, root)

    def Reduce_(self, tensor: Tensor, op: int, root: int) -> Tensor:
        """Write the reduction into rank `root`'s tensor, zeros into the others'; returns it."""
        if torch.jit.is_scripting():
            return torch.ops.weft_mpi4torch.Reduce_(tensor, self._number, op, root)
        else:
            return CALLS["Reduce_"](self._weft, tensor, op, root)

    def Gather(self, tensor: Tensor, gatheraxis: int, root: int) -> Tensor:
        """All tensors along an axis, on rank `root`; of length 0 elsewhere."""
        if torch.jit.is_scripting():
            return torch.ops.weft_mpi4torch.Gather(tensor, self._number, gatheraxis, root)
        else:
            return CALLS["Gather"](self._weft, tensor, gatheraxis, root)

    def Allgather(self, tensor: Tensor, gatheraxis: int) -> Tensor:
        """All tensors along an axis, on all ranks."""
        if torch.jit.is_scripting():
            return torch.ops.weft_mpi4torch.Allgather(tensor, self._number, gatheraxis)
        else:
            return CALLS["Allgather"](self._weft, tensor, gatheraxis)

    def Scatter(self, tensor: Tensor, scatteraxis: int, numelem: int, root: int) -> Tensor:
        """`numelem` slices of rank `root`'s tensor."""
        if torch.jit.is_scripting():
            return torch.ops.weft_mpi4torch.Scatter(
                tensor, self._number, scatteraxis, numelem, root
            )
        else:
            return CALLS["Scatter"](self._weft, tensor, scatteraxis, numelem, root)

    def Alltoall(self, tensor: Tensor, gatheraxis: int, scatteraxis: int, numelem: int) -> Tensor:
        """Scatter along one axis, so that this rank has `numelem` slices, gather along another."""
        if torch.jit.is_scripting():
            return torch.ops.weft_mpi4torch.Alltoall(
                tensor, self._number, gatheraxis, scatteraxis, numelem
            )
        else:
            return CALLS["Alltoall"](self._weft, tensor, gatheraxis, scatteraxis, numelem)

    def Isend(self, tensor: Tensor, dest: int, tag: int) -> WaitHandle:
        """Start to send."""
        if torch.jit.is_scripting():
            number, dummy = torch.ops.weft_mpi4torch.Isend(tensor, self._number, dest, tag)
            return WaitHandle(dummy, number)
        else:
            return _handle_of(isend(self._weft, tensor, dest, tag))

    def Irecv(self, tensor: Tensor, source: int, tag: int) -> WaitHandle:
        """Start to receive into `tensor`."""
        if torch.jit.is_scripting():
            number, dummy = torch.ops.weft_mpi4torch.Irecv(tensor, self._number, source, tag)
            return WaitHandle(dummy, number)
        else:
            return _handle_of(irecv(self._weft, tensor, source, tag))

    def Wait(self, waithandle: WaitHandle) -> Tensor:
        """What was received; for a send, the tensor that was sent, as a dummy."""
        if torch.jit.is_scripting():
            return torch.ops.weft_mpi4torch.Wait(waithandle._dummy, waithandle._number)
        else:
            return _started_of(waithandle).wait()

    def Send(self, tensor: Tensor, dest: int, tag: int) -> Tensor:
        """Isend and Wait."""
        if torch.jit.is_scripting():
            return torch.ops.weft_mpi4torch.Send(tensor, self._number, dest, tag)
        else:
            return CALLS["Send"](self._weft, tensor, dest, tag)

    def Recv(self, tensor: Tensor, source: int, tag: int) -> Tensor:
        """Irecv and Wait."""
        if torch.jit.is_scripting():
            return torch.ops.weft_mpi4torch.Recv(tensor, self._number, source, tag)
        else:
            return CALLS["Recv"](self._weft, tensor, source, tag)


def _itself(comm: MPI_Communicator, memo: Any = None) -> MPI_Communicator:
    return comm


def _described(comm: MPI_Communicator) -> str:
    return f"<mpi4torch.MPI_Communicator: rank {comm.rank} of {comm.size}>"


# A copy of a model communicates as the model does. Under names of other functions, so that
# TorchScript does not compile them with the class.
MPI_Communicator.__copy__ = MPI_Communicator.__deepcopy__ = _itself  # type: ignore[attr-defined]
MPI_Communicator.__repr__ = _described  # type: ignore[method-assign, assignment]


def JoinDummies(loopthrough: Tensor, dummies: List[Tensor]) -> Tensor:  # noqa: UP006
    """`loopthrough`, sharing its memory, which also depends on the dummies."""
    if torch.jit.is_scripting():
        return torch.ops.weft_mpi4torch.JoinDummies(loopthrough, dummies)
    else:
        if isinstance(loopthrough, WaitHandle):
            raise TypeError("mpi4torch: for a handle there is JoinDummiesHandle")
        _check_dummies(dummies)
        return join(loopthrough, dummies)


def JoinDummiesHandle(handle: WaitHandle, dummies: List[Tensor]) -> WaitHandle:  # noqa: UP006
    """The same handle, whose result also depends on the dummies."""
    if torch.jit.is_scripting():
        torch.ops.weft_mpi4torch.JoinDummiesHandle(handle._number, handle._dummy, dummies)
        return WaitHandle(JoinDummies(handle._dummy, dummies), handle._number)
    else:
        return _with_dummies(handle, dummies)


def _handle_of(started: Started) -> WaitHandle:
    handle = WaitHandle(torch.zeros(()), 0)
    handle._started = started
    return handle


def _started_of(handle: WaitHandle) -> Started:
    """From Python, or from a script that returned it."""
    _check_handle(handle)
    return handle._started if hasattr(handle, "_started") else _taken(handle._number)


def _with_dummies(handle: WaitHandle, dummies: List[Tensor]) -> WaitHandle:  # noqa: UP006
    started = _started_of(handle)
    _check_dummies(dummies)
    other = WaitHandle(join(handle._dummy, dummies), 0)
    other._started = replace(started, dummies=[*started.dummies, *dummies])
    return other


def _taken(number: int) -> Started:
    if number not in _in_scripts:
        raise RuntimeError(
            "mpi4torch: this handle was waited for before, or was not made in a script"
        )
    return _in_scripts.pop(number)


def _put(started: Started) -> tuple[int, Tensor]:
    number = next(_numbers)
    _in_scripts[number] = started
    return number, dummy_of(started)


def _add_dummies(number: int, dummy: Tensor, dummies: List[Tensor]) -> None:  # noqa: UP006
    _in_scripts[number] = replace(started := _taken(number), dummies=[*started.dummies, *dummies])


_SCHEMAS: dict[str, tuple[str, Callable[..., Any]]] = {
    "Isend": (
        "(Tensor x, int comm, int dest, int tag) -> (int, Tensor)",
        lambda x, comm, dest, tag: _put(isend(_numbered(comm), x, dest, tag)),
    ),
    "Irecv": (
        "(Tensor x, int comm, int source, int tag) -> (int, Tensor)",
        lambda x, comm, source, tag: _put(irecv(_numbered(comm), x, source, tag)),
    ),
    "Wait": ("(Tensor dummy, int number) -> Tensor", lambda dummy, number: _taken(number).wait()),
    "JoinDummies": ("(Tensor x, Tensor[] dummies) -> Tensor", join),
    "JoinDummiesHandle": ("(int number, Tensor dummy, Tensor[] dummies) -> ()", _add_dummies),
}


def _simple(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, comm, *numbers: call(_numbered(comm), x, *numbers)


def _register() -> torch.library.Library:
    """The operations; conservative, so that none is dropped, merged or moved by TorchScript."""
    library = torch.library.Library("weft_mpi4torch", "DEF")
    numbers = {"Allreduce": 1, "Bcast_": 1, "Allgather": 1, "Scatter": 3, "Alltoall": 3}
    schemas = dict(_SCHEMAS)
    for name, call in CALLS.items():
        more = "".join(f", int n{i}" for i in range(numbers.get(name, 2)))
        schemas[name] = (f"(Tensor x, int comm{more}) -> Tensor", _simple(call))
    for name, (schema, function) in schemas.items():
        library.define(name + schema, alias_analysis="CONSERVATIVE")
        library.impl(name, function, "CompositeImplicitAutograd")
    return library


_library = _register()


def _wrap(comm: mpi.Comm) -> MPI_Communicator:
    wrapped = MPI_Communicator(comm._id, comm.rank, comm.size)
    wrapped._weft = comm
    _comms[comm._id] = comm
    return wrapped


def comm_from_mpi4py(comm: Any) -> MPI_Communicator:
    """The ranks of an mpi4py communicator. Collective over them."""
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        raise RuntimeError("mpi4py is not available!") from None
    return _wrap(mpi.Comm(comm))


def deactivate_cuda_aware_mpi_support() -> None:
    """Does nothing: tensors of a GPU never depended on MPI here."""


_world: MPI_Communicator | None = None
COMM_WORLD: MPI_Communicator


def _get_world() -> MPI_Communicator:
    global _world
    if _world is None or _world._weft is not mpi.COMM_WORLD:
        _world = _wrap(mpi.COMM_WORLD)
    return _world


def _reduce(comm: MPI_Communicator) -> Any:
    if comm is _world:
        return _get_world, ()
    raise RuntimeError("MPI communicators other than MPI_COMM_WORLD are not serializable!")


copyreg.pickle(MPI_Communicator, _reduce)


def __getattr__(name: str) -> Any:
    """COMM_WORLD joins the job, so it is made when it is asked for."""
    if name == "COMM_WORLD":
        return _get_world()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
