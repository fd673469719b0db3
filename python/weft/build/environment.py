# SPDX-License-Identifier: Apache-2.0
"""The environment that is built for: where files go, and which Python runs there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import Refused

BAD = "#$:;%\\'\"&|<>()*?`!"  # in a path: makefiles and shells read them otherwise
NOT_PLAIN = "makefiles cannot do with such letters in a path"


def find(given: str | None) -> Path:
    """The folder given, else the active environment; Refused if there is none."""
    if given is not None:
        return _usable(given, "--prefix")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.environ.get(name):
            return _usable(os.environ[name], name)
    if sys.prefix != sys.base_prefix:
        return _usable(sys.prefix, "this Python's environment")
    raise Refused(
        "no environment is active: activate one (python3 -m venv ENV; . ENV/bin/activate), "
        "or name a folder with --prefix"
    )


def python_of(prefix: Path) -> str:
    """The environment's Python; ours where it has none."""
    own = prefix / "bin" / "python"
    return str(own) if os.access(own, os.X_OK) else sys.executable


def _usable(name: str, origin: str) -> Path:
    # Not resolved: what is built carries this path, and a link may be moved on purpose.
    path = Path(os.path.abspath(os.path.expanduser(name)))
    if path == Path("/") or path == Path("/usr"):
        raise Refused(f"{path} ({origin}) belongs to the system: name another folder")
    if not path.is_dir():
        raise Refused(f"{path} ({origin}) is not a folder")
    if not is_plain(path):
        raise Refused(f"{str(path)!r} ({origin}): {NOT_PLAIN}")
    if not os.access(path, os.W_OK | os.X_OK):
        raise Refused(f"{path} ({origin}) cannot be written")
    return path


def is_plain(path: Path) -> bool:
    """Whether a path can stand in a makefile."""
    return not any(ord(letter) <= 32 or letter in BAD for letter in str(path))
