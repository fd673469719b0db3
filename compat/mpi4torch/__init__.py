# SPDX-License-Identifier: Apache-2.0
"""mpi4torch's first name, on weft."""

from typing import Any

from weft.compat import _original

_original.refuse_to_shadow("mpi4torch", __file__)

from weft.compat import mpi4torch as _ours  # noqa: E402
from weft.compat.mpi4torch import *  # noqa: E402, F403
from weft.compat.mpi4torch import __all__  # noqa: E402, F401


def __getattr__(name: str) -> Any:
    """COMM_WORLD, which is made when it is asked for, and what only tests look at."""
    return getattr(_ours, name)
