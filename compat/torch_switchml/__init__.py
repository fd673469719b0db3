# SPDX-License-Identifier: Apache-2.0
"""SwitchML's plugin's name, on weft."""

from weft.compat import _original

_original.refuse_to_shadow("torch_switchml", __file__)

from weft.compat.torch_switchml import *  # noqa: E402, F403
from weft.compat.torch_switchml import __all__  # noqa: E402, F401
