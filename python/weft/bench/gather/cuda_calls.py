# SPDX-License-Identifier: Apache-2.0
"""The kernels of libweft_cuda.so called with torch tensors, for benchmarks and tests.

This is the table of functions that libweft itself uses (src/region/cuda/abi.h), so that kernels are
timed and tested alone. Programs use `weft.gather` and its like.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ABI = 1
DTYPES = {
    "bool": 0, "uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float16": 6,
    "bfloat16": 7, "float32": 8, "float64": 9, "complex64": 10, "complex128": 11,
}  # fmt: skip
BOUNDS = {"error": 0, "skip": 1, "unchecked": 2}
OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "rmsprop", "adam", "lazy_adam")
_STATES = 3


class Part(ctypes.Structure):
    _fields_ = [("row", ctypes.c_uint64), ("at", ctypes.c_uint64)]


class Table(ctypes.Structure):
    _fields_ = [
        ("at", ctypes.c_uint64),
        ("pitch", ctypes.c_uint64),
        ("rows", ctypes.c_uint64),
        ("width", ctypes.c_uint64),
        ("type", ctypes.c_int32),
        ("on_host", ctypes.c_int32),
        ("first", ctypes.c_uint64),
        ("run", ctypes.c_uint64),
        ("parts", ctypes.c_uint32),
        ("part", ctypes.POINTER(Part)),
    ]


class Ids(ctypes.Structure):
    _fields_ = [
        ("at", ctypes.c_void_p),
        ("type", ctypes.c_int32),
        ("n", ctypes.c_uint64),
        ("place", ctypes.c_int32),
    ]


class Rows(ctypes.Structure):
    _fields_ = [
        ("at", ctypes.c_void_p),
        ("pitch", ctypes.c_uint64),
        ("type", ctypes.c_int32),
        ("place", ctypes.c_int32),
    ]


class RowsCall(ctypes.Structure):
    _fields_ = [
        ("table", Table),
        ("ids", Ids),
        ("rows", Rows),
        ("bounds", ctypes.c_int32),
        ("deterministic", ctypes.c_int32),
        ("sort", ctypes.c_int32),
        ("tune", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
    ]


class Update(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_int32),
        ("decoupled", ctypes.c_int32),
        ("lr", ctypes.c_double),
        ("weight_decay", ctypes.c_double),
        ("eps", ctypes.c_double),
        ("alpha", ctypes.c_double),
        ("beta1", ctypes.c_double),
        ("beta2", ctypes.c_double),
        ("step", ctypes.c_uint64),
    ]


class UpdateCall(ctypes.Structure):
    _fields_ = [
        ("weights", Table),
        ("state", Table * _STATES),
        ("ids", Ids),
        ("grads", Rows),
        ("bounds", ctypes.c_int32),
        ("rule", Update),
        ("stream", ctypes.c_void_p),
    ]


class UniqueCall(ctypes.Structure):
    _fields_ = [
        ("ids", Ids),
        ("grads", Rows),
        ("width", ctypes.c_uint64),
        ("rows", ctypes.c_uint64),
        ("out_ids", ctypes.c_void_p),
        ("out_grads", ctypes.c_void_p),
        ("out_pitch", ctypes.c_uint64),
        ("out_count", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    ]


class Bad(ctypes.Structure):
    _fields_ = [
        ("seen", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("id", ctypes.c_int64),
        ("at", ctypes.c_uint64),
        ("rows", ctypes.c_uint64),
    ]


class WeftTable(ctypes.Structure):
    """struct weft_table of <weft/rows.h>"""

    _fields_ = [
        ("region", ctypes.c_void_p),
        ("at", ctypes.c_void_p),
        ("rows", ctypes.c_uint64),
        ("pitch", ctypes.c_uint64),
        ("place", ctypes.c_int32),
        ("first", ctypes.c_uint64),
        ("limit", ctypes.c_uint64),
        ("skip", ctypes.c_uint64),
        ("width", ctypes.c_uint64),
        ("type", ctypes.c_int32),
    ]


class WeftOptions(ctypes.Structure):
    """struct weft_rows_options of <weft/rows.h>"""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("bounds", ctypes.c_int32),
        ("threads", ctypes.c_uint32),
        ("deterministic", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
        ("sort", ctypes.c_int32),
    ]


def _function(*arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int, *arguments)


class Functions(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("device", _function(ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32))),
        ("explain", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int)),
        ("reach", _function(ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64))),
        ("gather", _function(ctypes.POINTER(RowsCall))),
        ("scatter", _function(ctypes.POINTER(RowsCall))),
        ("scatter_add", _function(ctypes.POINTER(RowsCall))),
        ("update", _function(ctypes.POINTER(UpdateCall))),
        ("unique", _function(ctypes.POINTER(UniqueCall))),
        ("check", _function(ctypes.c_void_p, ctypes.POINTER(Bad))),
        ("trim", _function(ctypes.c_void_p)),
    ]


def dtype_number(tensor: Any) -> int:
    """weft's number for a tensor's type."""
    return DTYPES[str(tensor.dtype).removeprefix("torch.")]


def _pitch(tensor: Any) -> int:
    return tensor.stride(0) * tensor.element_size()


def _width(tensor: Any) -> int:
    return tensor.shape[1] if tensor.dim() > 1 else 1


def table_of(tensor: Any, parts: Sequence[Any] = (), run: int = 0, first: int = 0) -> Table:
    """A 2-D tensor as a table; with `parts`, the rows are in those, and the tensor gives the
    number of rows only. A pinned host tensor is read through the bus."""
    table = Table(
        at=tensor.data_ptr(),
        pitch=_pitch(tensor),
        rows=tensor.shape[0],
        width=_width(tensor),
        type=dtype_number(tensor),
        on_host=int(tensor.device.type == "cpu"),
    )
    if parts:
        rows = 0
        table.part = (Part * len(parts))()
        for i, part in enumerate(parts):
            table.part[i] = Part(rows, part.data_ptr())
            rows += part.shape[0]
        table.parts, table.run, table.first = len(parts), run, first
        table.pitch = _pitch(parts[0])
        table.on_host = int(parts[0].device.type == "cpu")
    return table


def weft_table_of(tensor: Any, **more: int) -> WeftTable:
    """A 2-D tensor as the C API takes it."""
    return WeftTable(
        at=tensor.data_ptr(),
        rows=tensor.shape[0],
        pitch=_pitch(tensor),
        place=int(tensor.device.type == "cuda"),
        width=_width(tensor),
        type=dtype_number(tensor),
        **more,
    )


def ids_of(ids: Any) -> Ids:
    return Ids(at=ids.data_ptr(), type=dtype_number(ids), n=ids.numel(), place=1)


def rows_of(rows: Any) -> Rows:
    return Rows(at=rows.data_ptr(), pitch=_pitch(rows), type=dtype_number(rows), place=1)


def update_rule(kind: str, **numbers: float) -> Update:
    """A step of the optimizer `kind`, with torch's defaults for what is not given."""
    rule = Update(
        size=ctypes.sizeof(Update),
        kind=OPTIMIZERS.index(kind),
        lr=1e-2,
        eps=1e-8,
        alpha=0.99,
        beta1=0.9,
        beta2=0.999,
        step=1,
    )
    for name, value in numbers.items():
        setattr(rule, name, value)
    return rule


