# SPDX-License-Identifier: Apache-2.0
"""Check gradients of functions that communicate.

torch.autograd.gradcheck sees one rank; here the function is that of all ranks'
inputs, and what is differentiated is the sum of all ranks' results.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from weft.mpi._comm import MAX, SUM, Comm, backward


class GradcheckError(AssertionError):
    """A gradient is wrong; the text says which, on which rank."""


def gradcheck(
    fn: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    comm: Comm,
    eps: float = 1e-6,
    rtol: float = 1e-4,
    atol: float = 1e-6,
    seed: int = 0,
    finite_differences: bool = True,
) -> bool:
    """Check the gradients of `fn(*inputs)`, which communicates over `comm`.

    Collective. The inputs are of double precision, those that require grad are
    checked. Two tests, with other weights on each rank:

    - the dot-product test: for random directions v and weights w, the derivative
      along v (by central differences) times w is the gradient for w times v,
      summed over all ranks;
    - finite differences, with one number of one rank changed at a time.

    Returns True, or raises GradcheckError, on all ranks alike.
    """
    gen = torch.Generator().manual_seed(1000 * seed + comm.rank)
    xs = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    checked = [i for i, x in enumerate(xs) if x.requires_grad]
    ys = _tensors(fn(*xs))
    ws = [_random(y, gen) for y in ys]
    total = sum((_dot(y, w) for y, w in zip(ys, ws, strict=True)), torch.zeros(()))
    backward(total, comm)
    grads = [x.grad if x.grad is not None else torch.zeros_like(x) for x in xs]

    def objective(changed: Sequence[torch.Tensor]) -> float:
        with torch.no_grad():
            outs = _tensors(fn(*changed))
            value = sum((_dot(y, w) for y, w in zip(outs, ws, strict=True)), torch.zeros(()))
            return float(comm.Allreduce(value.to(torch.float64), SUM))

    def shifted(moves: dict[int, torch.Tensor], by: float) -> list[torch.Tensor]:
        return [x.detach() + by * moves[i] if i in moves else x.detach() for i, x in enumerate(xs)]

    def check(moves: dict[int, torch.Tensor], what: str) -> None:
        number = (objective(shifted(moves, eps)) - objective(shifted(moves, -eps))) / (2 * eps)
        own = sum((float(_dot(grads[i], v)) for i, v in moves.items()), 0.0)
        ours = float(comm.Allreduce(torch.tensor(own, dtype=torch.float64), SUM))
        if abs(number - ours) > atol + rtol * abs(number):
            raise GradcheckError(f"{what}: finite differences give {number}, the gradient {ours}")

    check({i: _random(xs[i], gen) for i in checked}, "along a random direction")
    if finite_differences:
        _one_by_one(xs, checked, comm, check)
    return True


def _one_by_one(xs: list[torch.Tensor], checked: list[int], comm: Comm, check: Any) -> None:
    for rank in range(comm.size):
        for i in _agreed(checked, comm, rank):
            for at in range(_agreed([xs[i].numel()], comm, rank)[0]):
                for unit in _units(xs[i]) if comm.rank == rank else [0.0, 0.0]:
                    move = {}
                    if comm.rank == rank:
                        v = torch.zeros_like(xs[i].detach())
                        v.view(-1)[at] = unit
                        move = {i: v}
                    if comm.rank == rank or _agree_units(xs[i]):
                        check(move, f"input {i} of rank {rank}, element {at}")
                    if not xs[i].is_complex():
                        break


def _units(x: torch.Tensor) -> list[Any]:
    return [1.0, 1.0j] if x.is_complex() else [1.0]


def _agree_units(x: torch.Tensor) -> bool:
    return True


def _agreed(numbers: list[int], comm: Comm, root: int) -> list[int]:
    """The numbers of one rank, on all."""
    length = int(comm.Bcast(torch.tensor(len(numbers)), root))
    told = torch.zeros(length, dtype=torch.int64)
    if comm.rank == root:
        told = torch.tensor(numbers, dtype=torch.int64)
    return comm.Bcast(told, root).tolist()


def _tensors(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _random(like: torch.Tensor, gen: torch.Generator) -> torch.Tensor:
    return torch.randn(like.shape, dtype=like.dtype, generator=gen)


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The real inner product, as torch's gradients mean it."""
    if a.is_complex():
        return (a * b.conj()).real.sum()
    return (a * b).sum()


__all__ = ["MAX", "GradcheckError", "gradcheck"]
