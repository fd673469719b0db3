# SPDX-License-Identifier: Apache-2.0
"""Making shared tensors: weft.empty, zeros, full, from_file, new_file, and weft.table."""

import operator
import os
from collections.abc import Iterable, Sequence
from typing import Any

from weft import _agree, _core, _elements, _job, _share
from weft._core import Comm, InvalidError, RegionHandle
from weft._region import PARTITIONS, REACHES, Facts, Region, device_number

PAGES = ("default", "small", "huge")
_NODES = 1 << 16  # more than any machine has

_Partition = str | tuple[str, int] | Sequence[int]


def table(
    shape: int | Iterable[int],
    dtype: Any = None,
    device: Any = "cpu",
    partition: _Partition = "equal",
    comm: Comm | None = None,
    *,
    max_rows: int | None = None,
    pages: str = "default",
    aligned: bool = False,
    reach: str = "auto",
    row_pitch: int = 0,
    numa: int | None = None,
    timeout: float | None = None,
    like: str | None = None,
) -> Region:
    """The Region of a tensor over all ranks; weft.empty says what the arguments are.

    It need not be one tensor here: rows may be dealt round-robin, or be on other
    nodes. gather and scatter take it in place of a tensor.
    """
    sizes = _sizes(shape)
    element = _elements.element(dtype, like)
    number = device_number(str(device))
    if number is not None and element.library != "torch":
        raise InvalidError(f"device is {device!r}; GPU memory needs torch")
    kind, rows, run = _dealt(partition)
    ranks = _ranks(comm)
    handle = _core.region_create(
        ranks,
        (*sizes, *element.tail),
        element.word,
        place=0 if number is None else 1,
        device=-1 if number is None else number,
        reach=_word("reach", reach, REACHES),
        kind=PARTITIONS.index(kind),
        part_rows=rows,
        run=run,
        max_rows=max_rows or 0,
        pitch=row_pitch,
        pages=_word("pages", pages, PAGES),
        numa=_node(numa),
        aligned=bool(aligned),
        timeout=timeout,
        element=_elements.meaning(element),
    )
    return _made(handle, Facts(element, sizes[1:], ranks))


def empty(
    shape: int | Iterable[int],
    dtype: Any = None,
    device: Any = "cpu",
    partition: _Partition = "equal",
    comm: Comm | None = None,
    **more: Any,
) -> Any:
    """A tensor that all ranks see: one memory, mapped by each of them.

    Collective; all ranks give the same arguments. It is filled with zeros, and is
    an ordinary torch tensor, or a NumPy array (where torch is not imported, or by
    `dtype` or `like`). The memory lasts as long as any rank has a tensor on it.

    shape:     its sizes, rows first
    device:    "cpu", or "cuda" for memory of the ranks' GPUs
    partition: who owns which rows: "equal", the rows of each rank, or
               "round_robin", or ("round_robin", run)
    comm:      its ranks; all of the job by default, which is joined if need be
    max_rows:  what resize may reach later
    pages:     "default", "small" or "huge"
    aligned:   begin each rank's part on a page of its own
    reach:     "auto", "mapped", "distributed" or "hierarchy"
    row_pitch: bytes from row to row; 0: no gap between them
    numa:      the node of this rank's part; None: that of the caller
    timeout:   seconds to wait for the other ranks
    like:      "torch" or "numpy"
    """
    check_names("weft.empty", more)
    return table(shape, dtype, device, partition, comm, **more).tensor


def zeros(
    shape: int | Iterable[int],
    dtype: Any = None,
    device: Any = "cpu",
    partition: _Partition = "equal",
    comm: Comm | None = None,
    **more: Any,
) -> Any:
    """The same as empty, which is filled with zeros, too."""
    check_names("weft.zeros", more)
    return table(shape, dtype, device, partition, comm, **more).tensor


def full(
    shape: int | Iterable[int],
    value: Any,
    dtype: Any = None,
    device: Any = "cpu",
    *,
    partition: _Partition = "equal",
    comm: Comm | None = None,
    **more: Any,
) -> Any:
    """The same filled with `value`, by each rank its own part; all is written on return."""
    check_names("weft.full", more)
    one = _one(value, dtype, more.get("like"))
    ranks = _ranks(comm)
    made = table(shape, one.dtype, device, partition, ranks, **more)
    _agree.alike(ranks, "value", repr(one.item()))
    whole = made.tensor
    for part in made.locals:
        part[...] = value
    made.barrier(more.get("timeout"))
    return whole


