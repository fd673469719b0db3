# SPDX-License-Identifier: Apache-2.0
"""weft.Region: what there is to know and to do with a shared tensor."""

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from weft import _core, _elements, _job
from weft._core import Comm, InvalidError, RegionHandle, UnsupportedError

PARTITIONS = ("equal", "given", "round_robin")
REACHES = ("auto", "mapped", "distributed", "hierarchy")

_Path = str | os.PathLike[str]


class Facts(NamedTuple):
    """What the C library does not know of a region.

    element:   of its tensor
    row_shape: as its maker gave it
    comm:      its ranks
    start:     attached memory: bytes before the tensor, and how it lies from there on
    layout:    its sizes, and its strides in bytes; None for a region
    """

    element: _elements.Element
    row_shape: tuple[int, ...]
    comm: Comm | None = None
    start: int = 0
    layout: tuple[tuple[int, ...], tuple[int, ...]] | None = None


class Region:
    """A tensor over all ranks, of which each owns a part of the rows.

    `weft.region(t)` gives that of a tensor, `weft.table(...)` makes one. It keeps
    the memory alive, as every tensor on it does.
    """

    __slots__ = ("__weakref__", "_facts", "_handle")

    def __init__(self, handle: RegionHandle, facts: Facts) -> None:
        self._handle = handle
        self._facts = facts

    # What it is.

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes, rows first."""
        if self._facts.layout is not None:
            return self._facts.layout[0]
        return (self._handle.describe()["shape"][0], *self._facts.row_shape)

    @property
    def dtype(self) -> Any:
        """The type of its elements."""
        return self._facts.element.dtype

    @property
    def device(self) -> str:
        """Where the memory is: "cpu", or "cuda:0" and so on."""
        if self._facts.layout is not None:
            return "cpu"
        about = self._handle.describe()
        return f"cuda:{about['device']}" if about["place"] else "cpu"

    @property
    def rank(self) -> int:
        """The number of this process among its ranks."""
        return self._handle.describe()["rank"]

    @property
    def ranks(self) -> int:
        """How many have a part of it."""
        return self._handle.describe()["ranks"]

    @property
    def comm(self) -> Comm | None:
        """The communicator it was made over, where that is known."""
        return self._facts.comm

    @property
    def partition(self) -> str:
        """How rows were dealt: "equal", "given" or "round_robin"."""
        return PARTITIONS[self._handle.describe()["partition"]]

    @property
    def reach(self) -> str:
        """How rows of others are reached: "mapped", "distributed" or "hierarchy"."""
        return REACHES[self._handle.describe()["reach"]]

    @property
    def flat(self) -> bool:
        """Is it one tensor here, with its rows in their order?"""
        if self._facts.layout is not None:
            return True
        about = self._handle.describe()
        return about["flat"] and (about["mapped"] or 0 in self.shape)

    @property
    def max_rows(self) -> int:
        """What resize may reach."""
        return self._handle.describe()["max_rows"]

    @property
    def rows_per_rank(self) -> tuple[int, ...]:
        """How many rows each rank owns."""
        return tuple(sum(rows for _, rows, _ in self._handle.parts(r)) for r in range(self.ranks))

    def ranges(self, rank: int | None = None) -> list[tuple[int, int]]:
        """The rows that a rank owns, this one by default, as (first, after the last)."""
        if self.partition == "round_robin" and self.ranks > 1:
            raise UnsupportedError("a round-robin region has no ranges of rows; see locate(row)")
        found = self._handle.parts(self.rank if rank is None else rank)
        return [(row, row + rows) for row, rows, _ in found]

    @property
    def start(self) -> int:
        """The first row that this rank owns."""
        return self._range()[0]

    @property
    def stop(self) -> int:
        """The row after the last that this rank owns."""
        return self._range()[1]

    def _range(self) -> tuple[int, int]:
        found = self.ranges()
        if len(found) > 1:
            raise UnsupportedError("since a resize this rank owns several ranges: see ranges()")
        return found[0]

    def locate(self, row: int) -> tuple[int, int]:
        """The owner of a row, and which of the owner's rows it is."""
        return self._handle.locate(row)

    def stats(self) -> dict[str, int]:
        """What this rank has counted since the region was made."""
        return self._handle.count()

    # Tensors on its memory.

    @property
    def tensor(self) -> Any:
        """All of it, as one tensor of which row i is row i."""
        return self._whole(self._handle.window, "cpu" if self.device == "cpu" else self.device)

    def readonly(self) -> Any:
        """The same as memory that the processor lets nobody write to."""
        return self._whole(lambda **more: self._handle.window(readonly=True, **more), self.device)

    def on(self, device: Any) -> Any:
        """The same as `device` sees it: "cpu", or a CUDA device for memory of the host."""
        name = str(device)
        number = device_number(name)
        if number is None:
            return self._whole(self._handle.window, "cpu")
        if number < 0:
            raise UnsupportedError("torch finds no CUDA device")
        if self._facts.element.library != "torch":
            raise UnsupportedError("a view on a GPU must be a torch tensor, not a NumPy array")
        return self._whole(self._handle.window, f"cuda:{number}")

    def _whole(self, window: Callable[..., Any], device: str) -> Any:
        facts = self._facts
        if facts.layout is not None:
            return _attached(window(), facts)
        about = self._handle.describe()
        if not self.flat:
            raise UnsupportedError(_why_not_flat(about))
        number = device_number(device)
        memory = window(device=-1 if number is None else number)
        made = _elements.make(facts.element, memory, self.shape, about["row_pitch"], device)
        if 0 in self.shape:
            _remember_empty(made, self._handle)
        return made

    @property
    def local(self) -> Any:
        """The rows that this rank owns, as a tensor."""
        return self.part(self.rank)

    @property
    def locals(self) -> list[Any]:
        """The same as a list, for there may be several ranges after a resize."""
        return self._parts(self.rank)

    def part(self, rank: int) -> Any:
        """The rows that a rank owns, as a tensor."""
        found = self._parts(rank)
        if len(found) > 1:
            raise UnsupportedError(
                f"since a resize rank {rank} owns several ranges of rows; locals and parts have "
                "a tensor for each"
            )
        return found[0]

    @property
    def parts(self) -> list[Any]:
        """A tensor for each range of each rank, in the order of ranks."""
        return [part for rank in range(self.ranks) for part in self._parts(rank)]

    def _parts(self, rank: int) -> list[Any]:
        pitch = self._handle.describe()["row_pitch"]
        device = self.device
        number = device_number(device)
        made = []
        for index, (_, rows, _) in enumerate(self._handle.parts(rank)):
            memory = self._handle.window(rank, index, device=-1 if number is None else number)
            sizes = (rows, *self._facts.row_shape)
            made.append(_elements.make(self._facts.element, memory, sizes, pitch, device))
        return made

    def view(self, starts: Sequence[int], ends: Sequence[int]) -> Any:
        """The tensor from `starts` up to `ends`, a number for each dimension.

        -1 is the beginning or the end. The same as slicing, except that what
        would be empty is refused.
        """
        shape = self.shape
        if len(starts) != len(shape) or len(ends) != len(shape):
            raise InvalidError(f"the shape is {shape}: pass {len(shape)} starts and ends")
        cut = []
        for start, end, size in zip(starts, ends, shape, strict=True):
            first, after = (0 if start == -1 else start), (size if end == -1 else end)
            if not 0 <= first < after <= size:
                raise InvalidError(f"the range {start} to {end} is out of range (size {size})")
            cut.append(slice(first, after))
        return self.tensor[tuple(cut)]

    # What ranks do with it together.

    def resize(self, rows: int) -> Any:
        """Change the number of rows, up to max_rows; returns the tensor of all, if there is one.

        Collective. Rows do not move; new ones are zero. Tensors made before see
        the rows that they had: those of rows that went must not be used.
        """
        self._handle.resize(rows)
        return self.tensor if self.flat else None

    def barrier(self, timeout: float | None = None) -> None:
        """Return when all ranks have called it; what they wrote before can be seen."""
        self._handle.barrier(timeout)

    def signal(self, to: int, slot: int = 0, by: int = 1) -> None:
        """Add to a word of rank `to`; it will see what was written before."""
        self._handle.signal(to, slot, by)

    def wait(self, value: int, slot: int = 0, timeout: float | None = None) -> None:
        """Return when this rank's word has come to `value`."""
        self._handle.wait(value, slot, timeout)

    def signalled(self, rank: int, slot: int = 0) -> int:
        """The word of a rank of this node, now."""
        return self._handle.signalled(rank, slot)

    # Files.

    def save(
        self,
        path: _Path,
        *,
        comm: Comm | None = None,
        threads: int = 0,
        direct: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Write it to a file, which appears when it is whole. Collective."""
        self._handle.save(self._ranks_of(comm), path, threads, direct, progress)

    def load(
        self,
        path: _Path,
        *,
        comm: Comm | None = None,
        threads: int = 0,
        direct: bool = False,
        verify: bool = True,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Fill it from a file of save(), whatever number of ranks wrote that. Collective."""
        self._handle.load(self._ranks_of(comm), path, threads, direct, verify, progress)

    def load_raw(
        self,
        paths: _Path | Iterable[_Path],
        *,
        comm: Comm | None = None,
        threads: int = 0,
        direct: bool = False,
        row_bytes: int = 0,
        skip: int = 0,
    ) -> None:
        """Fill it from files of nothing but rows, read as if they were one, or from a .npy.

        row_bytes: of a row in the files, if it is not as long as one here
        skip:      where in a row here it goes, in bytes
        """
        files = (paths,) if isinstance(paths, str | os.PathLike) else tuple(paths)
        self._handle.load_raw(self._ranks_of(comm), files, threads, direct, row_bytes, skip)

    def sync(self) -> None:
        """Where the memory is a file: return when the disk has what was written."""
        self._handle.sync()

    def _ranks_of(self, comm: Comm | None) -> Comm:
        return comm or self._facts.comm or _job.world().comm

    def __reduce__(self) -> Any:
        raise TypeError(
            "a weft.Region belongs to its process and cannot be copied or pickled: pass its "
            "tensor, which multiprocessing hands over as memory, or a module's state_dict()"
        )

    def __repr__(self) -> str:
        if self._facts.layout is not None:
            sizes = self._facts.layout[0]
            return f"<weft.Region {sizes} {self.dtype}, attached>"
        about = self._handle.describe()
        rows = sum(rows for _, rows, _ in self._handle.parts(about["rank"]))
        return (
            f"<weft.Region {self.shape} {self.dtype} on {self.device}, {self.partition} parts, "
            f"{self.reach}: {rows} rows on rank {about['rank']} of {about['ranks']}>"
        )


def region(t: Any) -> Region:
    """The Region in whose memory the tensor or array `t` lies, or any part of it."""
    if isinstance(t, Region):
        return t
    handle = find(t)
    if handle is None:
        raise InvalidError(
            "the tensor does not lie in a region, as those of weft.empty and its kin do"
        )
    return Region(handle, facts_of(handle, _elements.library_of(t) or "numpy"))


def whole_region(t: Any) -> Region:
    """The Region of `t`, where `t` is all of its rows; a Region is, too."""
    found = region(t)
    if t is not found and not (found.flat and _layout(t) == _layout(found.tensor)):
        raise InvalidError(
            f"the tensor of shape {tuple(t.shape)} and type {t.dtype} is a part of a region of "
            f"{found.shape} {found.dtype}: pass the tensor of the whole"
        )
    return found


def _layout(t: Any) -> tuple[Any, ...]:
    steps = t.stride() if _elements.library_of(t) == "torch" else t.strides
    return tuple(t.shape), t.dtype, tuple(steps)


def find(t: Any) -> RegionHandle | None:
    """The handle of the shared memory that `t` lies in, or None."""
    library = _elements.library_of(t)
    if library is None:
        raise TypeError(f"a torch tensor or NumPy array is expected, not {type(t).__name__}")
    empty = _empties.get(id(t))
    if empty is not None and empty[0]() is t:
        return empty[1]
    if library == "torch":
        if t.layout != sys.modules["torch"].strided or t.numel() == 0:
            return None
        return _core.region_find(t.data_ptr())
    return _core.region_find(t.ctypes.data) if t.size else None


def facts_of(handle: RegionHandle, library: str) -> Facts:
    """What was remembered of a region, or can be told from itself."""
    facts = handle.facts
    if isinstance(facts, Facts):
        return facts
    about = handle.describe()
    return Facts(_elements.element_of(about["type"], library), about["shape"][1:])


def device_number(device: str) -> int | None:
    """The number of a CUDA device, -1 for the current one; None for the host."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return None
    if kind != "cuda" or (number and not number.isdigit()):
        raise InvalidError(f"device is {device!r}; it must be 'cpu', 'cuda' or 'cuda:N'")
    if number:
        return int(number)
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return -1
    return torch.cuda.current_device()


def _attached(window: Any, facts: Facts) -> Any:
    """The tensor that another process shared."""
    assert facts.layout is not None
    sizes, strides = facts.layout
    found = facts.element
    if found.library == "numpy":
        import numpy

        return numpy.ndarray(sizes, found.dtype, window, facts.start, strides)
    import torch

    storage = torch.from_dlpack(window).untyped_storage()
    steps = [stride // found.item for stride in strides]
    start = facts.start // found.item
    return torch.empty(0, dtype=found.dtype, device="cpu").set_(storage, start, sizes, steps)


def _why_not_flat(about: dict[str, Any]) -> str:
    if not about["mapped"]:
        why = "some of its rows are on other nodes and not mapped here"
    elif PARTITIONS[about["partition"]] == "round_robin":
        why = "round-robin rows do not lie in the order of their numbers"
    else:
        why = "its parts begin on pages of their own, with gaps between them"
    return (
        f"the region is no single tensor: {why}. weft.table(...) makes the Region, whose local, "
        "part(rank), gather and scatter work all the same"
    )


# Tensors without elements have no address to be found by: id -> (weak, handle).
_empties: dict[int, tuple[Any, RegionHandle]] = {}


def _remember_empty(t: Any, handle: RegionHandle) -> None:
    number = id(t)
    weak = weakref.ref(t, lambda _: _empties.pop(number, None))
    _empties[number] = (weak, handle)
