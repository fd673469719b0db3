# SPDX-License-Identifier: Apache-2.0
"""What the methods of Comm do while torch.compile traces them.

The operations are weft::traced_*, which take and return the communicator's token:
so the order of communications, also in the backward pass, is part of the values
that a compiler sees. They, and their derivatives, are in
python/ext/torch/mpi/trace.cpp.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from weft._core import InvalidError
from weft.torch._shim import shim

if TYPE_CHECKING:
    from weft.mpi._comm import Comm

_NAMES = ("sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "lxor")

_ops: Any = torch.ops.weft
_MARK_GRAD: int = shim.mpi_mark_grad
# The argument names of each operation in order, and the numbers of the reductions that
# have a derivative.
_ARGUMENTS: dict[str, tuple[str, ...]] = dict(shim.mpi_arguments)
_SMOOTH = tuple(op for op in range(len(_NAMES)) if shim.mpi_has_derivative(op))


def _transformed() -> bool:
    """Is this call inside a transform of torch.func?"""
    return torch._C._functorch.peek_interpreter_stack() is not None


def _values_only() -> bool:
    """Is there no token? Transforms of torch.func see only values, and an exported program runs
    without the communicator. Both hold whenever the traced code runs.
    """
    return _transformed() or torch.compiler.is_exporting()


def _in_hook() -> bool:
    """Is this the body of a hook? It is part of the backward graph, which cannot write a token of
    the forward graph; the gradient it gets orders its communications.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslator

    tracer = InstructionTranslator.current_tx().output.current_tracer
    return tracer.parent is not None and tracer.source_target is None


# What torch.compiler.assume_constant_result does, which imports the compiler: that
# takes longer than importing torch, and most programs do not compile. Run rather than
# traced, is_exporting tells the truth on torch 2.11, too.
_transformed._dynamo_marked_constant = True  # type: ignore[attr-defined]
_values_only._dynamo_marked_constant = True  # type: ignore[attr-defined]
_in_hook._dynamo_marked_constant = True  # type: ignore[attr-defined]


def break_graph(what: str) -> None:
    """Break the graph for a call that cannot be traced: it runs eagerly between two graphs."""
    torch._dynamo.graph_break(msg=f"weft.mpi {what} cannot be part of compiled code")


