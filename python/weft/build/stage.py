# SPDX-License-Identifier: Apache-2.0
"""What was built, as it lies in the staging folder before it is installed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from . import Failed
from .manifest import Entry, safe


def entries(root: Path) -> tuple[Entry, ...]:
    """All files and links below `root`, sorted."""
    found = tuple(sorted(_walk(root), key=lambda entry: entry.path))
    if not found:
        raise Failed(f"the build left nothing in {root}")
    return found


def _walk(root: Path) -> Iterator[Entry]:
    for folder, inner, names in os.walk(root):
        linked = [name for name in inner if os.path.islink(os.path.join(folder, name))]
        for name in (*names, *linked):
            path = Path(folder, name)
            yield entry(root, safe(path.relative_to(root).as_posix()))


def entry(root: Path, path: str) -> Entry:
    """What is at `path` now."""
    file = root / path
    status = file.lstat()
    if stat.S_ISLNK(status.st_mode):
        return Entry(path, target=os.readlink(file))
    if not stat.S_ISREG(status.st_mode):
        raise Failed(f"{file} is neither a file nor a link")
    return Entry(path, digest(file), stat.S_IMODE(status.st_mode))


def digest(file: Path) -> str:
    with open(file, "rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def same(root: Path, expected: Entry) -> bool:
    """Whether what is there is what was installed; the mode may have been changed."""
    try:
        now = entry(root, expected.path)
    except (OSError, Failed):
        return False
    return (now.sha256, now.target) == (expected.sha256, expected.target)
