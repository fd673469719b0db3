# SPDX-License-Identifier: Apache-2.0
"""WholeMemory's PyTorch module of 2022, on weft's regions.

    from weft.compat import wholememory as wm

    wm.init_lib()
    wm.mp_init(rank, size)
    a = wm.create_tensor([10000000, 512], [], torch.float32, False, [])
    a1 = wm.get_tensor_view(a, torch.device("cuda:1"))
    wm.finalize_lib()

Nothing here needs a GPU but device memory itself: without one, host tensors are
CPU tensors. Each tensor keeps its memory, also after finalize_lib.
"""

import itertools
import math
import os
import weakref
from collections.abc import Sequence
from typing import Any

from weft import _create, _job, _missing, _rows
from weft._core import Comm, InvalidError, UnsupportedError
from weft._region import Region, find, region

try:
    import torch
except ModuleNotFoundError as error:
    raise _missing.torch("weft.compat.wholememory", error) from None

from weft.compat import _meet, _part_files

__all__ = [
    "ChunkedTensor",
    "aggregate_size",
    "barrier",
    "create_chunked_tensor",
    "create_tensor",
    "finalize_lib",
    "get_rank",
    "get_size",
    "get_sub_chunked_tensor",
    "get_tensor_view",
    "init_lib",
    "load_embedding_to_chunked_tensor_from_file_prefix",
    "load_embedding_to_tensor_from_file_prefix",
    "mp_init",
]

_groups: dict[tuple[int, ...], Comm] = {}
_store: Any = None  # rank 0 may serve it, so it stays as long as the job
_joined_here = False


# Beginning and end.


def init_lib() -> None:
    """Nothing is to be done; calling it twice does no harm, and no GPU is needed."""


def mp_init(rank: int, size: int) -> None:
    """Join the `size` processes of the job, as number `rank`. Collective.

    They meet by torch.distributed where it is initialised, by MASTER_ADDR and
    MASTER_PORT where these are set, by the launcher (mpirun, srun) that gave them
    these numbers, or by the name in WEFT_JOB. With none of them nothing tells two
    jobs apart, which is an InvalidError. After 30 s without the others a
    TimeoutError says what to set.
    """
    global _store, _joined_here
    if not 0 <= rank < size:
        raise InvalidError(f"rank {rank} is out of range (size {size})")
    joined = _job._world
    if joined is not None:
        if (joined.rank, joined.size) != (rank, size):
            raise InvalidError(
                f"this process is rank {joined.rank} of {joined.size} already, not {rank} of {size}"
            )
        return
    if size == 1:
        _job.init("alone")
    else:
        _store = _meet.join(rank, size)
    _joined_here = True


def finalize_lib() -> None:
    """Leave the job. Tensors that are still there keep their memory, and stay valid."""
    global _store, _joined_here
    _groups.clear()
    if _joined_here:
        _job.finalize()
    _store, _joined_here = None, False


def get_rank() -> int:
    """The number of this process."""
    return _world_comm().rank


def get_size() -> int:
    """How many processes there are."""
    return _world_comm().size


# Tensors.


def create_tensor(
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: torch.dtype,
    host: bool,
    ranks: Sequence[int] = (),
) -> torch.Tensor:
    """A tensor that all `ranks` share, zeros at first. Collective over these ranks only.

    strides: in elements; empty: rows without gaps
    host:    in host memory, else in that of the ranks' GPUs
    ranks:   who takes part, this process among them; empty: all

    Its device is the current CUDA device, also for host memory; without a GPU it
    is a CPU tensor.
    """
    sizes, steps = _layout(shape, strides)
    has_gpu = torch.cuda.is_available()
    if not host and not has_gpu:
        raise UnsupportedError("torch finds no CUDA device: pass host=True for host memory")
    rows = _storage_rows(sizes, steps)
    made = _create.table(rows, dtype, "cpu" if host else "cuda", "equal", _group(ranks))
    whole = made.on("cuda") if has_gpu else made.tensor
    if tuple(whole.shape) == sizes and not strides:
        return whole
    return whole.as_strided(sizes, steps)


def get_tensor_view(t: torch.Tensor, device: Any) -> torch.Tensor:
    """The same memory as `device` sees it; `t` is a shared tensor, or any part of one."""
    found = region(t)
    wanted = torch.device(device)
    if found.device != "cpu" and wanted.type == "cpu":
        raise UnsupportedError("GPU memory cannot be viewed by the CPU: use t.cpu() for a copy")
    if wanted.type == "cpu" and t.device.type == "cpu":
        return t.view_as(t)
    whole = found.on(wanted)
    start = found.on(t.device) if t.device != whole.device else whole
    elements, rest = divmod(t.data_ptr() - start.data_ptr(), t.element_size())
    if rest:
        raise InvalidError("the tensor does not begin at a whole element of its memory")
    made = torch.empty(0, dtype=t.dtype, device=whole.device)
    first = whole.storage_offset() * whole.element_size() // t.element_size()
    return made.set_(whole.untyped_storage(), first + elements, t.shape, t.stride())


