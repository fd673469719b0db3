# SPDX-License-Identifier: Apache-2.0
"""Operators of PyTorch that call a BLAS library, for a PyTorch that cannot be made to call it.

They replace the CPU kernels below autograd, so that gradients, vmap and compiled graphs are
PyTorch's own and end up here. Types that BLAS does not have, and whatever PyTorch would refuse,
go to the kernel that was there before. Calls go through the library that `weft blas run` would
preload (libweftblas.so), which knows the user's library, and give up the GIL.

This file stands alone: it is loaded by the program's Python, where weft need not be installed.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

LARGEST = 2**31 - 1  # BLAS counts in 32 bits


class _Complex64(ctypes.Structure):
    _fields_ = (("real", ctypes.c_float), ("imag", ctypes.c_float))


class _Complex128(ctypes.Structure):
    _fields_ = (("real", ctypes.c_double), ("imag", ctypes.c_double))


LETTERS = {
    torch.float32: ("s", ctypes.c_float),
    torch.float64: ("d", ctypes.c_double),
    torch.complex64: ("c", _Complex64),
    torch.complex128: ("z", _Complex128),
}


class _Blas:
    """The routines, called with tensors' addresses."""

    def __init__(self, file: str) -> None:
        self._library = ctypes.CDLL(file)

    def call(self, routine: str, dtype: torch.dtype, *arguments: Any) -> None:
        getattr(self._library, f"{LETTERS[dtype][0]}{routine}_")(*arguments)

    def dot(self, routine: str, dtype: torch.dtype, *arguments: Any) -> complex | float:
        letter, kind = LETTERS[dtype]
        function = getattr(self._library, f"{letter}{routine}_")
        function.restype = kind
        value = function(*arguments)
        return complex(value.real, value.imag) if dtype.is_complex else value


BLAS: _Blas


def _number(value: complex | float, dtype: torch.dtype) -> Any:
    kind = LETTERS[dtype][1]
    if dtype.is_complex:
        value = complex(value)
        return ctypes.byref(kind(value.real, value.imag))
    return ctypes.byref(kind(value))


