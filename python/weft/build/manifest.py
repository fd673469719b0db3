# SPDX-License-Identifier: Apache-2.0
"""What was installed into an environment: the file that says it, and that it can be trusted.

The manifest of a package lies at the top of the environment, where no folder has to be made for
it. It is written before the first file is copied and removed after all else is gone, so whatever
is interrupted, it tells what to undo. All paths in it are relative and lead nowhere but into the
environment; a manifest that says otherwise, or that cannot be read, is refused as a whole: nothing
is ever removed by it.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from . import Refused

FORMAT = 1
# What an installation is at; the manifest is written with the next one before it begins.
INSTALLING, INSTALLED, REMOVING = "installing", "installed", "removing"


@dataclass(frozen=True)
class Entry:
    """A file or a link that belongs to a package."""

    path: str  # in the environment
    sha256: str | None = None  # of a file
    mode: int = 0
    target: str | None = None  # of a link


@dataclass(frozen=True)
class Manifest:
    """A package in an environment."""

    package: str
    version: str
    state: str
    entries: tuple[Entry, ...]
    folders: tuple[str, ...] = ()  # those made for it, outer ones first
    aside: tuple[str, ...] = ()  # files of others, kept in `aside_path` until it is removed
    previous: Manifest | None = None  # while it is replaced: what was installed before
    about: dict[str, Any] = field(default_factory=dict)  # source, options: for people

    def paths(self) -> set[str]:
        return {entry.path for entry in self.entries}


def path_of(prefix: Path, package: str) -> Path:
    """Where the manifest of a package lies."""
    return prefix / f".weft-{package}.json"


def aside_path(package: str, path: str, mine: bool = False) -> str:
    """Where a file that is in the way is kept: one of others', or one of the version before."""
    return f".weft-{package}.{'old' if mine else 'aside'}/{path}"


def load(prefix: Path, package: str) -> Manifest | None:
    """The manifest of a package, None if it is not installed; Refused if it makes no sense."""
    file = path_of(prefix, package)
    try:
        text = file.read_text()
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} cannot be read: {error}") from None
    try:
        read = _read(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        what = f"{file} is not a manifest of weft build ({error}); nothing was touched"
        raise Refused(f"{what}: remove by hand what it lists, then it") from None
    if read.package != package:
        raise Refused(f"{file} is the manifest of {read.package}; nothing was touched")
    check_links(prefix, read)
    return read


def save(prefix: Path, manifest: Manifest) -> None:
    """Write it so that a reader, or the next start after a crash, sees the old one or this one."""
    file = path_of(prefix, manifest.package)
    part = file.with_name(file.name + ".part")
    try:
        with open(part, "w") as out:
            json.dump({"weft": FORMAT} | asdict(manifest), out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def in_state(manifest: Manifest, state: str, **changes: Any) -> Manifest:
    return replace(manifest, state=state, **changes)


def safe(path: Any) -> str:
    """A path that can only lead into the environment; ValueError for any other."""
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError(f"{path!r} is no path")
    if any(len(os.fsencode(part)) > 255 for part in path.split("/")) or len(path) > 4000:
        raise ValueError(f"{path[:40]!r}... is too long")
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or str(pure) != path or path == ".":
        raise ValueError(f"{path!r} is not a path inside the environment")
    return path


def _read(data: Any) -> Manifest:
    if not isinstance(data, dict):
        raise ValueError("it is no object")
    if data.get("weft") != FORMAT:
        raise ValueError(f"format {data.get('weft')!r}, not {FORMAT}")
    return _manifest(data)


def _manifest(data: dict[str, Any], nested: bool = False) -> Manifest:
    if data["state"] not in (INSTALLING, INSTALLED, REMOVING):
        raise ValueError(f"state {data['state']!r}")
    if not re.fullmatch(r"[a-z0-9]+", _text(data["package"])):
        raise ValueError(f"package {data['package']!r}")
    if nested and data.get("previous") is not None:
        raise ValueError("previous in previous")
    before = data.get("previous")
    entries = tuple(_entry(entry) for entry in _list(data["entries"]))
    if len({entry.path for entry in entries}) != len(entries):
        raise ValueError("a path stands twice")
    return Manifest(
        package=data["package"],
        version=_text(data["version"]),
        state=data["state"],
        entries=entries,
        folders=tuple(safe(folder) for folder in _list(data["folders"])),
        aside=tuple(safe(path) for path in _list(data["aside"])),
        previous=None if before is None else _manifest(before, nested=True),
        about=dict(data.get("about") or {}),
    )


def _entry(data: dict[str, Any]) -> Entry:
    digest, mode, target = data["sha256"], data["mode"], data["target"]
    if (digest is None) == (target is None):
        raise ValueError(f"{data['path']!r} is neither a file nor a link")
    if digest is not None and not re.fullmatch(r"[0-9a-f]{64}", _text(digest)):
        raise ValueError(f"checksum {digest!r}")
    if type(mode) is not int or not 0 <= mode <= 0o7777:
        raise ValueError(f"mode {mode!r}")
    return Entry(safe(data["path"]), digest, mode, None if target is None else _text(target))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is no list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def check_links(prefix: Path, manifest: Manifest) -> None:
    """A folder that is a link elsewhere must not lead an installation or a removal there."""
    known = (manifest, manifest.previous) if manifest.previous else (manifest,)
    paths = {path for one in known for path in (*one.paths(), *one.folders, *one.aside)}
    root = os.path.realpath(prefix)
    for folder in sorted({os.path.dirname(path) for path in paths}):
        real = os.path.realpath(prefix / folder)
        if real != root and not real.startswith(root.rstrip(os.sep) + os.sep):
            raise Refused(
                f"{prefix / folder} leads to {real}, out of {prefix}: nothing was touched"
            )
