# SPDX-License-Identifier: Apache-2.0
"""Where a package's source comes from: a tree that the user has, or Debian's source package.

A build writes into its tree, so a tree is copied first and only read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import Refused

# What is in them says nothing of the source.
LEFT_OUT = (".git", "__pycache__")


@dataclass(frozen=True)
class Source:
    """A tree (`folder`), or Debian's source package of a release (None: this machine's)."""

    folder: Path | None
    release: str | None = None

    def identity(self) -> str:
        """Changes when the source does, so that a build of another one is not gone on with."""
        if self.folder is None:
            return f"debian {self.release or 'here'}"
        digest = hashlib.sha256(str(self.folder).encode())
        for path in _files(self.folder):
            status = os.lstat(path)
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def words(self) -> str:
        if self.folder is not None:
            return str(self.folder)
        return f"Debian's source package{f' of {self.release}' if self.release else ''}"


def tree(given: str, package: str, marks: tuple[str, ...]) -> Source:
    """A source tree, recognised by the files that every release of the package has."""
    folder = Path(given).expanduser().resolve()
    if not folder.is_dir():
        raise Refused(f"{given} is not a folder; --source names a source tree of {package}")
    missing = [mark for mark in marks if not (folder / mark).exists()]
    if missing:
        raise Refused(f"{given} is not a source tree of {package}: it has no {missing[0]}")
    return Source(folder)


def _files(folder: Path) -> Iterator[str]:
    for where, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if name not in LEFT_OUT)
        for name in sorted(names):
            yield os.path.join(where, name)
