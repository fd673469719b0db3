# SPDX-License-Identifier: Apache-2.0
"""The environments that `weft build` has installed into, so that others find what is there."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from . import Refused
from .manifest import INSTALLED, load

PACKAGES = ("openblas", "pytorch")


def prefixes() -> list[Path]:
    """Environments of this user in which something is installed."""
    return [prefix for prefix in _listed() if packages(prefix)]


def packages(prefix: Path) -> list[str]:
    """What is installed there; a manifest that makes no sense counts for nothing."""
    found = []
    for package in PACKAGES:
        with contextlib.suppress(Refused):
            manifest = load(prefix, package)
            if manifest is not None and manifest.state == INSTALLED:
                found.append(package)
    return found


def add(prefix: Path) -> None:
    if prefix not in (known := _listed()):
        _write([*known, prefix])


def discard(prefix: Path) -> None:
    if prefix in (known := _listed()):
        _write([path for path in known if path != prefix])


def _file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "weft" / "environments"


def _listed() -> list[Path]:
    try:
        lines = _file().read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return [Path(line) for line in lines if line.startswith("/")]


def _write(known: list[Path]) -> None:
    """It is a help for finding things only: where it cannot be written, nothing fails."""
    with contextlib.suppress(OSError):
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.{os.getpid()}")
        part.write_text("".join(f"{path}\n" for path in known))
        os.replace(part, file)
