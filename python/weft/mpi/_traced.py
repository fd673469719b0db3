# SPDX-License-Identifier: Apache-2.0
"""What the methods of Comm do while torch.compile traces them.

The operations are weft::traced_*, which take and give the communicator's token:
with it, the order of communications and what the backward pass has to run is
part of the values that a compiler sees. They, and their derivatives, are in
python/ext/torch/mpi/trace.cpp.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from weft._core import InvalidError
from weft.torch._shim import shim

if TYPE_CHECKING:
    from weft.mpi._comm import Comm

SUM, PROD, MIN, MAX, AVG = range(5)
_NAMES = ("sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "lxor")

_ops: Any = torch.ops.weft
_MARK_GRAD: int = shim.mpi_mark_grad


def _transformed() -> bool:
    """Is this inside a transform of torch.func?"""
    return torch._C._functorch.peek_interpreter_stack() is not None


def _values_only() -> bool:
    """Is there no token? Transforms of torch.func see values only, and an exported program
    runs on its own. Either is so whenever the code that is traced runs.
    """
    return _transformed() or torch.compiler.is_exporting()


def _in_hook() -> bool:
    """Is this the body of a hook, a part of the backward graph, where a token of the forward
    graph cannot be written to? What it communicates depends on the gradient that it is given.
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
    """For what cannot be traced: it runs between two graphs, as if it were not compiled."""
    torch._dynamo.graph_break(msg=f"weft.mpi {what} cannot be part of compiled code")