def from_file(
    path: str | os.PathLike[str],
    *,
    comm: Comm | None = None,
    mmap: bool = False,
    writable: bool = False,
    dtype: Any = None,
    like: str | None = None,
    verify: bool = True,
    threads: int = 0,
    **more: Any,
) -> Any:
    """The tensor in a file of Region.save, or in a .npy. Collective.

    It is read into memory, by each rank its own part; with `mmap` the file itself
    is the memory, which with `writable` takes what is written, and of which
    verify_file compares the checksums. `dtype` names the type where the file can
    tell only its size (float8, uint16, ...).
    """
    if writable and not mmap:
        raise InvalidError(
            "writable requires mmap=True; otherwise the tensor is a copy of the file"
        )
    if mmap and more:
        raise TypeError(f"{', '.join(more)} cannot be chosen for a mapped file")
    if mmap and os.fsdecode(path).endswith(".npy"):
        raise InvalidError(f"{path} is a .npy file, which cannot be mapped: omit mmap=True")
    check_names("weft.from_file", more, "device", "partition")
    ranks = _ranks(comm)
    about, element = _agree.together(ranks, lambda: _in_file(path, dtype, like))
    if mmap:
        _agree.alike(ranks, "dtype", _elements.name(element))
        handle = _core.region_open(ranks, path, writable)
        return _made(handle, Facts(element, about["shape"][1:], ranks)).tensor
    made = table(about["shape"], element.dtype, comm=ranks, like=element.library, **more)
    whole = made.tensor
    if os.fsdecode(path).endswith(".npy"):
        made.load_raw(path, threads=threads)
    else:
        made.load(path, threads=threads, verify=verify)
    return whole


def new_file(
    path: str | os.PathLike[str],
    shape: int | Iterable[int],
    dtype: Any = None,
    *,
    comm: Comm | None = None,
    like: str | None = None,
) -> Any:
    """A new tensor of zeros whose memory is a file, in place of what was at `path`. Collective.

    What ranks write is in the file; end with weft.region(t).sync(), which gives it
    its checksums. weft.from_file reads it again.
    """
    sizes = _sizes(shape)
    element = _elements.element(dtype, like)
    ranks = _ranks(comm)
    _agree.alike(ranks, "dtype", _elements.name(element))
    handle = _core.region_open_new(ranks, path, (*sizes, *element.tail), element.word)
    return _made(handle, Facts(element, sizes[1:], ranks)).tensor


def verify_file(path: str | os.PathLike[str]) -> None:
    """Compare all of a file of Region.save with its checksums. Not collective; needs no job."""
    _core.file_verify(path)


def _in_file(
    path: str | os.PathLike[str], dtype: Any, like: str | None
) -> tuple[dict[str, Any], _elements.Element]:
    """What a file says of itself, and the elements that it has."""
    about = _core.file_describe(path)
    known = _elements.element_of(about["type"], like or _elements.element(None, None).library)
    element = known if dtype is None else _elements.element(dtype, like)
    if element.item != known.item or element.tail:
        raise InvalidError(f"dtype is {dtype!r}, but the file has elements of {known.item} bytes")
    return about, element


def check_names(caller: str, more: dict[str, Any], *others: str) -> None:
    """Refuse what weft.table has no keyword for, in the name of the function that was called."""
    known = {*_KEYWORDS, *others}
    for name in more:
        if name not in known:
            raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}")


_KEYWORDS = frozenset(table.__kwdefaults__ or ())


def _ranks(comm: Comm | None) -> Comm:
    return _job.init().comm if comm is None else comm


def _node(numa: int | None) -> int:
    """The C library's number of a NUMA node: 0 is that of the caller."""
    if numa is None:
        return 0
    if not 0 <= operator.index(numa) < _NODES:
        raise InvalidError(f"numa is {numa!r}; it must be the number of a NUMA node")
    return numa + 1


def _made(handle: RegionHandle, facts: Facts) -> Region:
    handle.facts = facts
    _share.install()
    return Region(handle, facts)


def _sizes(shape: Any) -> tuple[int, ...]:
    sizes = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    if not sizes:
        raise InvalidError("shape is (); it must have at least one dimension, the rows")
    if any(size < 0 for size in sizes):
        raise InvalidError(f"shape is {shape!r}; sizes must not be negative")
    return sizes


def _dealt(partition: Any) -> tuple[str, tuple[int, ...] | None, int]:
    """The kind of a partition, the rows of each rank, and the length of a run."""
    if isinstance(partition, str) and partition in ("equal", "round_robin"):
        return partition, None, 0
    if isinstance(partition, tuple) and len(partition) == 2 and partition[0] == "round_robin":
        run = operator.index(partition[1])
        if run < 1:
            raise InvalidError(f"partition is {partition!r}; the run must be at least 1")
        return "round_robin", None, run
    if isinstance(partition, str) or not isinstance(partition, Iterable):
        raise InvalidError(
            f"partition is {partition!r}; it must be 'equal', 'round_robin', ('round_robin', run) "
            "or the rows of each rank"
        )
    return "given", tuple(map(operator.index, partition)), 0


def _word(name: str, value: Any, words: tuple[str, ...]) -> int:
    if value not in words:
        raise InvalidError(f"{name} is {value!r}; it must be {', '.join(map(repr, words))}")
    return words.index(value)


def _one(value: Any, dtype: Any, like: str | None) -> Any:
    """`value` as one element, of `dtype` or of that which torch.full or numpy.full would choose.

    It raises on all ranks alike, those that have nothing to fill included.
    """
    element = _elements.element(dtype, like)
    if element.library == "torch":
        import torch

        return torch.full((), value, dtype=None if dtype is None else element.dtype)
    import numpy

    return numpy.full((), value, None if dtype is None else element.dtype)
