# SPDX-License-Identifier: Apache-2.0
"""Fake kernels, effects and vmap rules of the operations weft::*."""

from collections.abc import Callable
from typing import Any

import torch

from weft.torch._shim import shim

try:
    from torch._library.effects import EffectType
except ImportError:  # older versions have it elsewhere
    from torch._higher_order_ops.effects import _EffectType as EffectType

Numbers = list[int]


def _result(name: str, x: torch.Tensor, comm: int, args: Numbers) -> torch.Tensor:
    return x.new_empty(shim.mpi_shape(name, list(x.shape), comm, list(args)))


def _register(name: str) -> None:
    op = getattr(torch.ops.weft, name)

    def fake(
        x: torch.Tensor, comm: int, mark: int, args: Numbers
    ) -> tuple[torch.Tensor, torch.Tensor]:
        info_tensor = torch.empty(shim.mpi_info_length, dtype=torch.int64, device="cpu")
        return _result(name, x, comm, args), info_tensor

    def batched(info: Any, in_dims: Any, x: Any, *rest: Any) -> Any:
        comm, mark, args = rest
        numbers = shim.mpi_with_batch(name, comm, list(args), info.batch_size)
        result, info_tensor = op(x.movedim(in_dims[0], 0), comm, mark, numbers)
        if name == "send":  # its empty result must be a batch, too
            result = result.expand(info.batch_size, 0)
        return (result, info_tensor), (0, None)

    torch.library.register_vmap(f"weft::{name}", batched)
    _register_effect(name, fake)


def _register_traced(name: str) -> None:
    """Register the operation for compiled code: see _traced.py."""

    def fake(x: torch.Tensor, token: Any, of: Any, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
        comm, _, args = rest
        return _result(name, x, comm, args), torch.empty(2, dtype=torch.float64, device="cpu")

    _register_effect("traced_" + name, fake)


def _register_effect(name: str, fake: Callable[..., Any]) -> None:
    torch.library.register_fake(f"weft::{name}", fake)
    torch.library._register_effectful_op(f"weft::{name}", EffectType.ORDERED)
    torch.fx.node.has_side_effect(getattr(torch.ops.weft, name).default)


def checkpoint_policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    """Policy for selective checkpointing: save what was communicated, recompute the rest.

    context_fn = functools.partial(
        torch.utils.checkpoint.create_selective_checkpoint_contexts, mpi.checkpoint_policy)
    """
    from torch.utils.checkpoint import CheckpointPolicy

    ours = getattr(op, "namespace", None) == "weft"
    return CheckpointPolicy.MUST_SAVE if ours else CheckpointPolicy.PREFER_RECOMPUTE


# Always at import: a compiled graph that was cached without the effect would drop
# operations whose result is not used.
for _name in shim.mpi_arguments:
    _register(_name)
    _register_traced(_name)
