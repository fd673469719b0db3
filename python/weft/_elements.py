# SPDX-License-Identifier: Apache-2.0
"""Element types: what torch and NumPy call them, and what the C library does."""

import math
import sys
import zlib
from typing import Any, NamedTuple

from weft._core import TYPES, InvalidError

# The library's word for each type it calculates with, by the name that torch and NumPy give it.
_TORCH = {name: word for word, name, _, _ in TYPES if name}
# The same by NumPy's kind and size, where it has the type and not only its bytes ("V2").
_NUMPY = {code: word for word, _, code, _ in TYPES if code and code[0] != "V"}
# What NumPy shows a type as.
_SHOWN = {word: code.replace("V", "u") for word, _, code, _ in TYPES if code}
# What stands for any other type of so many bytes: it moves, and that is all.
_BY_SIZE = {1: "u8", 2: "i16", 4: "i32", 8: "i64", 16: "c128"}


class Element(NamedTuple):
    """The elements of a tensor.

    library: "torch" or "numpy"
    dtype:   as the library calls the type
    word:    as weft does
    exact:   word means the same type, so weft can calculate with it
    item:    bytes
    tail:    the dimension that is added where an element is several of word
    """

    library: str
    dtype: Any
    word: str
    exact: bool
    item: int
    tail: tuple[int, ...]


def element(dtype: Any, like: str | None) -> Element:
    """The type that `dtype` names; `like` says whose, else the type itself does."""
    library = like if like is not None else _library(dtype)
    if library == "torch":
        return _torch_element(dtype)
    if library == "numpy":
        return _numpy_element(dtype)
    raise InvalidError(f"like is {like!r}; it must be 'torch' or 'numpy'")


def element_of(word: str, library: str) -> Element:
    """The element of a region of which nothing is known but weft's own word."""
    if library == "torch":
        names = {found: name for name, found in _TORCH.items()}
        return element(names.get(word, "uint8"), "torch")
    return element(_SHOWN.get(word, "u1"), "numpy")


def name(found: Element) -> str:
    """What both libraries call the type."""
    return str(found.dtype).removeprefix("torch.")


def meaning(found: Element) -> int:
    """A number that tells types apart for which weft has one word; 0: its word says it all."""
    return 0 if found.exact else (1 << 32) + zlib.crc32(name(found).encode())


def raw_type(found: Element) -> Any:
    """The type of the same library that weft's word for `found` means."""
    return element_of(found.word, found.library).dtype


def library_of(x: Any) -> str | None:
    """Whose array `x` is; None for what is neither torch's nor NumPy's."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return "torch"
    numpy = sys.modules.get("numpy")
    return "numpy" if numpy is not None and isinstance(x, numpy.ndarray) else None


def make(
    found: Element, window: Any, sizes: tuple[int, ...], pitch: int, device: str = "cpu"
) -> Any:
    """An array of `sizes` on the memory of `window`, rows `pitch` bytes apart."""
    strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    row = strides[0] * found.item
    if found.library == "numpy":
        import numpy

        steps = [pitch if row else 0, *(stride * found.item for stride in strides[1:])]
        return numpy.ndarray(sizes, found.dtype, window, 0, steps)
    import torch

    if math.prod(sizes) == 0:  # torch makes nothing out of no memory
        return torch.empty(sizes, dtype=found.dtype, device=device)
    if pitch != row:
        strides[0] = pitch // found.item
    # Not a view of a tensor of bytes, as view() would make, but the same storage.
    storage = torch.from_dlpack(window).untyped_storage()
    return torch.empty(0, dtype=found.dtype, device=device).set_(storage, 0, sizes, strides)


def _library(dtype: Any) -> str:
    """Whose type it is; of no particular one, torch's where it is imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return "numpy"
    anybody = dtype is None or isinstance(dtype, str)
    return "torch" if anybody or isinstance(dtype, torch.dtype) else "numpy"


def _torch_element(dtype: Any) -> Element:
    import torch

    kind = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is None:
        kind = torch.get_default_dtype()
    if not isinstance(kind, torch.dtype):
        raise TypeError(f"dtype is {dtype!r}; torch has no such type")
    called = str(kind).removeprefix("torch.")
    if called.startswith("q"):
        raise TypeError(f"dtype is {dtype!r}; quantized numbers mean nothing without their scale")
    word = _TORCH.get(called)
    return Element("torch", kind, word or _BY_SIZE[kind.itemsize], bool(word), kind.itemsize, ())


def _numpy_element(dtype: Any) -> Element:
    import numpy

    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise TypeError("an array of Python objects holds pointers, which no other process can use")
    if kind.itemsize == 0:
        raise InvalidError(f"dtype is {dtype!r}, whose elements have no bytes")
    word = _NUMPY.get(f"{kind.kind}{kind.itemsize}") if kind.isnative else None
    by_size = _BY_SIZE.get(kind.itemsize)
    tail = () if word or by_size else (kind.itemsize,)
    return Element("numpy", kind, word or by_size or "u8", bool(word), kind.itemsize, tail)
