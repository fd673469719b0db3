# SPDX-License-Identifier: Apache-2.0
"""Check gradients of functions that communicate.

torch.autograd.gradcheck sees one rank; here the function is that of all ranks'
inputs, and what is differentiated is the sum of all ranks' results.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from weft._core import InvalidError
from weft.mpi._comm import SUM, Comm, backward


class GradcheckError(AssertionError):
    """Raised for a wrong gradient; the text names the input, element and rank."""


def gradcheck(
    fn: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    comm: Comm,
    *,
    eps: float = 1e-6,
    rtol: float = 1e-4,
    atol: float = 1e-6,
    seed: int = 0,
    finite_differences: bool = True,
) -> bool:
    """Check the gradients of `fn(*inputs)`, which communicates over `comm`.

    Collective. The inputs must have double precision; those that require grad are
    checked by two tests, with different weights on each rank:

    - the dot-product test: for random directions v and weights w, the derivative
      along v (by central differences) times w is the gradient for w times v,
      summed over all ranks;
    - finite differences, with one number of one rank changed at a time.

    Returns True, or raises GradcheckError, on all ranks alike.
    """
    for i, x in enumerate(inputs):
        if x.requires_grad and x.dtype not in (torch.float64, torch.complex128):
            raise InvalidError(
                f"input {i} has type {x.dtype}; finite differences need double precision"
            )
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
        if not abs(number - ours) <= atol + rtol * abs(number):  # also False for NaN
            raise GradcheckError(
                f"{what}: finite differences give {number}, but the gradient gives {ours}"
            )

    check({i: _random(xs[i], gen) for i in checked}, "along a random direction")
    if finite_differences:
        _one_by_one(xs, checked, comm, check)
    return True


def _one_by_one(xs: list[torch.Tensor], checked: list[int], comm: Comm, check: Any) -> None:
    for rank in range(comm.size):
        own = [(i, xs[i].numel(), 1 + xs[i].is_complex()) for i in checked]
        plan = _agreed([n for three in own for n in three], comm, rank)
        for i, numel, units in zip(plan[::3], plan[1::3], plan[2::3], strict=True):
            for at in range(numel):
                for unit in (1.0, 1.0j)[:units]:
                    moves = {}
                    if comm.rank == rank:
                        moves[i] = torch.zeros(numel, dtype=xs[i].dtype, device=xs[i].device)
                        moves[i][at] = unit
                        moves[i] = moves[i].view(xs[i].shape)
                    check(moves, f"input {i} of rank {rank}, element {at}")


def _agreed(numbers: list[int], comm: Comm, root: int) -> list[int]:
    """Broadcast a list of numbers, whose length only the root knows."""
    length = int(comm.Bcast(torch.tensor(len(numbers)), root))
    values = torch.zeros(length, dtype=torch.int64)
    if comm.rank == root:
        values = torch.tensor(numbers, dtype=torch.int64)
    return comm.Bcast(values, root).tolist()


def _tensors(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _random(like: torch.Tensor, gen: torch.Generator) -> torch.Tensor:
    return torch.randn(like.shape, dtype=like.dtype, generator=gen)


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the real inner product, which torch's complex gradients refer to."""
    if a.is_complex():
        return (a * b.conj()).real.sum()
    return (a * b).sum()
