# SPDX-License-Identifier: Apache-2.0
"""The C++ module, built for the torch that is installed."""

import importlib.machinery
import importlib.util
import sys
from typing import Any

import torch.distributed  # noqa: F401  its types are the bases of ours

import weft._core  # noqa: F401  loads libweft, which the shim needs
from weft.torch import build


class ShimMissingError(ImportError):
    """There is no shim for the torch that is installed."""


def _load() -> Any:
    name = build.identity()
    file = build.find()
    if file is None:
        raise ShimMissingError(
            f"weft has no shim for torch {build.torch_version()} and Python "
            f"{sys.version.split()[0]} yet; build it, once, with: {build.COMMAND}"
        )
    loader = importlib.machinery.ExtensionFileLoader(name, str(file))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


shim = _load()
