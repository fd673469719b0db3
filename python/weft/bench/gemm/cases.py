# SPDX-License-Identifier: Apache-2.0
"""What `weft bench gemm` measures."""

from __future__ import annotations

from ..dense.work import WIDTHS, Operation, Plan, Work

THIN = 8  # columns of the right matrix
SQUARE = (16, 32, 64, 128, 256, 512, 1024, 2048)
QUICK_SQUARE = ("64", "256", "1024")
LARGE = (256, 512, 1024, 2048, 4096)
QUICK_LARGE = ("1024", "4096")
DTYPES = {"s": "float32", "d": "float64"}


def work(op: str, size: int) -> Work:
    """A square matrix of `size` rows, times another one or times a thin one."""
    dtype = DTYPES[op[0]]
    columns = THIN if op.endswith("-thin") else size
    elements = size * size + 2 * size * columns
    flops = 2.0 * size * size * columns
    return Work("gemm", dtype, (size, columns, size), flops, elements * WIDTHS[dtype])


def _operation(op: str, about: str, sizes: tuple[int, ...], quick: tuple[str, ...]) -> Operation:
    return Operation(about, {str(size): work(op, size) for size in sizes}, quick)


def _operations() -> dict[str, Operation]:
    found = {}
    for letter, dtype in DTYPES.items():
        op = f"{letter}gemm"
        found[op] = _operation(op, f"{dtype}, n x n times n x n", SQUARE, QUICK_SQUARE)
    for letter, dtype in DTYPES.items():
        op = f"{letter}gemm-thin"
        found[op] = _operation(op, f"{dtype}, n x n times n x {THIN}", LARGE, QUICK_LARGE)
    return found


PLAN = Plan("gemm", _operations(), work)
