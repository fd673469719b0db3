# SPDX-License-Identifier: Apache-2.0
"""`weft bench gather`: rows of a large table, read, written and added to.

`rank` measures through the C calls of `calls`. `gpu` is the part for GPUs; its cases, optimizers,
timing and marks are in files of their own.
"""
