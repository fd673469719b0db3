# SPDX-License-Identifier: Apache-2.0
"""What `weft bench gemm` and `weft bench conv2d` share: dense arithmetic, library by library.

`systems` finds the BLAS libraries of the machine, `rank` is the process that measures one of them
under PyTorch and `limit` the one that measures the machine, `run` has the rounds, `report` the
tables and the view.
"""
