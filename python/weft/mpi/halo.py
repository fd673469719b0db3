# SPDX-License-Identifier: Apache-2.0
"""Ranks on a Cartesian grid, and the exchange of halos between neighbours."""

import math
from collections.abc import Sequence

import torch

from weft._core import InvalidError
from weft.mpi import _traced
from weft.mpi._comm import PROC_NULL, Comm, _tracing


class CartComm:
    """The ranks of a communicator on a grid, in row-major order.

        cart = comm.Create_cart((2, 2), periods=(True, False))
        y = cart.halo_exchange(x, widths=1)

    coords, dims and periods are tuples. A rank without a neighbour on one side
    has zeros in the halo there.
    """

    def __init__(
        self, comm: Comm, dims: Sequence[int], periods: Sequence[bool] | bool = False
    ) -> None:
        self.comm = comm
        self.dims = tuple(int(n) for n in dims)
        flags = [periods] * len(self.dims) if isinstance(periods, bool) else list(periods)
        self.periods = tuple(bool(p) for p in flags)
        if len(self.periods) != len(self.dims):
            raise InvalidError(
                f"dims {self.dims} and periods {self.periods} must have the same length"
            )
        if math.prod(self.dims) != comm.size or any(n < 1 for n in self.dims):
            raise InvalidError(f"the grid {self.dims} does not match {comm.size} ranks")
        self.coords = self.coords_of(comm.rank)

    def coords_of(self, rank: int) -> tuple[int, ...]:
        """Return the coordinates of a rank."""
        coords = []
        for n in reversed(self.dims):
            coords.append(rank % n)
            rank //= n
        return tuple(reversed(coords))

    def rank_of(self, coords: Sequence[int]) -> int:
        """Return the rank at these coordinates; PROC_NULL if they are outside the grid."""
        rank = 0
        for at, n, periodic in zip(coords, self.dims, self.periods, strict=True):
            if not periodic and not 0 <= at < n:
                return PROC_NULL
            rank = rank * n + at % n
        return rank

    def Shift(self, axis: int, steps: int = 1) -> tuple[int, int]:
        """Return (source, destination) of a shift by `steps` along an axis of the grid."""
        here = list(self.coords)
        here[axis] -= steps
        source = self.rank_of(here)
        here[axis] += 2 * steps
        return source, self.rank_of(here)

    def halo_exchange(
        self,
        x: torch.Tensor,
        widths: int | Sequence[int | tuple[int, int]] = 1,
        axes: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Return x surrounded by the edges of the neighbours' blocks, corners included.

        widths: slices on both sides, for each axis of the grid, or (low, high)
        axes:   which axis of x lies along each axis of the grid; the last ones
                if None, so that batch and channels may stand in front

        Its adjoint sends the gradients of the halos back and adds them.
        """
        n = len(self.dims)
        each = [widths] * n if isinstance(widths, int) else list(widths)
        along = list(range(x.dim() - n, x.dim())) if axes is None else list(axes)
        along = [axis + x.dim() if axis < 0 else axis for axis in along]
        if len(each) != n or len(along) != n:
            raise InvalidError(f"the grid has {n} axes: pass one width and one axis of x for each")
        lists: dict[str, list[int]] = {
            name: [] for name in ("axes", "low", "high", "below", "above")
        }
        for i, (width, axis) in enumerate(zip(each, along, strict=True)):
            low, high = (width, width) if isinstance(width, int) else width
            if not 0 <= axis < x.dim():
                raise InvalidError(f"axis {axis} is out of range ({x.dim()} axes)")
            if min(low, high) < 0 or x.shape[axis] < max(low, high):
                raise InvalidError(
                    f"halo widths ({low}, {high}) are out of range: the block has length "
                    f"{x.shape[axis]} along axis {axis}"
                )
            row = (axis, low, high, *self.Shift(i))
            for values, value in zip(lists.values(), row, strict=True):
                values.append(value)
        return _traced.halo(self.comm, x, **lists) if _tracing() else self.comm._halo(x, **lists)
