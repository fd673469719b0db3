# SPDX-License-Identifier: Apache-2.0
"""The table of peers: what else on this machine does what weft does, as `weft bench` finds it."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.metadata
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .systems import MPICH, OPENMPI, Mpi, Tools, find_mpi4py, output


@dataclass(frozen=True)
class Peer:
    """One of them. `text` is where it is, or why it takes no part."""

    name: str
    here: bool
    text: str
    version: str | None = None


def peers(distributed: Mapping[str, object]) -> list[Peer]:
    """All of them. `distributed` is what torch.distributed says of its backends, by name."""
    return [
        *(_backend(name, key, distributed) for name, key in _BACKENDS.items()),
        *(_find(name, look) for name, look in _OTHERS.items()),
    ]


def _backend(name: str, key: str, distributed: Mapping[str, object]) -> Peer:
    if not distributed:
        return Peer(name, False, "torch.distributed is not here")
    version = distributed.get(f"{key}_version")
    if not distributed.get(key):
        return Peer(name, False, "not in this build of torch")
    return Peer(name, True, "in torch", None if version is None else str(version))


def _find(name: str, look: Callable[[], tuple[Tools, str | None]]) -> Peer:
    tools, version = look()
    if tools.missing is not None:
        return Peer(name, False, tools.missing)
    return Peer(name, True, tools.launcher or tools.compiler or "", version)


def _mpi(mpi: Mpi) -> tuple[Tools, str | None]:
    tools = mpi.find()
    said = output([tools.launcher, "--version"]) if tools.launcher else ""
    found = re.search(r"(?:\((?:Open MPI|OpenRTE)\)|Version:)\s+v?(\d[\w.]*)", said)
    return tools, found[1] if found else None


def _mpi4py() -> tuple[Tools, str | None]:
    tools = find_mpi4py()
    return tools, None if tools.missing else importlib.metadata.version("mpi4py")


def _ucx() -> tuple[Tools, str | None]:
    file = ctypes.util.find_library("ucp")
    if file is None:
        return Tools(missing="libucp is not installed"), None
    try:
        version = ctypes.CDLL(file).ucp_get_version_string
    except (OSError, AttributeError) as error:
        return Tools(missing=f"{file} cannot be used: {error}"), None
    version.restype = ctypes.c_char_p
    return Tools(compiler=file), version().decode()


_BACKENDS = {"gloo": "gloo", "NCCL": "nccl", "MPI in torch": "mpi", "UCC": "ucc"}
_OTHERS = {
    "Open MPI": lambda: _mpi(OPENMPI),
    "MPICH": lambda: _mpi(MPICH),
    "mpi4py": _mpi4py,
    "UCX": _ucx,
}
