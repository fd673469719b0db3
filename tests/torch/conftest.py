# SPDX-License-Identifier: Apache-2.0
"""These tests need torch with torch.distributed and gloo, and the shim."""

import pytest

pytest.importorskip("torch.distributed", reason="torch is not installed")

import torch.distributed as dist
from weft.torch import build

if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)
if build.find() is None:
    pytest.skip(f"the shim is not built: {build.COMMAND}", allow_module_level=True)
