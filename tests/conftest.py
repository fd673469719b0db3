# SPDX-License-Identifier: Apache-2.0
"""For all tests."""

import gpu

gpu.hide()
