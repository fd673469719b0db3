# SPDX-License-Identifier: Apache-2.0
"""What the tests of the lab share."""

import os

import pytest

FULL = os.environ.get("WT_FULL") == "1"


@pytest.fixture
def full():
    """Skips what takes minutes, unless all was asked for."""
    if not FULL:
        pytest.skip("takes minutes; WT_FULL=1 runs it")
