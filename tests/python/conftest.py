# SPDX-License-Identifier: Apache-2.0
"""What several test files use."""

import pytest
import weft


@pytest.fixture
def alone():
    """The communicator of a world of one, in this process."""
    yield weft.init("alone").comm
    weft.finalize()
