# SPDX-License-Identifier: Apache-2.0
"""The structs and numbers of C that the benchmark of rows passes to it.

Each struct names its own of <weft/rows.h>, <weft/update.h> or src/region/cuda/abi.h;
tests/unit/check_layouts.py compares them field by field with what the compiler says, and the
numbers with the enumerators.
"""

from __future__ import annotations

import ctypes
from typing import Any

ABI = 1
_STATES = 3
DTYPES = {
    "bool": 0, "uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float16": 6,
    "bfloat16": 7, "float32": 8, "float64": 9, "complex64": 10, "complex128": 11,
}  # fmt: skip
BOUNDS = {"error": 0, "skip": 1, "unchecked": 2}
OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "rmsprop", "adam", "lazy_adam")


class Part(ctypes.Structure):
    c_name = "wf_cuda_part"
    _fields_ = [("row", ctypes.c_uint64), ("at", ctypes.c_uint64)]


class Table(ctypes.Structure):
    c_name = "wf_cuda_table"
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
    c_name = "weft_ids"
    _fields_ = [
        ("at", ctypes.c_void_p),
        ("type", ctypes.c_int32),
        ("n", ctypes.c_uint64),
        ("place", ctypes.c_int32),
    ]


class Rows(ctypes.Structure):
    c_name = "weft_rows"
    _fields_ = [
        ("at", ctypes.c_void_p),
        ("pitch", ctypes.c_uint64),
        ("type", ctypes.c_int32),
        ("place", ctypes.c_int32),
    ]


class RowsCall(ctypes.Structure):
    c_name = "wf_cuda_rows_call"
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
    c_name = "weft_update"
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
    c_name = "wf_cuda_update_call"
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
    c_name = "wf_cuda_unique_call"
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
    c_name = "wf_cuda_bad"
    _fields_ = [
        ("seen", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("id", ctypes.c_int64),
        ("at", ctypes.c_uint64),
        ("rows", ctypes.c_uint64),
    ]


class WeftTable(ctypes.Structure):
    c_name = "weft_table"
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
    c_name = "weft_rows_options"
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("bounds", ctypes.c_int32),
        ("threads", ctypes.c_uint32),
        ("deterministic", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
        ("sort", ctypes.c_int32),
        ("clear", ctypes.c_int32),
    ]


def _function(*arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int, *arguments)


class Functions(ctypes.Structure):
    c_name = "wf_cuda_functions"
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


# What a number is called in C, for the check.
ENUMERATORS = {
    "WF_CUDA_ABI": ABI,
    "WEFT_UPDATE_STATES": _STATES,
    "WEFT_BOOL": DTYPES["bool"],
    "WEFT_U8": DTYPES["uint8"],
    "WEFT_I8": DTYPES["int8"],
    "WEFT_I16": DTYPES["int16"],
    "WEFT_I32": DTYPES["int32"],
    "WEFT_I64": DTYPES["int64"],
    "WEFT_F16": DTYPES["float16"],
    "WEFT_BF16": DTYPES["bfloat16"],
    "WEFT_F32": DTYPES["float32"],
    "WEFT_F64": DTYPES["float64"],
    "WEFT_C64": DTYPES["complex64"],
    "WEFT_C128": DTYPES["complex128"],
    **{f"WEFT_BOUNDS_{name.upper()}": number for name, number in BOUNDS.items()},
    **{f"WEFT_{name.upper()}": number for number, name in enumerate(OPTIMIZERS)},
}
