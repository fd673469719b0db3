# SPDX-License-Identifier: Apache-2.0
"""weft.compat.wholememory, where programs of 2022 look for it."""

from weft.compat.wholememory import *  # noqa: F403
