# SPDX-License-Identifier: Apache-2.0
"""WholeMemory's first name, on weft."""

from weft.compat import _original

_original.refuse_to_shadow("wholememory", __file__)
