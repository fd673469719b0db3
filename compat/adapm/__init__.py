# SPDX-License-Identifier: Apache-2.0
"""AdaPM's first name, on weft."""

from weft.compat import _original

_original.refuse_to_shadow("adapm", __file__)

from weft.compat.adapm import *  # noqa: E402, F403
from weft.compat.adapm import __all__  # noqa: E402, F401
