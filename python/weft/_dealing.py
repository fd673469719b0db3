# SPDX-License-Identifier: Apache-2.0
"""Who owns which rows of a region, for many rows at once."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from weft._region import Region


class Piece(NamedTuple):
    """Some of the ids that were asked for, all in one range of rows of this rank.

    part: which range, in Region.locals
    begin, end: which of the ids
    rows: where they are in the range
    """

    part: int
    begin: int
    end: int
    rows: torch.Tensor


class Dealing:
    """How the rows of a region are dealt to its ranks.

    A region is a row of stretches, one more for each time it has grown, and each
    of them is dealt by itself.
    """

    def __init__(self, region: Region) -> None:
        parts = [region._handle.parts(rank) for rank in range(region.ranks)]
        self.rows = region.shape[0]
        self._rank, self._ranks = region.rank, region.ranks
        self._own = parts[region.rank]
        self._run = 0
        if region.partition == "round_robin":
            self._run = region._handle.describe()["run"]
            self._starts = torch.tensor([row for row, _, _ in parts[0]])
            return
        ranges = sorted(
            (row, rank) for rank, own in enumerate(parts) for row, rows, _ in own if rows
        )
        self._starts = torch.tensor([row for row, _ in ranges], dtype=torch.int64)
        self._owners = torch.tensor([rank for _, rank in ranges], dtype=torch.int64)

    def owner_of(self, ids: torch.Tensor) -> torch.Tensor:
        """The rank that owns each of these rows, which are there; `ids` are on the host."""
        if self.rows == 0:
            return torch.empty_like(ids)
        at = torch.searchsorted(self._starts, ids, right=True) - 1
        if self._run == 0:
            return self._owners[at]
        return (ids - self._starts[at]) // self._run % self._ranks

    def own_pieces(self, ids: torch.Tensor) -> Iterator[Piece]:
        """Where rows of this rank are; `ids` are in rising order, on any device."""
        if self._run:
            yield from self._dealt_in_turn(ids)
            return
        for index, (first, rows, _) in enumerate(self._own):
            begin, end = _between(ids, first, first + rows)
            if begin < end:
                yield Piece(index, begin, end, ids[begin:end] - first)

    def _dealt_in_turn(self, ids: torch.Tensor) -> Iterator[Piece]:
        ends = [*self._starts.tolist()[1:], self.rows]
        for index, (start, after) in enumerate(zip(self._starts.tolist(), ends, strict=True)):
            begin, end = _between(ids, start, after)
            if begin < end:
                inside = ids[begin:end] - start
                turn = inside // self._run // self._ranks
                yield Piece(index, begin, end, turn * self._run + inside % self._run)


def _between(ids: torch.Tensor, first: int, after: int) -> tuple[int, int]:
    """Which of the ids, in rising order, are from `first` up to `after`."""
    ends = torch.searchsorted(ids, torch.tensor([first, after], device=ids.device))
    return int(ends[0]), int(ends[1])
