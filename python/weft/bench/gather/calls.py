# SPDX-License-Identifier: Apache-2.0
"""The C calls that `weft bench gather` times, called with torch tensors.

It is the C API that is compared here, with a thin caller; programs use `weft.gather`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_I64, _F32 = 5, 8


class Table(ctypes.Structure):
    """weft_table."""

    _fields_ = [
        ("region", ctypes.c_void_p),
        ("at", ctypes.c_void_p),
        ("rows", ctypes.c_uint64),
        ("pitch", ctypes.c_uint64),
        ("place", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("limit", ctypes.c_uint64),
        ("skip", ctypes.c_uint64),
        ("width", ctypes.c_uint64),
        ("type", ctypes.c_int),
    ]


class Rows(ctypes.Structure):
    """weft_rows."""

    _fields_ = [
        ("at", ctypes.c_void_p),
        ("pitch", ctypes.c_uint64),
        ("type", ctypes.c_int),
        ("place", ctypes.c_int),
    ]


class Ids(ctypes.Structure):
    """weft_ids."""

    _fields_ = [
        ("at", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("n", ctypes.c_uint64),
        ("place", ctypes.c_int),
    ]


class RowsOptions(ctypes.Structure):
    """weft_rows_options."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("bounds", ctypes.c_int),
        ("threads", ctypes.c_uint32),
        ("deterministic", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
        ("sort", ctypes.c_int32),
    ]


class Library:
    """libweft."""

    def __init__(self, path: str):
        self._lib = ctypes.CDLL(path)
        self._lib.weft_error_detail.restype = ctypes.c_char_p
        self._lib.weft_world_comm.restype = ctypes.c_void_p
        self._lib.weft_region_base.restype = ctypes.c_void_p

    def check(self, status: int) -> None:
        """RuntimeError with what the library says, unless the call succeeded."""
        if status != 0:
            raise RuntimeError(self._lib.weft_error_detail().decode())

    def function(self, name: str) -> Any:
        return getattr(self._lib, name)

    def rows(
        self, name: str, table: Any, out: Any, threads: int, region: Region | None
    ) -> Callable:
        """weft_rows_`name` between `table` and the rows `out`, to be called with ids.

        All memory of a region is one table, whatever its rows are taken for.
        """
        rows, width = table.shape
        pitch = table.stride(0) * table.element_size()
        what = Table(None, table.data_ptr(), rows, pitch, 0, 0, 0, 0, width, _F32)
        if region is not None and region.row == pitch:
            what.region = region.handle
        to = Rows(out.data_ptr(), out.stride(0) * out.element_size(), _F32, 0)
        how = RowsOptions(ctypes.sizeof(RowsOptions), 0, threads, 0, None, 0)
        numbers = Ids(None, _I64, out.shape[0], 0)
        call = self.function(f"weft_rows_{name}")
        arguments = [ctypes.byref(part) for part in (what, numbers, to, how)]

        def move(ids: Any) -> None:
            numbers.at = ids.data_ptr()
            self.check(call(*arguments))

        return move


class Region:
    """A region over the ranks that WEFT_RANKS speaks of; its rows have 64 bytes."""

    row = 64

    def __init__(self, library: Library, size: int):
        world = ctypes.c_void_p()
        self._library = library
        library.check(library.function("weft_world_create")(None, ctypes.byref(world)))
        comm = ctypes.c_void_p(library.function("weft_world_comm")(world))
        shape = (ctypes.c_uint64 * 2)(size // self.row, self.row // 4)
        region = ctypes.c_void_p()
        library.check(
            library.function("weft_region_create")(
                comm, ctypes.c_uint32(2), shape, _F32, None, ctypes.byref(region)
            )
        )
        self.handle = region.value
        self.rank = library.function("weft_world_rank")(world)
        self.base = library.function("weft_region_base")(region)

    def barrier(self) -> None:
        barrier = self._library.function("weft_region_barrier")
        self._library.check(barrier(ctypes.c_void_p(self.handle), ctypes.c_double(60.0)))
