# SPDX-License-Identifier: Apache-2.0
"""What torch.compile and vmap need to know of the operations weft::*."""

from collections.abc import Callable
from typing import Any

import torch

from weft.torch._shim import shim

try:
    from torch._library.effects import EffectType
except ImportError:  # older versions have it elsewhere
    from torch._higher_order_ops.effects import _EffectType as EffectType

Numbers = list[int]


def _ones_more(args: Numbers, *axes: int) -> Numbers:
    """The arguments for a tensor that has one more axis in front."""
    return [n + 1 if i in axes else n for i, n in enumerate(args)]


def _scatter(args: Numbers, batch: int, comm: int) -> Numbers:
    size = shim.mpi_size(comm)
    return [args[0] + 1, *args[1 : 2 + size], batch, *args[2 + size :]]


def _halo(args: Numbers, batch: int, comm: int) -> Numbers:
    return [n + 1 if i % 5 == 0 else n for i, n in enumerate(args)]


def _sendrecv(args: Numbers, batch: int, comm: int) -> Numbers:
    return [*args[:5], batch, *args[5:]]


# How the arguments change when a batch is put in front of the payload.
_BATCHED: dict[str, Callable[[Numbers, int, int], Numbers]] = {
    "gather": lambda args, batch, comm: _ones_more(args, 0),
    "allgather": lambda args, batch, comm: _ones_more(args, 0),
    "own_part": lambda args, batch, comm: _ones_more(args, 0),
    "reduce_scatter": lambda args, batch, comm: _ones_more(args, 1),
    "alltoall": lambda args, batch, comm: _ones_more(args, 0, 1),
    "scatter": _scatter,
    "halo": _halo,
    "halo_back": _halo,
    "sendrecv": _sendrecv,
}


def _register(name: str) -> None:
    op = getattr(torch.ops.weft, name)
    change = _BATCHED.get(name)

    def fake(x: torch.Tensor, comm: int, mark: int, args: Numbers) -> torch.Tensor:
        return x.new_empty(shim.mpi_shape(name, list(x.shape), comm, list(args)))

    def batched(info: Any, in_dims: Any, x: Any, *rest: Any) -> Any:
        comm, mark, args = rest
        front = x.movedim(in_dims[0], 0)
        numbers = list(args)
        if change is not None:
            numbers = change(numbers, info.batch_size, comm)
        result = op(front, comm, mark, numbers)
        if name == "send":  # what comes back is a batch, too
            result = result.expand(info.batch_size, 0)
        return result, 0

    torch.library.register_vmap(f"weft::{name}", batched)
    _register_effect(name, fake)


def _register_traced(name: str) -> None:
    """As compiled code has the operation: see _traced.py."""

    def fake(x: torch.Tensor, token: Any, of: Any, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
        comm, _, args = rest
        shape = shim.mpi_shape(name, list(x.shape), comm, list(args))
        return x.new_empty(shape), torch.empty(2, dtype=torch.float64, device="cpu")

    _register_effect("traced_" + name, fake)


def _register_effect(name: str, fake: Callable[..., Any]) -> None:
    torch.library.register_fake(f"weft::{name}", fake)
    torch.library._register_effectful_op(f"weft::{name}", EffectType.ORDERED)
    torch.fx.node.has_side_effect(getattr(torch.ops.weft, name).default)


def checkpoint_policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    """For selective checkpointing: keep what was communicated, compute the rest again.

    context_fn = functools.partial(
        torch.utils.checkpoint.create_selective_checkpoint_contexts, mpi.checkpoint_policy)
    """
    from torch.utils.checkpoint import CheckpointPolicy

    ours = getattr(op, "namespace", None) == "weft"
    return CheckpointPolicy.MUST_SAVE if ours else CheckpointPolicy.PREFER_RECOMPUTE


# At import, always: a compiled graph that was cached without the effect would
# drop operations whose result is not used.
for _name in shim.mpi_names:
    _register(_name)
    _register_traced(_name)
