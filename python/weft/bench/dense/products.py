# SPDX-License-Identifier: Apache-2.0
"""Calls of PyTorch that end in a matrix product, and what their results have to be.

A result is compared with sums in float64 that no BLAS computes, at some places of it, corners
among them. Whatever the order of a sum of k products, its rounding errors are at most k times the
machine's epsilon of the sum of their magnitudes; that is what a result may be off.
"""

from __future__ import annotations

from typing import Any

SAMPLES = 16  # places of a result in each direction


def _places(torch: Any, size: int) -> Any:
    """Some of `size` places, the first and the last among them."""
    some = torch.randint(0, size, (SAMPLES,))
    some[0], some[-1] = 0, size - 1
    return some


def _verdict(torch: Any, found: Any, terms: Any, dim: Any) -> str | None:
    """Is `found` the sum over `dim` of the terms, which are in float64?"""
    want, most = terms.sum(dim), terms.abs().sum(dim)
    count = terms.numel() // want.numel()
    # Twice, because the reference is rounded, too.
    allowed = 2 * count * torch.finfo(found.dtype).eps * most
    off = (found.double() - want).abs()
    if bool((off <= allowed).all()):  # false for a NaN
        return None
    return f"off by {float((off / allowed).max()):.3g} times what rounding explains"


class Gemm:
    """torch.mm of m x k and k x n into a kept result."""

    def __init__(self, torch: Any, dtype: Any, shape: list[int]):
        m, n, k = shape
        self._torch = torch
        self._a = torch.rand(m, k, dtype=dtype) - 0.5
        self._b = torch.rand(k, n, dtype=dtype) - 0.5
        self._c = torch.full((m, n), float("nan"), dtype=dtype)

    def call(self) -> Any:
        return self._torch.mm(self._a, self._b, out=self._c)

    def wrong(self, found: Any) -> str | None:
        rows = _places(self._torch, found.shape[0])
        columns = _places(self._torch, found.shape[1])
        left = self._a[rows].double()[:, :, None]
        right = self._b[:, columns].double()[None, :, :]
        return _verdict(self._torch, found[rows][:, columns], left * right, 1)

    def path(self) -> str:
        return ""


# What PyTorch calls its ways to compute a convolution, and what they are.
PATHS = {"Mkldnn": "oneDNN", "Slow2d": "im2col + gemm", "NnpackSpatial": "NNPACK"}


class Conv2d:
    """torch.nn.functional.conv2d without a bias."""

    def __init__(self, torch: Any, dtype: Any, shape: list[int]):
        batch, channels, side, filters, kernel, stride, groups = shape
        self._torch = torch
        self._kernel, self._stride, self._groups = kernel, stride, groups
        self._padding = kernel // 2
        self._x = torch.rand(batch, channels, side, side, dtype=dtype) - 0.5
        self._w = torch.rand(filters, channels // groups, kernel, kernel, dtype=dtype) - 0.5

    def call(self) -> Any:
        return self._torch.nn.functional.conv2d(
            self._x,
            self._w,
            stride=self._stride,
            padding=self._padding,
            groups=self._groups,
        )

    def wrong(self, found: Any) -> str | None:
        """All filters, at some pixels."""
        torch = self._torch
        padded = torch.nn.functional.pad(self._x, [self._padding] * 4)
        images, heights, widths = (_places(torch, found.shape[dim]) for dim in (0, 2, 3))
        patches = [
            padded[i, :, y : y + self._kernel, x : x + self._kernel]
            for i, y, x in zip(
                images.tolist(),
                (heights * self._stride).tolist(),
                (widths * self._stride).tolist(),
                strict=True,
            )
        ]
        each = self._w.shape[0] // self._groups
        grouped = torch.stack(patches).double().unflatten(1, (self._groups, -1))
        left = grouped.repeat_interleave(each, 1)
        terms = left * self._w.double()[None]
        return _verdict(torch, found[images, :, heights, widths], terms, (2, 3, 4))

    def path(self) -> str:
        """Which way PyTorch chooses, as it says itself."""
        select = getattr(self._torch._C, "_select_conv_backend", None)
        if select is None:
            return "unknown"
        one = [self._stride] * 2, [self._padding] * 2, [1, 1]
        chosen = select(self._x, self._w, None, *one, False, [0, 0], self._groups)
        name = str(chosen).rsplit(".", 1)[-1]
        return PATHS.get(name, name)


PRODUCTS: dict[str, type[Gemm] | type[Conv2d]] = {"gemm": Gemm, "conv2d": Conv2d}
