# SPDX-License-Identifier: Apache-2.0
"""The C calls that `weft bench gather` times, called with torch tensors.

It is the C API that is compared here, with a thin caller; programs use `weft.gather`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .structs import DTYPES, Ids, Rows, WeftOptions, WeftTable

_I64, _F32 = DTYPES["int64"], DTYPES["float32"]


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
        what = WeftTable(at=table.data_ptr(), rows=rows, pitch=pitch, width=width, type=_F32)
        if region is not None and region.row == pitch:
            what.region = region.handle
        to = Rows(at=out.data_ptr(), pitch=out.stride(0) * out.element_size(), type=_F32)
        how = WeftOptions(size=ctypes.sizeof(WeftOptions), threads=threads)
        numbers = Ids(type=_I64, n=out.shape[0])
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
        self.size = library.function("weft_world_size")(world)
        self.base = library.function("weft_region_base")(region)

    def barrier(self) -> None:
        barrier = self._library.function("weft_region_barrier")
        self._library.check(barrier(ctypes.c_void_p(self.handle), ctypes.c_double(60.0)))
