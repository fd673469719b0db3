# SPDX-License-Identifier: Apache-2.0
"""`weft bench gemm`: matrix products by PyTorch, on each BLAS library of the machine."""