def _integer(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


@dataclass
class _Matrices:
    """Matrices as Fortran sees them, which takes memory in rows for the transpose."""

    tensor: torch.Tensor  # of two dimensions or, with a batch, three
    flipped: bool  # lies in memory by columns
    leading: int

    def at(self, index: int) -> ctypes.c_void_p:
        step = self.tensor.stride(0) if self.tensor.dim() == 3 else 0
        return ctypes.c_void_p(self.tensor.data_ptr() + index * step * self.tensor.element_size())

    @property
    def letter(self) -> bytes:
        return b"T" if self.flipped else b"N"


def _leading(rows: int, columns: int, down: int, along: int) -> int | None:
    """The distance of rows, or None if the elements of a row are not neighbours."""
    if columns > 1 and along != 1:
        return None
    if rows <= 1:
        return max(1, columns)
    return down if down >= max(1, columns) else None


def _matrices(tensor: torch.Tensor) -> _Matrices:
    tensor = tensor.resolve_conj().resolve_neg()
    rows, columns = tensor.shape[-2:]
    down, along = tensor.stride()[-2:]
    if (leading := _leading(rows, columns, down, along)) is not None:
        return _Matrices(tensor, False, leading)
    if (leading := _leading(columns, rows, along, down)) is not None:
        return _Matrices(tensor, True, leading)
    return _Matrices(tensor.contiguous(), False, max(1, columns))


def _gemm(
    out: torch.Tensor, left: torch.Tensor, right: torch.Tensor, alpha: Any = 1, beta: Any = 0
) -> None:
    """out = alpha left right + beta out; `out` lies in rows. With a batch, for each of it."""
    rows, columns = out.shape[-2:]
    inner = left.shape[-1]
    if out.numel() == 0:
        return
    if inner == 0:
        _scale(out, beta)
        return
    a, b, dtype = _matrices(left), _matrices(right), out.dtype
    count = out.shape[0] if out.dim() == 3 else 1
    c = _Matrices(out, False, max(1, columns) if rows <= 1 else out.stride(-2))
    sizes = [_integer(columns), _integer(rows), _integer(inner)]
    alpha, beta = _number(alpha, dtype), _number(beta, dtype)
    leading = [_integer(each.leading) for each in (b, a, c)]
    for i in range(count):
        # Rows taken for columns: the transposed product, with the factors exchanged.
        BLAS.call(
            "gemm",
            dtype,
            b.letter,
            a.letter,
            *sizes,
            alpha,
            b.at(i),
            leading[0],
            a.at(i),
            leading[1],
            beta,
            c.at(i),
            leading[2],
        )


def _scale(out: torch.Tensor, beta: Any) -> None:
    if beta == 0:
        out.zero_()  # also what is not a number
    elif beta != 1:
        out.mul_(beta)


def _vector(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.resolve_conj().resolve_neg()
    return tensor if tensor.stride(0) > 0 else tensor.contiguous()


def _gemv(out: torch.Tensor, matrix: torch.Tensor, vector: torch.Tensor, alpha: Any, beta: Any):
    rows, columns = matrix.shape
    if rows == 0:
        return
    if columns == 0:
        _scale(out, beta)
        return
    m, x, dtype = _matrices(matrix), _vector(vector), out.dtype
    high, wide = (rows, columns) if m.flipped else (columns, rows)
    BLAS.call(
        "gemv",
        dtype,
        b"N" if m.flipped else b"T",
        _integer(high),
        _integer(wide),
        _number(alpha, dtype),
        m.at(0),
        _integer(m.leading),
        ctypes.c_void_p(x.data_ptr()),
        _integer(x.stride(0)),
        _number(beta, dtype),
        ctypes.c_void_p(out.data_ptr()),
        _integer(out.stride(0) or 1),
    )


def _plain(*tensors: torch.Tensor) -> bool:
    """Whether all of them are dense, of one type that BLAS has, and not too large for it."""
    dtype = tensors[0].dtype
    return dtype in LETTERS and all(
        tensor.dtype == dtype
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and max((*tensor.shape, *map(abs, tensor.stride())), default=0) <= LARGEST
        for tensor in tensors
    )


def _fits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dim() == right.dim() and left.shape[-1] == right.shape[-2] and (
        left.shape[:-2] == right.shape[:-2]
    )  # fmt: skip


def _product_shape(left: torch.Tensor, right: torch.Tensor) -> tuple[int, ...]:
    return (*left.shape[:-1], right.shape[-1])


def _start(bias: torch.Tensor | None, shape: tuple[int, ...], like: torch.Tensor, beta: Any):
    """Memory in rows that a product is added to; None if the bias does not fit."""
    if bias is None or beta == 0:
        out = like.new_empty(shape)
    else:
        out = bias.expand(shape).clone(memory_format=torch.contiguous_format)
    return out.resolve_conj().resolve_neg()


def _broadcasts(bias: torch.Tensor, shape: tuple[int, ...]) -> bool:
    try:
        return torch.broadcast_shapes(bias.shape, shape) == torch.Size(shape)
    except RuntimeError:
        return False


def _product(dimensions: int) -> Callable:
    """mm, bmm."""

    def product(left: torch.Tensor, right: torch.Tensor) -> Any:
        if not (left.dim() == dimensions and _fits(left, right) and _plain(left, right)):
            return NotImplemented
        out = left.new_empty(_product_shape(left, right))
        _gemm(out, left, right)
        return out

    return product


def _added_product(dimensions: int) -> Callable:
    """addmm, baddbmm."""

    def product(
        bias: torch.Tensor,
        left: torch.Tensor,
        right: torch.Tensor,
        *,
        beta: Any = 1,
        alpha: Any = 1,
    ) -> Any:
        if not (left.dim() == dimensions and _fits(left, right) and _plain(bias, left, right)):
            return NotImplemented
        shape = _product_shape(left, right)
        if not _broadcasts(bias, shape):
            return NotImplemented
        out = _start(bias, shape, left, beta)
        _gemm(out, left, right, alpha, beta)
        return out

    return product


def _addmv(
    bias: torch.Tensor, matrix: torch.Tensor, vector: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    if not (matrix.dim() == 2 and vector.dim() == 1 and _plain(bias, matrix, vector)):
        return NotImplemented
    shape = (matrix.shape[0],)
    if matrix.shape[1] != vector.shape[0] or not _broadcasts(bias, shape):
        return NotImplemented
    out = _start(bias, shape, matrix, beta)
    if beta == 0:
        out.zero_()  # some libraries multiply what is there by 0
    _gemv(out, matrix, vector, alpha, beta)
    return out


def _dot(conjugated: bool) -> Callable:
    def dot(left: torch.Tensor, right: torch.Tensor) -> Any:
        vectors = left.dim() == 1 and left.shape == right.shape
        if not (vectors and _plain(left, right)):
            return NotImplemented
        if left.numel() == 0:
            return left.new_zeros(())
        x, y = _vector(left), _vector(right)
        routine = ("dotc" if conjugated else "dotu") if x.dtype.is_complex else "dot"
        value = BLAS.dot(
            routine,
            x.dtype,
            _integer(x.shape[0]),
            ctypes.c_void_p(x.data_ptr()),
            _integer(x.stride(0)),
            ctypes.c_void_p(y.data_ptr()),
            _integer(y.stride(0)),
        )
        return left.new_empty(()).fill_(value)

    return dot


def _columns(images: torch.Tensor, size: Any, stride: Any, padding: Any) -> torch.Tensor:
    return torch.ops.aten.im2col(images, size, (1, 1), padding, stride)


def _conv2d(images, weight, size, bias, stride, padding):  # noqa: PLR0917 - the operator has six
    """Each image's patches as columns of a matrix, and the weight times that."""
    if images.dim() != 4 or weight.dim() != 4 or not _plain(images, weight):
        return NotImplemented
    count, channels, *extent = images.shape
    if channels != weight.shape[1] or (bias is not None and not _plain(images, bias)):
        return NotImplemented
    spans = zip(extent, size, stride, padding, strict=True)
    height, width = ((n + 2 * pad - k) // step + 1 for n, k, step, pad in spans)
    if min(count, height, width) < 1:
        return NotImplemented
    flat = weight.reshape(weight.shape[0], -1)
    shape = (count, weight.shape[0], height * width)
    out = _start(None if bias is None else bias.view(1, -1, 1), shape, images, 1)
    many = flat.unsqueeze(0).expand(count, -1, -1)
    _gemm(out, many, _columns(images, size, stride, padding), 1, 0 if bias is None else 1)
    return out.view(count, -1, height, width)


def _conv2d_backward(  # noqa: PLR0917 - the operator has seven
    gradient, images, weight, size, stride, padding, wanted
):
    if images.dim() != 4 or weight.dim() != 4 or not _plain(gradient, images, weight):
        return NotImplemented
    if images.numel() == 0 or gradient.numel() == 0:
        return NotImplemented
    count, filters = gradient.shape[:2]
    flat = weight.reshape(filters, -1)
    rows = gradient.reshape(count, filters, -1)
    results: list[torch.Tensor | None] = [None, None, None]
    if wanted[0]:
        parts = rows.new_empty((count, flat.shape[1], rows.shape[2]))
        _gemm(parts, flat.t().unsqueeze(0).expand(count, -1, -1), rows)
        extent = images.shape[2:]
        results[0] = torch.ops.aten.col2im(parts, extent, size, (1, 1), padding, stride)
    if wanted[1]:
        columns = _columns(images, size, stride, padding)
        total = rows.new_zeros(flat.shape)
        for image in range(count):
            _gemm(total, rows[image], columns[image].t(), 1, 1)
        results[1] = total.view(weight.shape)
    if wanted[2]:
        results[2] = gradient.sum((0, 2, 3))
    return tuple(results)


# mv and linear are made of these inside PyTorch.
OPERATORS: dict[str, Callable] = {
    "mm": _product(2),
    "bmm": _product(3),
    "addmm": _added_product(2),
    "baddbmm": _added_product(3),
    "addmv": _addmv,
    "dot": _dot(False),
    "vdot": _dot(True),
}
WITH_OUT = ("mm", "bmm", "addmm", "baddbmm", "addmv")
IN_PLACE = ("addmm", "baddbmm", "addmv")
CONVOLUTIONS: dict[str, Callable] = {
    "_slow_conv2d_forward": _conv2d,
    "_slow_conv2d_backward.output_mask": _conv2d_backward,
}


def _to_out(operator: Callable) -> Callable:
    def with_out(*arguments: Any, out: torch.Tensor, **options: Any) -> Any:
        result = operator(*arguments, **options)
        if result is NotImplemented or out.dtype != result.dtype or _shared(out, arguments[-2:]):
            return NotImplemented
        if out.shape != result.shape:
            if out.numel() != 0:
                return NotImplemented  # PyTorch has a warning for it
            out.resize_(result.shape)
        return out.copy_(result)

    return with_out


def _shared(out: torch.Tensor, factors: tuple[torch.Tensor, ...]) -> bool:
    """PyTorch refuses to write where it reads from; it shall do that itself."""
    start = out.untyped_storage().data_ptr()
    return any(factor.untyped_storage().data_ptr() == start for factor in factors)


def _in_place(operator: Callable) -> Callable:
    def in_place(target: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        result = operator(target, *arguments, **options)
        if result is NotImplemented or result.shape != target.shape:
            return NotImplemented
        if _shared(target, arguments):
            return NotImplemented
        return target.copy_(result)

    return in_place


def _or_original(name: str, operator: Callable) -> Callable:
    original = torch.library.get_kernel(f"aten::{name}", "CPU")

    def kernel(keys: Any, *arguments: Any, **options: Any) -> Any:
        result = operator(*arguments, **options)
        if result is NotImplemented:
            return original.call_boxed(keys, *arguments, **options)
        return result

    return kernel


def table() -> dict[str, Callable]:
    """Every operator that is replaced."""
    found = dict(OPERATORS)
    found |= {f"{name}.out": _to_out(OPERATORS[name]) for name in WITH_OUT}
    found |= {f"{name}_": _in_place(OPERATORS[name]) for name in IN_PLACE}
    return found | CONVOLUTIONS


def install(file: str) -> None:
    """Replace the operators, in this process and those that it forks."""
    global BLAS, _REGISTERED
    BLAS = _Blas(file)
    _REGISTERED = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are replaced is what is wanted
        for name, operator in table().items():
            _REGISTERED.impl(name, _or_original(name, operator), "CPU", with_keyset=True)
    if report := os.environ.get("WEFTBLAS_REPORT"):
        line = "\t".join(["operators", str(os.getpid()), *table()])
        try:
            fd = os.open(report, os.O_WRONLY | os.O_APPEND)
        except OSError:
            return  # whoever wanted to read it is gone
        os.write(fd, (line + "\n").encode())
        os.close(fd)


_REGISTERED: Any = None  # the registrations end with it
