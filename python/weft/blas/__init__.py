# SPDX-License-Identifier: Apache-2.0
"""The BLAS libraries of this machine, and PyTorch's dense linear algebra served by one of them."""

from .libraries import Library, NotFound, Refused

__all__ = ["Library", "NotFound", "Refused"]