def _recorded(x: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and x.requires_grad


def _call(comm: "Comm", name: str, x: torch.Tensor, args: list[int], records: bool) -> torch.Tensor:
    if _values_only():
        return getattr(_ops, name)(x, comm._number_of_comm, 0, args)
    op = getattr(_ops, "traced_" + name)
    mark = (_MARK_GRAD if records else 0) | comm._rank
    if not records and _in_hook():
        return op(x, None, None, comm._number_of_comm, mark, args)[0]
    # What is not recorded keeps its place among the values alone.
    order = comm._order.token if records else comm._order.token.detach()
    y, token = op(x, order, None, comm._number_of_comm, mark, args)
    order.copy_(token)
    return y


def _axis(x: torch.Tensor, axis: int) -> int:
    along = axis + x.dim() if axis < 0 else axis
    if not 0 <= along < x.dim():
        raise IndexError(f"weft.mpi: there is no axis {axis} in a tensor of {x.dim()} axes")
    return along


def _row(x: torch.Tensor) -> torch.Tensor:
    """A single number can be gathered: it is a row of length 1."""
    return x.unsqueeze(0) if x.dim() == 0 else x


def _counts(comm: "Comm", counts: Sequence[int]) -> list[int]:
    if len(counts) != comm._ranks:
        raise ValueError(f"weft.mpi: {len(counts)} counts for {comm._ranks} ranks")
    return list(counts)


def _op_number(op: Any) -> int:
    if isinstance(op, int):
        if not 0 <= op < len(_NAMES):
            raise ValueError(f"weft.mpi: there is no reduction {op} of tensors")
        return op
    name = op if isinstance(op, str) else op.name
    if name not in _NAMES:
        raise InvalidError(f"weft.mpi: {name!r} is no reduction that compiled code has")
    return _NAMES.index(name)


# Reductions.


def _smooth(x: torch.Tensor, op: int) -> bool:
    """Is a derivative wanted that the reduction alone does not have?"""
    wanted = _recorded(x) or (_values_only() and x.is_floating_point())
    return op in (PROD, MAX, MIN) and wanted


def _fold(stack: torch.Tensor, op: int) -> torch.Tensor:
    if op == PROD:
        return stack.prod(0)
    return stack.amax(0) if op == MAX else stack.amin(0)


def _stacked(comm: "Comm", x: torch.Tensor, replicated: int) -> torch.Tensor:
    """Everybody's tensors, one behind the other."""
    args = [0, replicated, *([1] * comm._ranks)]
    return _call(comm, "allgather", x.unsqueeze(0), args, _recorded(x))


def _allreduce(comm: "Comm", x: torch.Tensor, op: int, replicated: int) -> torch.Tensor:
    if op == PROD and _smooth(x, op):
        return _fold(_stacked(comm, x, replicated), op)
    records = _recorded(x) and op in (SUM, AVG, MAX, MIN)
    return _call(comm, "allreduce", x, [op, replicated], records)


def allreduce(comm: "Comm", x: torch.Tensor, op: Any) -> torch.Tensor:
    return _allreduce(comm, x, _op_number(op), comm._replicates)


def reduce(comm: "Comm", x: torch.Tensor, op: Any, root: int) -> torch.Tensor:
    number = _op_number(op)
    if not _smooth(x, number):
        records = _recorded(x) and number in (SUM, AVG)
        return _call(comm, "reduce", x, [number, root], records)
    y = _allreduce(comm, x, number, 0)
    return y if comm._rank == root else y.masked_fill(torch.ones_like(y, dtype=torch.bool), 0)


def reduce_scatter(
    comm: "Comm", x: torch.Tensor, op: Any, axis: int, counts: Sequence[int] | None
) -> torch.Tensor:
    number, along = _op_number(op), _axis(x, axis)
    if counts is None:
        counts = [x.shape[along] // comm._ranks] * comm._ranks
    lengths = _counts(comm, counts)
    if not _smooth(x, number):
        records = _recorded(x) and number in (SUM, AVG)
        return _call(comm, "reduce_scatter", x, [number, along, *lengths], records)
    y = _allreduce(comm, x, number, 0)
    begin = sum(lengths[: comm._rank])
    return y.narrow(along, begin, lengths[comm._rank]).contiguous()


def scan(comm: "Comm", x: torch.Tensor, op: Any, exclusive: bool) -> torch.Tensor:
    number = _op_number(op)
    if not _smooth(x, number):
        name = "exscan" if exclusive else "scan"
        return _call(comm, name, x, [number, 0], _recorded(x) and number == SUM)
    stack = _stacked(comm, x, 0)
    ranks = comm._rank + (0 if exclusive else 1)
    if ranks > 0:
        return _fold(stack.narrow(0, 0, ranks), number)
    inf = float("inf")
    return torch.full_like(x, 1.0 if number == PROD else -inf if number == MAX else inf)


# What is moved.


def bcast(comm: "Comm", x: torch.Tensor, root: int) -> torch.Tensor:
    return _call(comm, "bcast", x, [root], _recorded(x))


def gather(
    comm: "Comm", x: torch.Tensor, axis: int, root: int, counts: Sequence[int] | None
) -> torch.Tensor:
    row = _row(x)
    along = _axis(row, axis)
    lengths = [row.shape[along]] * comm._ranks if counts is None else _counts(comm, counts)
    return _call(comm, "gather", row, [along, root, *lengths], _recorded(x))


def allgather(
    comm: "Comm", x: torch.Tensor, axis: int, counts: Sequence[int] | None
) -> torch.Tensor:
    row = _row(x)
    along = _axis(row, axis)
    lengths = [row.shape[along]] * comm._ranks if counts is None else _counts(comm, counts)
    args = [along, comm._replicates, *lengths]
    return _call(comm, "allgather", row, args, _recorded(x))


def scatter(comm: "Comm", x: torch.Tensor, axis: int, root: int) -> torch.Tensor:
    """Every rank's tensor has the shape of the root's."""
    along = _axis(x, axis)
    length = x.shape[along] // comm._ranks
    shape = [length if i == along else n for i, n in enumerate(x.shape)]
    args = [along, root, *([length] * comm._ranks), *shape]
    return _call(comm, "scatter", x, args, _recorded(x))


def alltoall(comm: "Comm", x: torch.Tensor, to_axis: int, from_axis: int) -> torch.Tensor:
    to, cut = _axis(x, to_axis), _axis(x, from_axis)
    sent = [x.shape[cut] // comm._ranks] * comm._ranks
    received = sent if to == cut else [x.shape[to]] * comm._ranks
    return _call(comm, "alltoall", x, [to, cut, *sent, *received], _recorded(x))


def alltoallv(
    comm: "Comm",
    x: torch.Tensor,
    counts: tuple[Sequence[int], Sequence[int]],
    axes: tuple[int, int],
) -> torch.Tensor:
    sent, received = _counts(comm, counts[0]), _counts(comm, counts[1])
    args = [_axis(x, axes[0]), _axis(x, axes[1]), *sent, *received]
    return _call(comm, "alltoall", x, args, _recorded(x))


def halo(comm: "Comm", x: torch.Tensor, args: list[int]) -> torch.Tensor:
    return _call(comm, "halo", x, args, _recorded(x))


def replicate(comm: "Comm", x: torch.Tensor) -> torch.Tensor:
    return _call(comm, "replicate", x, [], _recorded(x))


def barrier(comm: "Comm") -> None:
    _call(comm, "barrier", torch.empty(0, device="cpu"), [], False)


def join(comm: "Comm", x: torch.Tensor) -> torch.Tensor:
    joins = torch.is_grad_enabled() and (x.is_floating_point() or x.is_complex())
    return _call(comm, "join", x, [], True) if joins and not _values_only() else x


# Messages.


def _check_untransformed(what: str) -> None:
    """A transform does not see that a receive depends on what another rank has sent."""
    if _transformed():
        break_graph(f"{what} inside of torch.func")


def send(comm: "Comm", x: torch.Tensor, dest: int, tag: int) -> torch.Tensor:
    _check_untransformed("Send")
    return _call(comm, "send", x, [dest, tag, 0, 1], _recorded(x))


def recv(comm: "Comm", like: torch.Tensor, source: int, tag: int) -> torch.Tensor:
    """Whether the sender records is known when it is too late: take it that it does."""
    _check_untransformed("Recv")
    smooth = like.is_floating_point() or like.is_complex()
    records = torch.is_grad_enabled() and smooth
    return _call(comm, "recv", like, [source, tag, 0], records)


def sendrecv(
    comm: "Comm", x: torch.Tensor, like: torch.Tensor, to: tuple[int, int], came: tuple[int, int]
) -> torch.Tensor:
    """`to` and `came` are rank and tag."""
    if like.dtype != x.dtype:
        raise TypeError(f"weft.mpi Sendrecv: {x.dtype} is sent and {like.dtype} received")
    return _call(comm, "sendrecv", x, [*to, *came, 0, *like.shape], _recorded(x))