def _recorded(x: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and x.requires_grad


def _packed(name: str, given: dict[str, Any]) -> list[int]:
    args: list[int] = []
    for argument in _ARGUMENTS[name]:
        value = given.get(argument, 0)
        if isinstance(value, (list, tuple)):
            args.extend(value)
        else:
            args.append(value)
    return args


def _call(
    comm: "Comm", name: str, x: torch.Tensor, records: bool | None = None, **given: Any
) -> torch.Tensor:
    """Call an operation. Arguments that are not given are 0; `records` is by default that of x."""
    args = _packed(name, given)
    if _values_only():
        return getattr(_ops, name)(x, comm._number_of_comm, 0, args)[0]
    if records is None:
        records = _recorded(x) and given.get("op", 0) in _SMOOTH
    op = getattr(_ops, "traced_" + name)
    mark = (_MARK_GRAD if records else 0) | comm._rank
    if not records and _in_hook():
        return op(x, None, None, comm._number_of_comm, mark, args)[0]
    # An operation that is not recorded is ordered by its values alone.
    order = comm._order.token if records else comm._order.token.detach()
    y, token = op(x, order, None, comm._number_of_comm, mark, args)
    order.copy_(token)
    return y


def _axis(x: torch.Tensor, axis: int) -> int:
    along = axis + x.dim() if axis < 0 else axis
    if not 0 <= along < x.dim():
        raise IndexError(f"weft.mpi: axis {axis} is out of range ({x.dim()} axes)")
    return along


def _row(x: torch.Tensor) -> torch.Tensor:
    """Make a scalar a vector of length 1, so that it can be gathered."""
    return x.unsqueeze(0) if x.dim() == 0 else x


def _counts(comm: "Comm", counts: Sequence[int]) -> list[int]:
    if len(counts) != comm._ranks:
        raise ValueError(f"weft.mpi: counts has {len(counts)} numbers (size {comm._ranks})")
    return list(counts)


def _op_number(op: Any) -> int:
    if isinstance(op, int):
        if not 0 <= op < len(_NAMES):
            raise ValueError(f"weft.mpi: {op} is not a reduction of tensors")
        return op
    name = op if isinstance(op, str) else op.name
    if name not in _NAMES:
        raise InvalidError(f"weft.mpi: the reduction {name!r} is not supported in compiled code")
    return _NAMES.index(name)


# Reductions. C++ composes nonlinear ones of operations that have a derivative.


def allreduce(comm: "Comm", x: torch.Tensor, op: Any) -> torch.Tensor:
    return _call(comm, "allreduce", x, op=_op_number(op), replicated=comm._replicates)


def reduce(comm: "Comm", x: torch.Tensor, op: Any, root: int) -> torch.Tensor:
    return _call(comm, "reduce", x, op=_op_number(op), root=root)


def reduce_scatter(
    comm: "Comm", x: torch.Tensor, op: Any, axis: int, counts: Sequence[int] | None
) -> torch.Tensor:
    along = _axis(x, axis)
    if counts is None:
        counts = [x.shape[along] // comm._ranks] * comm._ranks
    lengths = _counts(comm, counts)
    return _call(comm, "reduce_scatter", x, op=_op_number(op), axis=along, counts=lengths)


def scan(comm: "Comm", x: torch.Tensor, op: Any, exclusive: bool) -> torch.Tensor:
    return _call(comm, "exscan" if exclusive else "scan", x, op=_op_number(op))


# Data movement.


def bcast(comm: "Comm", x: torch.Tensor, root: int) -> torch.Tensor:
    return _call(comm, "bcast", x, root=root)


def gather(
    comm: "Comm", x: torch.Tensor, axis: int, root: int, counts: Sequence[int] | None
) -> torch.Tensor:
    row = _row(x)
    along = _axis(row, axis)
    lengths = [row.shape[along]] * comm._ranks if counts is None else _counts(comm, counts)
    return _call(comm, "gather", row, axis=along, root=root, counts=lengths)


def allgather(
    comm: "Comm", x: torch.Tensor, axis: int, counts: Sequence[int] | None
) -> torch.Tensor:
    row = _row(x)
    along = _axis(row, axis)
    lengths = [row.shape[along]] * comm._ranks if counts is None else _counts(comm, counts)
    return _call(comm, "allgather", row, axis=along, replicated=comm._replicates, counts=lengths)


def scatter(comm: "Comm", x: torch.Tensor, axis: int, root: int) -> torch.Tensor:
    """The tensor of every rank must have the shape of the root's."""
    along = _axis(x, axis)
    length = x.shape[along] // comm._ranks
    shape = [length if i == along else n for i, n in enumerate(x.shape)]
    counts = [length] * comm._ranks
    return _call(comm, "scatter", x, axis=along, root=root, counts=counts, shape=shape)


def alltoall(comm: "Comm", x: torch.Tensor, to_axis: int, from_axis: int) -> torch.Tensor:
    to, cut = _axis(x, to_axis), _axis(x, from_axis)
    sent = [x.shape[cut] // comm._ranks] * comm._ranks
    received = sent if to == cut else [x.shape[to]] * comm._ranks
    return _call(comm, "alltoall", x, axis=to, from_axis=cut, counts=sent, received=received)


def alltoallv(
    comm: "Comm",
    x: torch.Tensor,
    counts: tuple[Sequence[int], Sequence[int]],
    axes: tuple[int, int],
) -> torch.Tensor:
    sent, received = _counts(comm, counts[0]), _counts(comm, counts[1])
    to, cut = _axis(x, axes[0]), _axis(x, axes[1])
    return _call(comm, "alltoall", x, axis=to, from_axis=cut, counts=sent, received=received)


def halo(comm: "Comm", x: torch.Tensor, **lists: list[int]) -> torch.Tensor:
    return _call(comm, "halo", x, None, **lists)


def replicate(comm: "Comm", x: torch.Tensor) -> torch.Tensor:
    return _call(comm, "replicate", x)


def barrier(comm: "Comm") -> None:
    _call(comm, "barrier", torch.empty(0, device="cpu"))


def join(comm: "Comm", x: torch.Tensor) -> torch.Tensor:
    joins = torch.is_grad_enabled() and (x.is_floating_point() or x.is_complex())
    return _call(comm, "join", x, True) if joins and not _values_only() else x


# Messages.


def _check_untransformed(what: str) -> None:
    """A transform does not see that a receive depends on what another rank has sent."""
    if _transformed():
        break_graph(f"{what} inside of torch.func")


def send(comm: "Comm", x: torch.Tensor, dest: int, tag: int) -> torch.Tensor:
    _check_untransformed("Send")
    return _call(comm, "send", x, peer=dest, tag=tag, lazy=1)


def recv(comm: "Comm", like: torch.Tensor, source: int, tag: int) -> torch.Tensor:
    """Whether the sender records is not known while tracing, so assume that it does."""
    _check_untransformed("Recv")
    smooth = like.is_floating_point() or like.is_complex()
    records = torch.is_grad_enabled() and smooth
    return _call(comm, "recv", like, records, peer=source, tag=tag)


def sendrecv(
    comm: "Comm", x: torch.Tensor, like: torch.Tensor, to: tuple[int, int], came: tuple[int, int]
) -> torch.Tensor:
    """`to` and `came` are (rank, tag)."""
    if like.dtype != x.dtype:
        raise TypeError(f"weft.mpi Sendrecv: {x.dtype} is sent and {like.dtype} received")
    (dest, tag), (source, source_tag), shape = to, came, list(like.shape)
    return _call(
        comm, "sendrecv", x, peer=dest, tag=tag, source=source, source_tag=source_tag, shape=shape
    )