def barrier(ranks: Sequence[int] = ()) -> None:
    """Return when all `ranks` have called it."""
    _group(ranks).barrier()


def aggregate_size(n: int, ranks: Sequence[int] = ()) -> tuple[int, int]:
    """The sum of `n` over `ranks`, and that of the ranks before this one."""
    comm = _group(ranks)
    every = torch.empty(comm.size, dtype=torch.int64)
    comm.allgather(torch.tensor([n]), every)
    return int(every.sum()), int(every[: comm.rank].sum())


# Tensors in chunks, one on each rank.


class ChunkedTensor:
    """A table with a chunk of its rows on each rank, which torch.ops.wholememory gathers from."""

    def __init__(self, rows: Region, window: torch.Tensor | None, dtype: torch.dtype) -> None:
        self.rows, self._window, self._dtype = rows, window, dtype
        self._number = next(_numbers)
        _chunked[self._number] = self

    @property
    def shape(self) -> list[int]:
        """Its sizes."""
        return list(self._whole().shape)

    @property
    def stride(self) -> list[int]:
        """Its strides, in elements."""
        return list(self._whole().stride())

    @property
    def dtype(self) -> torch.dtype:
        """The type of its elements."""
        return self._dtype

    def dim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    def get_ptr(self) -> int:
        """What gather_chunked takes. A number of ours, not an address: one that is gone is told."""
        return self._number

    @property
    def chunks(self) -> list[torch.Tensor]:
        """The chunk of each rank, as tensors."""
        return self.rows.parts

    def _whole(self) -> torch.Tensor:
        assert self._window is not None
        return self._window


_numbers = itertools.count(1)
_chunked: "weakref.WeakValueDictionary[int, ChunkedTensor]" = weakref.WeakValueDictionary()


def create_chunked_tensor(
    shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, ranks: Sequence[int] = ()
) -> ChunkedTensor:
    """A table of one or two dimensions in chunks of rows. Collective over `ranks`.

    In GPU memory where there is a GPU, else in host memory.
    """
    if len(shape) not in (1, 2):
        raise InvalidError(f"shape is {list(shape)}; a chunked tensor has one or two dimensions")
    whole = create_tensor(shape, strides, dtype, not torch.cuda.is_available(), ranks)
    return ChunkedTensor(region(whole), whole, dtype)


def get_sub_chunked_tensor(
    t: ChunkedTensor, start: Sequence[int], count: Sequence[int]
) -> ChunkedTensor:
    """A part of `t`, on the same memory: `count` from `start` on in each dimension.

    What is not given is all of it; a count of -1 is all that is left.
    """
    sizes = t.shape
    if len(start) > len(sizes) or len(count) > len(start):
        raise InvalidError(
            f"there are {len(sizes)} dimensions, but {len(start)} starts and {len(count)} counts"
        )
    window = t._whole()
    for dim, first in enumerate(start):
        left = sizes[dim] - first
        wanted = count[dim] if dim < len(count) else -1
        length = left if wanted == -1 else wanted
        if first < 0 or not 0 <= length <= left:
            raise InvalidError(
                f"{wanted} from {first} on is out of range in dimension {dim} (size {sizes[dim]})"
            )
        window = window.narrow(dim, first, length)
    return ChunkedTensor(t.rows, window, t.dtype)


# Files.


