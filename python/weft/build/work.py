# SPDX-License-Identifier: Apache-2.0
"""The folder of a build: its tree, its log, and which steps are done.

It lies in the user's cache and is named by what is built, of which source and with which options:
the same command goes on where an earlier one stopped, another one starts anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from . import Refused

CHAIN = "steps.json"


def root() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).absolute() / "weft" / "build"


def key(*parts: str, **options: str) -> str:
    """A short name for all that makes one build differ from another."""
    text = json.dumps([parts, sorted(options.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Work:
    """A build's folder, in use by this process only."""

    def __init__(self, package: str, name: str):
        self.folder = root() / f"{package}-{name}"
        self.tree = self.folder / "source"
        self.stage = self.folder / "stage"
        self.log = self.folder / "log.txt"
        self.handle = -1

    @contextlib.contextmanager
    def locked(self, about: Mapping[str, str]) -> Iterator[None]:
        """The folder itself is the lock. Commands inherit it, so that a compiler that outlived
        a weft that was killed is waited for, too."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise Refused(f"{self.folder} cannot be written: {error.strerror}") from None
        try:
            try:
                fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused(f"another weft build is at work in {self.folder}") from None
            (self.folder / "about.json").write_text(json.dumps(dict(about), indent=1))
            yield
        finally:
            os.close(self.handle)
            self.handle = -1

    def done(self) -> list[str]:
        """Steps that ended well; none, if what was noted cannot be read."""
        try:
            read = json.loads((self.folder / CHAIN).read_text())
        except (OSError, ValueError, RecursionError):
            return []
        if not isinstance(read, list) or not all(isinstance(name, str) for name in read):
            return []
        return read

    def note(self, step: str) -> None:
        """That a step is done; what comes after it is not."""
        names = self.done()
        kept = names[: names.index(step)] if step in names else names
        part = self.folder / f"{CHAIN}.part"
        part.write_text(json.dumps([*kept, step]))
        os.replace(part, self.folder / CHAIN)

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def folders_of(package: str, prefix: Path) -> list[Path]:
    """Folders of builds of a package for an environment."""
    found = []
    for folder in sorted(root().glob(f"{package}-*")):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            about = json.loads((folder / "about.json").read_text())
            if about.get("package") == package and about.get("prefix") == str(prefix):
                found.append(folder)
    return found


def clean(package: str, prefix: Path) -> int:
    """Remove what builds of a package for an environment left; the number of folders."""
    removed = 0
    for folder in folders_of(package, prefix):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            removed += 1
        except BlockingIOError:
            pass  # at work
        finally:
            os.close(handle)
    return removed
