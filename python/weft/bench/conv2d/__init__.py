# SPDX-License-Identifier: Apache-2.0
"""`weft bench conv2d`: convolutions by PyTorch, by oneDNN and on each BLAS library."""
