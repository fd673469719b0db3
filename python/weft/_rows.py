# SPDX-License-Identifier: Apache-2.0
"""Rows by their numbers: weft.gather, scatter and scatter_add.

The C module takes arrays as they lie. Here they are made plain where they are
not, and results are made where the caller has none.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from weft import _arrays, _core, _elements
from weft._core import InvalidError
from weft._region import Region

BOUNDS = {"error": 0, "skip": 1, "unchecked": 2}


def gather(
    table: Any,
    ids: Any,
    out: Any = None,
    *,
    dtype: Any = None,
    bounds: str = "error",
    threads: int = 0,
    sort: bool | None = None,
) -> Any:
    """The rows `table[ids]`, in `out` or a new array of shape ids.shape + row shape.

    table:   a shared tensor, a range of rows or columns of one, a Region, or any
             other tensor or array whose rows are each in one piece
    ids:     integers of any shape; a negative one leaves its row of `out` as it
             is, which in a new one is zeros
    dtype:   of a new `out`; types differ inside a class: floating, integer
    bounds:  what to do with a number past the end: "error", "skip" it like a
             negative one, or "unchecked". On a GPU an error is told by check_rows
    threads: 0: as WEFT_THREADS says
    sort:    GPU, table in host memory: read rows in their order; None: decide
    """
    clear, region = 0, isinstance(table, Region)
    if out is None:
        if _elements.library_of(ids) is None:
            ids = _listed_ids(ids)
        out, clear = _new(table, region, ids, dtype, bounds)
    elif dtype is not None:
        raise InvalidError("dtype and out exclude each other: out has its own dtype")
    how = (_bounds(bounds), threads, 0, _sort(sort), clear)
    if not region and _core.rows_gather(table, ids, out, *how):
        return out  # all were plain
    source = _table(table, "table", False)
    numbers = _ids(ids)
    target = _facing(table, _plain(out, "out", True), "out")
    _done(_core.rows_gather(source, numbers, target, *how))
    return out


def scatter(table: Any, ids: Any, rows: Any, *, bounds: str = "error", threads: int = 0) -> None:
    """Set `table[ids]` to `rows`; of equal ids the last wins."""
    _put(_core.rows_scatter, table, ids, rows, bounds=bounds, threads=threads, in_order=False)


def scatter_add(
    table: Any,
    ids: Any,
    rows: Any,
    *,
    bounds: str = "error",
    threads: int = 0,
    deterministic: bool = False,
) -> None:
    """Add `rows` to `table[ids]`, each addition whole, whoever else adds.

    deterministic: add equal ids in their order, so that the result of a call does
                   not depend on the number of threads
    """
    if isinstance(table, Region) and not table._facts.element.exact:
        raise TypeError(f"elements of type {table.dtype} can be moved, not added")
    add = _core.rows_scatter_add
    _put(add, table, ids, rows, bounds=bounds, threads=threads, in_order=deterministic)


def check_rows(device: Any = None) -> None:
    """Wait for the current stream of a GPU; raise if ids were past the end since the last check."""
    import torch

    _core.rows_check(torch.cuda.current_stream(device).cuda_stream)


def _put(
    function: Any, table: Any, ids: Any, rows: Any, *, bounds: str, threads: int, in_order: bool
) -> None:
    how = (_bounds(bounds), threads, int(in_order), 0, 0)
    target = _table(table, "table", True)
    numbers = _ids(ids)
    source = _facing(table, _row_source(_plain(rows, "rows", False), numbers.ndim), "rows")
    _done(function(target, numbers, source, *how))


def _done(by_c: bool) -> None:
    if not by_c:
        raise TypeError("weft cannot read the memory of one of these arrays")


def _table(table: Any, name: str, write: bool) -> Any:
    return table._handle if isinstance(table, Region) else _worded(_plain(table, name, write))


def _plain(x: Any, name: str, write: bool) -> Any:
    """`x` as the C module reads it: a torch.Tensor or Parameter, or a NumPy array."""
    library = _elements.library_of(x)
    if library == "numpy":
        if write and not x.flags.writeable:
            raise InvalidError(f"{name} is read-only, and would be written to")
        return x
    if library is None:
        raise TypeError(f"{name} must be a torch tensor or NumPy array, not {type(x).__name__}")
    torch = sys.modules["torch"]
    plain = _arrays._plain_tensor(torch, x)
    if plain.layout != torch.strided:
        raise _core.UnsupportedError(f"{name} has layout {plain.layout}; it must be strided")
    if plain.device.type not in ("cpu", "cuda"):
        raise _core.UnsupportedError(f"{name} is on {plain.device}, neither host nor CUDA memory")
    if write and x.requires_grad and x.is_leaf and torch.is_grad_enabled():
        raise InvalidError(
            f"{name} is a leaf that requires grad, and would be written to: do it under "
            "torch.no_grad(), or pass it detached"
        )
    if plain.is_conj() or plain.is_neg():
        raise InvalidError(f"{name} is lazily conjugated or negated: pass x.resolve_conj()")
    return plain.detach() if plain.requires_grad else plain


def _worded(x: Any) -> Any:
    """`x` as a type that a buffer has a word for, which it has not for dates."""
    dates = _elements.library_of(x) == "numpy" and x.dtype.kind in "mM"
    return x.view("u8") if dates else x


def _ids(ids: Any, name: str = "ids") -> Any:
    """Contiguous int32 or int64."""
    library = _elements.library_of(ids)
    if library is None:
        return _listed_ids(ids, name)
    if library == "torch":
        return _tensor_ids(sys.modules["torch"], ids, name)
    import numpy

    if ids.dtype.kind not in "iu":
        raise TypeError(f"{name} are of type {ids.dtype}; they must be integers")
    if ids.dtype == numpy.uint64 and ids.size and ids.max() > numpy.iinfo(numpy.int64).max:
        _too_wide(ids.reshape(-1).tolist(), name)
    native = ids.dtype.isnative and ids.dtype.str[1:] in ("i4", "i8")
    return numpy.ascontiguousarray(ids if native else ids.astype(numpy.int64)).reshape(ids.shape)


def numbers(ids: Any) -> Any:
    """Row numbers of any kind as a tensor of int32 or int64, which have room for -1."""
    torch = sys.modules["torch"]
    return _tensor_ids(torch, _converted(torch.as_tensor, ids, "ids"))


def _tensor_ids(torch: Any, ids: Any, name: str = "ids") -> Any:
    ids = _arrays._plain_tensor(torch, ids)
    if ids.dtype not in (torch.int32, torch.int64):
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise TypeError(f"{name} are of type {ids.dtype}; they must be integers")
        wide = ids.dtype == torch.uint64
        ids = ids.view(torch.int64) if wide else ids.to(torch.int64)
        if wide and bool((ids < 0).any()):
            _too_wide([number % 2**64 for number in ids.reshape(-1).tolist()], name)
    return ids.contiguous()


def _is_wide(number: Any) -> bool:
    return isinstance(number, int) and not -(2**63) <= number < 2**63


def _too_wide(ids: Sequence[Any], name: str) -> NoReturn:
    """Name the first of the numbers that is none of int64."""
    at = next(i for i, number in enumerate(ids) if _is_wide(number))
    raise InvalidError(f"{ids[at]}, at position {at} of {name}, does not fit in 63 bits")


def _listed_ids(ids: Any, name: str = "ids") -> Any:
    """Numbers in a list, a range, or by themselves."""
    torch = sys.modules.get("torch")
    if torch is not None:
        found = _converted(torch.as_tensor, ids, name)
        return _tensor_ids(torch, found if found.numel() else found.to(torch.int64), name)
    import numpy

    array = _converted(numpy.asarray, ids, name)
    return _ids(array if array.size else array.astype(numpy.int64), name)


def _converted(convert: Callable[[Any], Any], ids: Any, name: str) -> Any:
    try:
        return convert(ids)
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(ids, (list, tuple)) and any(_is_wide(number) for number in ids):
            _too_wide(ids, name)
        raise TypeError(
            f"{name} must be whole numbers of at most 63 bits, not {ids!r:.60}"
        ) from error


def _row_source(rows: Any, lead: int) -> Any:
    """`rows`, copied unless each row is in one piece and they are equally far apart."""
    if _elements.library_of(rows) == "torch":
        if rows.is_contiguous() or (lead == 1 and rows.ndim == 2 and _spaced(rows)):
            return rows
        return rows.contiguous()
    import numpy

    return rows if rows.flags.c_contiguous else numpy.ascontiguousarray(rows)


def _spaced(rows: Any) -> bool:
    return rows.stride(1) == 1 and rows.stride(0) >= rows.shape[1]


def _facing(table: Any, rows: Any, name: str) -> Any:
    """`rows` as what the elements of a Region are moved as, where that is another type."""
    if not isinstance(table, Region) or table._facts.element.exact:
        return _worded(rows)
    element = table._facts.element
    if _elements.library_of(rows) != element.library or rows.dtype != element.dtype:
        raise TypeError(f"{name} has elements of type {rows.dtype}, but the table {element.dtype}")
    raw = _elements.raw_type(element)
    if element.tail:
        return rows.view(raw).reshape(*rows.shape, *element.tail)
    return rows.view(raw)


def _new(table: Any, region: bool, ids: Any, dtype: Any, bounds: str) -> tuple[Any, int]:
    """A new result, and whether the library has to clear the rows that it leaves out.

    On a GPU it does not: they are zeros from the start, if there may be any.
    """
    library = table._facts.element.library if region else _elements.library_of(table)
    if library is None:
        _plain(table, "table", False)  # says why not
    kind = table.dtype if dtype is None else _elements.element(dtype, library).dtype
    sizes = (*ids.shape, *table.shape[1:])
    if library == "numpy":
        import numpy

        return numpy.empty(sizes, kind), 1
    torch = sys.modules["torch"]
    if _elements.library_of(ids) == "numpy" or ids.is_cpu:
        return torch.empty(sizes, dtype=kind, device="cpu"), 1
    make = torch.empty if bounds == "unchecked" else torch.zeros
    return make(sizes, dtype=kind, device=ids.device), 0


def _bounds(bounds: str) -> int:
    if bounds not in BOUNDS:
        raise InvalidError(f"bounds is {bounds!r}; it must be {', '.join(map(repr, BOUNDS))}")
    return BOUNDS[bounds]


def _sort(sort: bool | None) -> int:
    return 0 if sort is None else 1 if sort else -1
