# SPDX-License-Identifier: Apache-2.0
"""What `weft bench conv2d` measures: layers of common networks.

Where PyTorch may use oneDNN, it does so for float32 and calls no BLAS, so that all libraries are
equally fast. Where it may not, it copies patches into a matrix (im2col) and calls gemm.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dense.systems import LIMIT, TORCH
from ..dense.work import WIDTHS, Operation, Plan, Work

BATCH = 8


@dataclass(frozen=True)
class Layer:
    """A convolution of square images, padded so that a stride of 1 keeps their size."""

    channels: int
    side: int
    filters: int
    kernel: int
    stride: int = 1
    groups: int = 1

    def work(self, dtype: str, onednn: bool) -> Work:
        out = (self.side - 1) // self.stride + 1
        weights = self.filters * (self.channels // self.groups) * self.kernel**2
        flops = 2.0 * BATCH * out * out * weights
        elements = BATCH * (self.channels * self.side**2 + self.filters * out**2) + weights
        shape = (
            *(BATCH, self.channels, self.side, self.filters),
            *(self.kernel, self.stride, self.groups),
        )
        return Work("conv2d", dtype, shape, flops, elements * WIDTHS[dtype], onednn)


# Of ResNet-50, but for the one with a group for each channel, which is MobileNet's.
LAYERS = {
    "7x7/2 3-64 224": Layer(3, 224, 64, 7, stride=2),
    "1x1 64-256 56": Layer(64, 56, 256, 1),
    "3x3 64-64 56": Layer(64, 56, 64, 3),
    "3x3 128-128 28": Layer(128, 28, 128, 3),
    "3x3 256-256 14": Layer(256, 14, 256, 3),
    "3x3 512-512 7": Layer(512, 7, 512, 3),
    "1x1 512-2048 7": Layer(512, 7, 2048, 1),
    "3x3 144 groups 56": Layer(144, 56, 144, 3, groups=144),
}
QUICK = ("7x7/2 3-64 224", "3x3 64-64 56", "3x3 256-256 14", "1x1 512-2048 7")
QUICK_F64 = ("3x3 256-256 14",)


def _operation(dtype: str, onednn: bool, quick: tuple[str, ...]) -> Operation:
    about = f"{dtype}, oneDNN {'allowed' if onednn else 'not allowed'}, batches of {BATCH}"
    work = {name: layer.work(dtype, onednn) for name, layer in LAYERS.items()}
    # In a quick run one system shows what oneDNN does: the BLAS has no part in it.
    alone = frozenset({TORCH, LIMIT}) if onednn else None
    return Operation(about, work, quick, alone)


PLAN = Plan(
    "conv2d",
    {
        "conv2d-onednn": _operation("float32", True, QUICK),
        "conv2d-gemm": _operation("float32", False, QUICK),
        "conv2d-gemm-f64": _operation("float64", False, QUICK_F64),
    },
)
