# SPDX-License-Identifier: Apache-2.0
"""Arrays in memory that all ranks of a communicator map: Comm.empty."""

import math
import operator
import sys
from collections.abc import Iterable
from typing import Any

from weft._core import Comm, InvalidError


def empty(comm: Comm, shape: Any, dtype: Any, like: str | None) -> Any:
    """A torch tensor or NumPy array of zeros, on memory of `comm`."""
    sizes = _sizes(shape)
    kind = like if like is not None else _library(dtype)
    if kind == "torch":
        return _tensor(comm, sizes, dtype)
    if kind == "numpy":
        return _ndarray(comm, sizes, dtype)
    raise InvalidError(f"like is {like!r}; it must be 'torch' or 'numpy'")


def _sizes(shape: Any) -> tuple[int, ...]:
    sizes = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    if any(size < 0 for size in sizes):
        raise InvalidError(f"shape is {shape!r}; sizes must not be negative")
    return sizes


def _library(dtype: Any) -> str:
    """Whose type it is; of no particular one, torch's where it is imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return "numpy"
    anybody = dtype is None or isinstance(dtype, str)
    return "torch" if anybody or isinstance(dtype, torch.dtype) else "numpy"


def _tensor(comm: Comm, sizes: tuple[int, ...], dtype: Any) -> Any:
    import torch

    kind = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if kind is None and dtype is None:
        kind = torch.get_default_dtype()
    if not isinstance(kind, torch.dtype):
        raise TypeError(f"dtype is {dtype!r}, which is not a torch type")
    n = math.prod(sizes) * kind.itemsize
    memory = comm._alloc(n)
    if n == 0:  # torch makes nothing out of an empty buffer
        return torch.empty(sizes, dtype=kind)
    return torch.frombuffer(memory, dtype=torch.uint8).view(kind).view(sizes)


def _ndarray(comm: Comm, sizes: tuple[int, ...], dtype: Any) -> Any:
    import numpy

    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise TypeError("an array of Python objects holds pointers, which no other process can use")
    return numpy.ndarray(sizes, kind, comm._alloc(math.prod(sizes) * kind.itemsize))
