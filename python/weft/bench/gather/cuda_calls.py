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

from .structs import (
    ABI,
    BOUNDS,
    DTYPES,
    OPTIMIZERS,
    Bad,
    Functions,
    Ids,
    Part,
    Rows,
    RowsCall,
    Table,
    UniqueCall,
    Update,
    UpdateCall,
    WeftTable,
)


def dtype_number(tensor: Any) -> int:
    """weft's number for a tensor's type."""
    return DTYPES[str(tensor.dtype).removeprefix("torch.")]


def _pitch(tensor: Any) -> int:
    return tensor.stride(0) * tensor.element_size()


def _width(tensor: Any) -> int:
    return tensor.shape[1] if tensor.dim() > 1 else 1


def _described(tensor: Any) -> dict[str, int]:
    """What every description of a 2-D tensor says."""
    return {
        "at": tensor.data_ptr(),
        "pitch": _pitch(tensor),
        "rows": tensor.shape[0],
        "width": _width(tensor),
        "type": dtype_number(tensor),
    }


def table_of(tensor: Any, parts: Sequence[Any] = (), run: int = 0, first: int = 0) -> Table:
    """A 2-D tensor as a table; with `parts`, the rows are in those, and the tensor gives the
    number of rows only. A pinned host tensor is read through the bus."""
    table = Table(**_described(tensor), on_host=int(tensor.device.type == "cpu"))
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
    place = int(tensor.device.type == "cuda")
    return WeftTable(**_described(tensor), place=place, **more)


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

    def update(self, *arguments: Any) -> None:
        """What `prepare_update` takes, at once."""
        self._done(self.functions.update(self.prepare_update(*arguments)))

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
