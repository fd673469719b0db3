# SPDX-License-Identifier: Apache-2.0
"""weft.Cache: the hot rows of a table, close to where they are used.

Sets of 32 lines; row r may be in any line of set r mod sets. How often each row
was asked for is counted, cached or not, and a row takes the place of the least
used line of its set once it has been used more often. Everything is tensors on
the cache's device, so that one code serves the CPU and a GPU; only the rows that
are not cached are fetched from the table.
"""

from typing import Any, NamedTuple

from weft import _missing, _rows
from weft._core import InvalidError, UnsupportedError
from weft._region import Region, whole_region

try:
    import torch
except ModuleNotFoundError as error:
    raise _missing.torch("weft.Cache", error) from None

WAYS = 32
WRITES = ("through", "back", "read-only")
# Old uses count half after so many, for each row of the table ...
_AGE = 8
# ... and at most so many, for counts are int32.
_AGE_MOST = 1 << 29


class CacheStats(NamedTuple):
    """What a cache has done since it was made."""

    hits: int
    misses: int
    evictions: int
    written_back: int
    rows: int

    @property
    def hit_rate(self) -> float:
        """Which part of the rows that were asked for was in the cache."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0


class Cache:
    """A cache of this process for rows of `table`, a shared tensor or a Region.

    rows, ratio: how many rows it holds, or which part of the table's; rounded up
                 to whole sets of 32
    device:      where; ids and results are there, too
    policy:      "lfu", the least frequently used rows go first
    write:       "through": scatter writes to the table at once; "back": when a row
                 leaves the cache, and at flush(); "read-only": there is no scatter

    It knows what this process writes through it. What others write to the table is
    seen after drop().
    """

    def __init__(
        self,
        table: Any,
        rows: int | None = None,
        ratio: float | None = None,
        *,
        device: Any = "cuda",
        policy: str = "lfu",
        write: str = "through",
    ) -> None:
        if policy != "lfu":
            raise InvalidError(f"policy is {policy!r}; it must be 'lfu'")
        if write not in WRITES:
            raise InvalidError(f"write is {write!r}; it must be {', '.join(map(repr, WRITES))}")
        self.table: Region = whole_region(table)
        self.write = write
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise UnsupportedError(
                "torch finds no CUDA device: pass device='cpu' to keep rows on the host"
            )
        total = self.table.shape[0]
        sets = -(-_capacity(total, rows, ratio) // WAYS)
        lines = sets * WAYS
        make = {"device": self.device}
        self._sets = sets
        self._tags = torch.full((lines,), -1, dtype=torch.int64, **make)
        self._dirty = torch.zeros(lines, dtype=torch.bool, **make)
        self._lines = torch.zeros((lines, *self.table.shape[1:]), dtype=self.table.dtype, **make)
        self._uses = torch.zeros(total, dtype=torch.int32, **make)
        self._since_ageing = 0
        self._hits = self._misses = self._evictions = self._written_back = 0

    @property
    def capacity(self) -> int:
        """How many rows it can hold."""
        return self._sets * WAYS

    @torch.no_grad()
    def gather(self, ids: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """The rows `ids`, as weft.gather: a negative id is a row of zeros, or as it was in out."""
        self._follow_size()
        ids = self._numbers(ids)
        numbers = ids.reshape(-1)
        wanted, places, counts = torch.unique(numbers, return_inverse=True, return_counts=True)
        self._check(wanted)
        found = torch.zeros(
            (wanted.numel(), *self._lines.shape[1:]), dtype=self._lines.dtype, device=self.device
        )
        line = self._find(wanted)
        hit = line >= 0
        found[hit] = self._lines[line[hit]]
        missed = ~hit & (wanted >= 0)
        # A negative id leaves its row as it is.
        _rows.gather(self.table, torch.where(missed, wanted, -1), found)
        self._count(wanted, counts, hit)
        self._admit(wanted[missed], found[missed], dirty=False)
        shape = (*ids.shape, *self._lines.shape[1:])
        if out is None:
            return found[places].reshape(shape)
        kept = (numbers >= 0).reshape(ids.shape)
        out[kept] = found[places].reshape(shape)[kept].to(out.dtype)
        return out

    @torch.no_grad()
    def scatter(self, ids: torch.Tensor, rows: torch.Tensor) -> None:
        """Set rows; of equal ids the last wins. What is written is in the cache, too."""
        if self.write == "read-only":
            raise InvalidError("the cache is read-only: make it with write='through' or 'back'")
        self._follow_size()
        wanted, values, counts = self._last_of_each(ids, rows)
        self._check(wanted)
        line = self._find(wanted)
        hit = line >= 0
        self._lines[line[hit]] = values[hit]
        self._count(wanted, counts, hit)
        if self.write == "through":
            _rows.scatter(self.table, wanted, values)
            self._admit(wanted[~hit], values[~hit], dirty=False)
            return
        self._dirty[line[hit]] = True
        left = self._admit(wanted[~hit], values[~hit], dirty=True)
        _rows.scatter(self.table, wanted[~hit][left], values[~hit][left])

    @torch.no_grad()
    def flush(self) -> None:
        """Write to the table what only the cache has."""
        self._follow_size()
        self._write_back(self._dirty.nonzero().reshape(-1))
        self._synchronize()

    def drop(self) -> None:
        """Forget all rows, after flush(); what is asked for next comes from the table."""
        self.flush()
        self._tags.fill_(-1)

    def stats(self) -> CacheStats:
        """Hits, misses and so on since it was made; a row counts as often as it is asked for."""
        rows = int((self._tags >= 0).sum())
        return CacheStats(self._hits, self._misses, self._evictions, self._written_back, rows)

    def __repr__(self) -> str:
        return (
            f"<weft.Cache of {self.capacity} among {self.table.shape[0]} rows on {self.device}, "
            f"write {self.write}>"
        )

    def _follow_size(self) -> None:
        """The table may have been resized: rows that went are in the cache no more."""
        rows, counted = self.table.shape[0], self._uses.numel()
        if rows != counted:
            gone = self._tags >= rows
            self._tags[gone] = -1
            self._dirty[gone] = False
            self._uses = torch.nn.functional.pad(self._uses, (0, rows - counted))

    # Inside: ids are int64 on the device, each once, in rising order.

    def _numbers(self, ids: Any) -> torch.Tensor:
        return _rows.numbers(ids).to(self.device, torch.int64)

    def _check(self, wanted: torch.Tensor) -> None:
        if wanted.numel() and int(wanted[-1]) >= self.table.shape[0]:
            raise InvalidError(f"id {int(wanted[-1])} is out of range ({self.table.shape[0]} rows)")

    def _find(self, wanted: torch.Tensor) -> torch.Tensor:
        """The line of each, or -1."""
        first = wanted.clamp(min=0) % self._sets * WAYS
        ways = first[:, None] + torch.arange(WAYS, device=self.device)
        same = (self._tags[ways] == wanted[:, None]) & (wanted >= 0)[:, None]
        return torch.where(same.any(1), first + same.int().argmax(1), -1)

    def _count(self, wanted: torch.Tensor, counts: torch.Tensor, hit: torch.Tensor) -> None:
        there = wanted >= 0
        self._uses.index_add_(0, wanted[there], counts[there].to(torch.int32))
        asked, found = int(counts[there].sum()), int(counts[hit].sum())
        self._hits += found
        self._misses += asked - found
        self._since_ageing += asked
        if self._since_ageing > min(_AGE * self._uses.numel(), _AGE_MOST):
            self._uses >>= 1
            self._since_ageing = 0

    def _admit(self, missed: torch.Tensor, values: torch.Tensor, dirty: bool) -> torch.Tensor:
        """Take in rows that are used more than what is there. True: it was not taken.

        In each set the candidates, most used first, are held against the lines,
        least used first, until one is not better than its line.
        """
        order = self._by_set_and_use(missed)
        rows = missed[order]
        home = rows % self._sets
        turn = _position_in_run(home)
        ways = home[:, None] * WAYS + torch.arange(WAYS, device=self.device)
        tags = self._tags[ways]
        uses = torch.where(tags >= 0, self._uses[tags.clamp(min=0)], -1)
        ranked, way = uses.sort(dim=1, stable=True)
        pick = turn.clamp(max=WAYS - 1)[:, None]
        better = self._uses[rows] > ranked.gather(1, pick)[:, 0]
        taken = better & (turn < WAYS)
        line = ways.gather(1, way.gather(1, pick))[:, 0][taken]
        self._evictions += int((self._tags[line] >= 0).sum())
        self._write_back(line[self._dirty[line]])
        self._tags[line] = rows[taken]
        self._lines[line] = values[order][taken]
        self._dirty[line] = dirty
        left = torch.ones_like(missed, dtype=torch.bool)
        left[order[taken]] = False
        return left

    def _by_set_and_use(self, rows: torch.Tensor) -> torch.Tensor:
        by_use = torch.argsort(self._uses[rows], descending=True, stable=True)
        return by_use[torch.argsort((rows % self._sets)[by_use], stable=True)]

    def _write_back(self, lines: torch.Tensor) -> None:
        if lines.numel():
            _rows.scatter(self.table, self._tags[lines], self._lines[lines])
            self._dirty[lines] = False
            self._written_back += lines.numel()

    def _last_of_each(
        self, ids: torch.Tensor, rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        numbers = self._numbers(ids).reshape(-1)
        values = rows.to(self.device, self._lines.dtype).reshape(-1, *self._lines.shape[1:])
        if values.shape[0] != numbers.numel():
            raise InvalidError(f"{numbers.numel()} ids, but {values.shape[0]} rows")
        kept = numbers >= 0
        numbers, values = numbers[kept], values[kept]
        wanted, places, counts = torch.unique(numbers, return_inverse=True, return_counts=True)
        last = torch.zeros_like(wanted).scatter_reduce_(
            0, places, torch.arange(numbers.numel(), device=self.device), "amax"
        )
        return wanted, values[last], counts

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()


def _capacity(total: int, rows: int | None, ratio: float | None) -> int:
    if (rows is None) == (ratio is None):
        raise InvalidError("pass either rows or ratio")
    if ratio is not None:
        if not 0 < ratio <= 1:
            raise InvalidError(f"ratio is {ratio}; it must be greater than 0 and at most 1")
        rows = round(total * ratio)
    assert rows is not None
    if rows < 0:
        raise InvalidError(f"rows is {rows}; it must not be negative")
    return max(rows, 1)


def _position_in_run(values: torch.Tensor) -> torch.Tensor:
    """For sorted values: how many equal ones stand before each."""
    at = torch.arange(values.numel(), device=values.device)
    return at - torch.searchsorted(values, values)
