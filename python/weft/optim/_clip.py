# SPDX-License-Identifier: Apache-2.0
"""weft.nn.clip_grad_norm_: one norm of dense gradients and of the rows of all ranks."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from weft import _core
from weft._core import Comm
from weft._dealing import Dealing
from weft.nn import Table, tables
from weft.optim import _exchange


def clip(parameters: Any, max_norm: float, norm_type: float, error_if_nonfinite: bool) -> Any:
    """Implement weft.nn.clip_grad_norm_."""
    parts = list(_parts(parameters))
    dense = [p for p in parts if isinstance(p, torch.Tensor) and p.grad is not None]
    trained = [p for p in parts if isinstance(p, Table)]
    norms = [_norm_of_table(table, norm_type) for table in trained]
    if dense:
        norms.append(_norm_of_dense(dense, norm_type))
    total = _combined(norms, norm_type)
    for comm in {table.comm: None for table in trained}:
        total = _largest(comm, total)  # all ranks scale by the same number
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients of parameters and tables is "
            "non-finite, so it cannot be clipped. Pass error_if_nonfinite=False to scale them "
            "anyway"
        )
    factor = max_norm / (total + 1e-6)
    if not factor >= 1:  # a NaN reaches all gradients, as in torch
        for parameter in dense:
            parameter.grad.mul_(factor)
        for table in trained:
            _scale(table, factor)
    return torch.tensor(total)


def _parts(given: Any) -> Iterator[torch.Tensor | Table]:
    """The dense parameters and the tables, each once."""
    seen = set()
    single = isinstance(given, (torch.Tensor, torch.nn.Module))
    items: Iterable[Any] = [given] if single else given
    for item in items:
        if isinstance(item, torch.nn.Module):
            found = [*item.parameters(), *tables(item)]
        elif isinstance(item, torch.Tensor):
            found = [item]
        else:
            raise TypeError(
                f"parameters are modules, tables of weft.nn or tensors, not {type(item).__name__}"
            )
        for part in found:
            if id(part) not in seen:
                seen.add(id(part))
                yield part


def _norm_of_dense(dense: list[torch.Tensor], norm_type: float) -> float:
    grads = [p.grad for p in dense if p.grad is not None]
    norm: Any = torch.nn.utils.get_total_norm(grads, norm_type)
    return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


def _norm_of_table(table: Table, norm_type: float) -> float:
    """Return the norm of the gradients of all ranks that a step would use. Collective."""
    found = _exchange.to_owners(table, Dealing(table.rows))
    own = 0.0
    if found is not None and found.sums.numel():
        own = float(torch.linalg.vector_norm(found.sums, norm_type, dtype=torch.float64))
    if math.isinf(norm_type):
        return _largest(table.comm, own)
    sums = torch.tensor([own**norm_type], dtype=torch.float64)
    table.comm.allreduce(sums)
    return float(sums) ** (1 / norm_type)


def _combined(norms: list[float], norm_type: float) -> float:
    if not norms:
        return 0.0
    return float(torch.linalg.vector_norm(torch.tensor(norms, dtype=torch.float64), norm_type))


def _largest(comm: Comm, number: float) -> float:
    """Return the largest number of all ranks; NaN if one of them is NaN."""
    of_all = torch.tensor([number], dtype=torch.float64)
    comm.allreduce(of_all, op=_core.MAX)
    return float(of_all)


def _scale(table: Table, factor: float) -> None:
    found = table.collected()
    if found is not None:
        ids, grads = found
        table.keep_only((ids, grads * factor))  # not in place: the tensor may be the caller's