class Kernels:
    """The functions of one libweft_cuda.so; each call works on torch's current stream."""

    def __init__(self, path: Path | str) -> None:
        self._library = ctypes.CDLL(str(path))
        self.functions = Functions.in_dll(self._library, "weft_cuda_functions")
        if self.functions.abi != ABI:
            raise RuntimeError(f"{path}: ABI {self.functions.abi}, not {ABI}")

    def caller(self, name: str, call: ctypes.Structure) -> Callable[[], None]:
        """The function `name` with these arguments, for calls that are timed."""
        function, done = getattr(self.functions, name), self._done

        def run() -> None:
            error = function(call)
            if error != 0:
                done(error)

        return run

    def _done(self, error: int) -> None:
        if error != 0:
            text = self.functions.explain(error).decode()
            raise RuntimeError(f"CUDA error {error}: {text}")

    def _stream(self) -> int:
        import torch

        return torch.cuda.current_stream().cuda_stream

    def prepare(self, table: Any, ids: Any, rows: Any, **options: Any) -> RowsCall:
        """The arguments of a gather or scatter. Tensors must outlive it."""
        return RowsCall(
            table=table if isinstance(table, Table) else table_of(table),
            ids=ids_of(ids),
            rows=rows_of(rows),
            bounds=BOUNDS[options.get("bounds", "error")],
            deterministic=int(options.get("deterministic", False)),
            sort=options.get("sort", 0),
            tune=options.get("tune", 0),
            stream=self._stream(),
        )

    def gather(self, table: Any, ids: Any, out: Any, **options: Any) -> None:
        self._done(self.functions.gather(self.prepare(table, ids, out, **options)))

    def scatter(self, table: Any, ids: Any, rows: Any, **options: Any) -> None:
        self._done(self.functions.scatter(self.prepare(table, ids, rows, **options)))

    def scatter_add(self, table: Any, ids: Any, rows: Any, **options: Any) -> None:
        self._done(self.functions.scatter_add(self.prepare(table, ids, rows, **options)))

    def prepare_update(
        self, weights: Any, state: Sequence[Any], ids: Any, grads: Any, rule: Update
    ) -> UpdateCall:
        call = UpdateCall(
            weights=table_of(weights),
            ids=ids_of(ids),
            grads=rows_of(grads),
            rule=rule,
            stream=self._stream(),
        )
        for i, tensor in enumerate(state):
            call.state[i] = table_of(tensor)
        return call

    def update(
        self, weights: Any, state: Sequence[Any], ids: Any, grads: Any, rule: Update
    ) -> None:
        self._done(self.functions.update(self.prepare_update(weights, state, ids, grads, rule)))

    def unique(
        self, ids: Any, grads: Any, out_ids: Any, out_grads: Any, count: Any, *, rows: int = 0
    ) -> None:
        call = UniqueCall(
            ids=ids_of(ids),
            grads=rows_of(grads),
            width=_width(grads),
            rows=rows,
            out_ids=out_ids.data_ptr(),
            out_grads=out_grads.data_ptr(),
            out_pitch=_pitch(out_grads),
            out_count=count.data_ptr(),
            stream=self._stream(),
        )
        self._done(self.functions.unique(call))

    def check(self) -> Bad:
        """Waits for the stream; what number was past the end, if any."""
        bad = Bad()
        self._done(self.functions.check(self._stream(), bad))
        return bad

    def trim(self) -> None:
        self._done(self.functions.trim(self._stream()))