def load_embedding_to_tensor_from_file_prefix(  # noqa: PLR0917 (theirs)
    t: torch.Tensor,
    src_dtype: torch.dtype,
    emb_dtype: torch.dtype,
    table_size: int,
    embedding_dim: int,
    file_prefix: str,
) -> None:
    """Fill `t` from `<prefix>_part_<i>_of_<n>`, or the one file `prefix`. Collective.

    Files have nothing but rows, of `embedding_dim` elements of `src_dtype`; they
    are converted to the type of `t`, which is `emb_dtype`.
    """
    if t.dtype != emb_dtype or t.dim() != 2:
        raise InvalidError(f"the tensor is {t.dim()}-D of {t.dtype}, not 2-D of {emb_dtype}")
    if t.shape[0] < table_size or t.shape[1] < embedding_dim:
        raise InvalidError(f"{table_size} rows of {embedding_dim} do not fit into {tuple(t.shape)}")
    row_bytes = embedding_dim * src_dtype.itemsize
    files = _part_files.find(file_prefix)
    found = sum(os.path.getsize(file) for file in files)
    if found != table_size * row_bytes:
        raise InvalidError(
            f"the files of {file_prefix} have {found} bytes; {table_size} rows of "
            f"{embedding_dim} {src_dtype} are {table_size * row_bytes}"
        )
    comm = region(t).comm or _world_comm()
    share = -(-table_size // comm.size)
    first = min(comm.rank * share, table_size)
    after = min(first + share, table_size)
    for begin, rows in _part_files.read_rows(files, src_dtype, embedding_dim, first, after):
        t[begin : begin + rows.shape[0], :embedding_dim] = rows.to(t.device, t.dtype)
    if t.is_cuda:
        torch.cuda.synchronize(t.device)
    comm.barrier()


def load_embedding_to_chunked_tensor_from_file_prefix(
    t: ChunkedTensor, *layout_and_prefix: Any
) -> None:
    """The same for a chunked tensor."""
    load_embedding_to_tensor_from_file_prefix(t._whole(), *layout_and_prefix)


# torch.ops.wholememory


@torch.library.custom_op("wholememory::gather", mutates_args=())
def _gather(indice: torch.Tensor, parameter: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return _rows.gather(_as_table(parameter), indice, dtype=dtype)


@_gather.register_fake
def _(indice: torch.Tensor, parameter: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return indice.new_empty((*indice.shape, *parameter.shape[1:]), dtype=dtype)


@torch.library.custom_op("wholememory::gather_chunked", mutates_args=())
def _gather_chunked(indice: torch.Tensor, parameter: int, dtype: torch.dtype) -> torch.Tensor:
    return _rows.gather(_as_table(_chunked_by_number(parameter)._whole()), indice, dtype=dtype)


@_gather_chunked.register_fake
def _(indice: torch.Tensor, parameter: int, dtype: torch.dtype) -> torch.Tensor:
    row = _chunked_by_number(parameter).shape[1:]
    return indice.new_empty((*indice.shape, *row), dtype=dtype)


def _as_table(t: torch.Tensor) -> torch.Tensor:
    """Host memory by that name, for it is gathered from in another way than that of a GPU."""
    if t.is_cuda and (handle := find(t)) is not None and not handle.describe()["place"]:
        return get_tensor_view(t, "cpu")
    return t


def _chunked_by_number(number: int) -> ChunkedTensor:
    found = _chunked.get(number)
    if found is None:
        raise InvalidError(f"{number} is not the get_ptr() of an existing chunked tensor")
    return found


# Inside.


def _world_comm() -> Comm:
    if _job._world is None:
        raise InvalidError("call mp_init(rank, size) first")
    return _job._world.comm


def _group(ranks: Sequence[int]) -> Comm:
    """The communicator of these ranks; made by them alone, once."""
    comm = _world_comm()
    members = tuple(ranks)
    if not members or members == tuple(range(comm.size)):
        return comm
    if len(set(members)) < len(members) or not all(0 <= rank < comm.size for rank in members):
        raise InvalidError(
            f"ranks are {list(members)}; they must be distinct and within 0 to {comm.size - 1}"
        )
    if comm.rank not in members:
        raise InvalidError(f"ranks are {list(members)}, without this rank, {comm.rank}")
    if members not in _groups:
        _groups[members] = comm.subset(members)
    return _groups[members]


def _layout(
    shape: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides; of rows without gaps where none are given."""
    sizes = tuple(int(size) for size in shape)
    if not sizes or any(size < 1 for size in sizes):
        raise InvalidError(f"shape is {list(shape)}; sizes must be greater than 0")
    if not strides:
        return sizes, tuple(math.prod(sizes[dim + 1 :]) for dim in range(len(sizes)))
    steps = tuple(int(step) for step in strides)
    if len(steps) != len(sizes):
        raise InvalidError(f"shape is {list(shape)}, but strides are {list(strides)}")
    span = 1  # elements that the dimensions looked at so far take
    for step, size in sorted(zip(steps, sizes, strict=True)):
        if size > 1 and step < span:
            raise InvalidError(f"with strides {list(strides)}, elements of {list(shape)} overlap")
        span += (size - 1) * step
    return sizes, steps


def _storage_rows(sizes: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the region: rows of the tensor where it has such, else just elements."""
    inner = 1 + sum((size - 1) * step for size, step in zip(sizes[1:], steps[1:], strict=True))
    if steps == tuple(math.prod(sizes[dim + 1 :]) for dim in range(len(sizes))):
        return sizes
    if steps[0] >= inner:
        return sizes[0], steps[0]
    return (1 + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True)),)
