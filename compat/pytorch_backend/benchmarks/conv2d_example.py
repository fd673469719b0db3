# SPDX-License-Identifier: Apache-2.0
"""A simple conv2d, to look at its call stack and at where its time goes.

Without oneDNN, as here unless --onednn is given, PyTorch unfolds the image and calls the gemm of
its BLAS; with it, oneDNN's own kernels do all and the BLAS does nothing.
"""

import argparse
import time

import torch
import torch.nn.functional as F


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=50, metavar="N", help="(default: 50)")
    parser.add_argument("--onednn", action="store_true", help="with oneDNN, if PyTorch has it")
    args = parser.parse_args()
    if args.repeat < 1:
        parser.error("--repeat must be at least 1")
    torch.manual_seed(0)
    image, kernel = torch.randn(8, 64, 56, 56), torch.randn(64, 64, 3, 3)
    torch.backends.mkldnn.enabled = args.onednn
    F.conv2d(image, kernel, padding=1)
    begun = time.perf_counter()
    for _ in range(args.repeat):
        result = F.conv2d(image, kernel, padding=1)
    seconds = (time.perf_counter() - begun) / args.repeat
    operations = 2 * result.numel() * kernel[0].numel()
    print(
        f"conv2d {tuple(image.shape)} with {tuple(kernel.shape)}: {seconds * 1e3:.2f} ms, "
        f"{operations / seconds / 1e9:.1f} GFLOP/s, sum {result.sum().item():.3f}"
    )


if __name__ == "__main__":
    main()
