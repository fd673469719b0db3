# SPDX-License-Identifier: Apache-2.0
"""Put what was staged into an environment, all of it or nothing; and take it out again.

The manifest is written first, with all that is going to happen. Each file is copied beside its
place and renamed into it, so a place holds a whole file or none. What is in the way is renamed
aside, and renamed back when the installation is undone. Undoing needs only the manifest, so it is
the same after an error, an interruption, and, at the next start, after a crash.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import Failed, Refused, installed
from .manifest import (
    INSTALLED,
    INSTALLING,
    REMOVING,
    Entry,
    Manifest,
    aside_path,
    check_links,
    in_state,
    load,
    path_of,
    save,
)
from .stage import same

PART = ".weft-part"


@dataclass
class Removed:
    """What an uninstallation did."""

    files: int = 0
    kept: list[str] = field(default_factory=list)  # changed since they were installed
    aside: list[str] = field(default_factory=list)  # could not go back to their places


@contextlib.contextmanager
def locked(prefix: Path) -> Iterator[None]:
    """Nobody else installs into `prefix` meanwhile. The folder itself is the lock: no file is
    left, and the lock ends with the process."""
    handle = os.open(prefix, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"another weft build installs into {prefix}; wait for it") from None
        yield
    finally:
        os.close(handle)


def repair(prefix: Path, package: str) -> str | None:
    """End what an earlier run was killed in; what was done, in words."""
    found = load(prefix, package)
    _unlink(path_of(prefix, package).with_suffix(".json.part"))
    if found is None:
        return None
    if found.state == INSTALLING:
        undo(prefix, found)
        return f"an installation of {package} that was interrupted has been undone"
    if found.state == REMOVING:
        _remove(prefix, found, force=False)
        return f"a removal of {package} that was interrupted has been finished"
    if found.previous is not None:
        _commit(prefix, found)
        return f"the files of the {package} before this one have been removed"
    return None


def install(prefix: Path, stage: Path, new: Manifest, force: bool = False) -> Manifest:
    """Install what lies in `stage`; Refused where files of others are in the way."""
    old = load(prefix, new.package)
    new = _planned(prefix, new, old, force)
    _check_space(prefix, stage, new)
    try:
        save(prefix, new)
        _copy_all(prefix, stage, new)
        done = in_state(new, INSTALLED)
        save(prefix, done)
    except BaseException as error:
        after = _undone(prefix, new)
        if isinstance(error, OSError):
            what = f"installing into {prefix} failed: {error.strerror or error}"
            raise Failed(f"{what}; {after}") from error
        raise
    done = _commit(prefix, done)
    installed.add(prefix)
    return done


def _undone(prefix: Path, new: Manifest) -> str:
    try:
        undo(prefix, new)
    except OSError as error:
        return f"undoing it failed, too ({error.strerror}): the next weft build goes on with that"
    return "what was copied has been removed again"


def uninstall(prefix: Path, package: str, force: bool = False) -> Removed:
    """Remove what the manifest lists and nothing else."""
    found = load(prefix, package)
    if found is None:
        raise Refused(f"{package} is not installed in {prefix} by weft build")
    save(prefix, in_state(found, REMOVING))
    removed = _remove(prefix, found, force)
    if not installed.packages(prefix):
        installed.discard(prefix)
    return removed


def undo(prefix: Path, new: Manifest) -> None:
    """Make everything as it was before an installation that did not end."""
    old = new.previous
    mine = old.paths() if old else set()
    in_the_way = {*new.aside, *mine}
    for entry in new.entries:
        _unlink(prefix / (entry.path + PART))
        kept = aside_path(new.package, entry.path, entry.path in mine)
        moved = entry.path not in in_the_way or os.path.lexists(prefix / kept)
        if moved and same(prefix, entry):
            _unlink(prefix / entry.path)
    for path in sorted(in_the_way):
        kept = aside_path(new.package, path, path in mine)
        # What an earlier version kept aside stays there: this one goes back to its state.
        if not (old and path in old.aside and path not in mine):
            _move_back(prefix, kept, path)
    keep = set(old.folders) if old else set()
    _remove_folders(prefix, [*_aside_folders(prefix, new.package), *new.folders], keep)
    # Last: until then a crash is repaired by going on.
    if old is not None:
        save(prefix, old)
    else:
        _unlink(path_of(prefix, new.package))


def _planned(prefix: Path, new: Manifest, old: Manifest | None, force: bool) -> Manifest:
    """What will happen: files that go aside, folders that are made."""
    check_links(prefix, new)
    mine = old.paths() if old else set()
    if old and not force:
        changed = [entry.path for entry in old.entries if _changed(prefix, entry)]
        _refuse(changed, prefix, f"{new.package} is installed there and was changed since")
    foreign = sorted(path for path in new.paths() - mine if os.path.lexists(prefix / path))
    if not force:
        _refuse(foreign, prefix, "there are files already that weft build did not install")
    for path in foreign:
        if _is_folder(prefix / path):
            raise Refused(f"{prefix / path} is a folder, and {new.package} has a file there")
    kept = sorted({*foreign, *(old.aside if old else ())})
    folders = _folders_to_make(prefix, new, old)
    return replace(new, state=INSTALLING, folders=folders, aside=tuple(kept), previous=old)


def _refuse(paths: list[str], prefix: Path, why: str) -> None:
    if paths:
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        names = ", ".join(paths[:3])
        raise Refused(
            f"{prefix}: {why}: {names}{more}; --force keeps them aside until it is uninstalled"
        )


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _changed(prefix: Path, entry: Entry) -> bool:
    return os.path.lexists(prefix / entry.path) and not same(prefix, entry)


def _folders_to_make(prefix: Path, new: Manifest, old: Manifest | None) -> tuple[str, ...]:
    wanted: dict[str, None] = dict.fromkeys(old.folders if old else ())
    for path in sorted(new.paths()):
        for folder in reversed(Path(path).parents):
            if folder == Path():
                continue
            at = prefix / folder
            if os.path.lexists(at) and not at.is_dir():
                raise Refused(f"{at} is not a folder")
            if not at.is_dir():
                wanted[folder.as_posix()] = None
    return tuple(wanted)


def _check_space(prefix: Path, stage: Path, new: Manifest) -> None:
    need = sum((stage / entry.path).lstat().st_size for entry in new.entries)
    free = shutil.disk_usage(prefix).free
    if need > free:
        raise Failed(f"{prefix} has room for {free >> 20} MB, {new.package} takes {need >> 20} MB")


def _copy_all(prefix: Path, stage: Path, new: Manifest) -> None:
    mine = new.previous.paths() if new.previous else set()
    earlier = set(new.previous.aside) if new.previous else set()
    for path in sorted(mine):
        _move(prefix, path, aside_path(new.package, path, mine=True))
    for path in sorted(set(new.aside) - earlier):
        _move(prefix, path, aside_path(new.package, path))
    for folder in new.folders:
        (prefix / folder).mkdir(exist_ok=True)
    for entry in new.entries:
        _copy(prefix, stage, entry)


def _copy(prefix: Path, stage: Path, entry: Entry) -> None:
    part = prefix / (entry.path + PART)
    _unlink(part)
    if entry.target is not None:
        os.symlink(entry.target, part)
    else:
        shutil.copyfile(stage / entry.path, part)
        part.chmod(entry.mode)
    os.replace(part, prefix / entry.path)


def _move(prefix: Path, path: str, kept: str) -> None:
    if os.path.lexists(prefix / path):
        (prefix / kept).parent.mkdir(parents=True, exist_ok=True)
        os.rename(prefix / path, prefix / kept)


def _move_back(prefix: Path, kept: str, path: str) -> bool:
    """False if something else is in its place by now."""
    if not os.path.lexists(prefix / kept):
        return True
    if os.path.lexists(prefix / path):
        return False
    (prefix / path).parent.mkdir(parents=True, exist_ok=True)
    os.rename(prefix / kept, prefix / path)
    return True


def _commit(prefix: Path, done: Manifest) -> Manifest:
    """The new files are in place: drop those of the version before."""
    if done.previous is None:
        return done
    for path in done.previous.paths():
        _unlink(prefix / aside_path(done.package, path, mine=True))
        if path not in done.paths():
            _unlink_compiled(prefix, path)
    _remove_folders(prefix, _aside_folders(prefix, done.package))
    gone = _remove_folders(prefix, done.folders)
    left = tuple(folder for folder in done.folders if folder not in gone)
    done = replace(done, previous=None, folders=left)
    save(prefix, done)
    return done


def _remove(prefix: Path, found: Manifest, force: bool) -> Removed:
    removed = Removed()
    for entry in found.entries:
        # A folder was not installed as this entry; it is somebody's, whatever force says.
        if _is_folder(prefix / entry.path) or (_changed(prefix, entry) and not force):
            removed.kept.append(entry.path)
            continue
        removed.files += _unlink(prefix / entry.path)
        _unlink_compiled(prefix, entry.path)
    for path in found.aside:
        kept = aside_path(found.package, path)
        if not _move_back(prefix, kept, path):
            removed.aside.append(kept)
    _remove_folders(prefix, [*_aside_folders(prefix, found.package), *found.folders])
    _unlink(path_of(prefix, found.package))
    return removed


def _unlink_compiled(prefix: Path, path: str) -> None:
    """What Python itself put beside a module that was installed."""
    file = prefix / path
    if file.suffix != ".py":
        return
    cache = file.parent / "__pycache__"
    if cache.is_symlink():
        return
    for compiled in cache.glob(f"{file.stem}.*.pyc"):
        _unlink(compiled)
    with contextlib.suppress(OSError):
        cache.rmdir()


def _aside_folders(prefix: Path, package: str) -> list[str]:
    """Folders that hold nothing any more once files went back."""
    found = []
    for mine in (False, True):
        root = prefix / aside_path(package, "x", mine)
        for folder, _, _ in os.walk(root.parent):
            found.append(Path(folder).relative_to(prefix).as_posix())
    return found


def _remove_folders(prefix: Path, folders: Iterable[str], keep: Iterable[str] = ()) -> set[str]:
    """Remove those that are empty, inner ones first; the ones that are gone."""
    gone = set()
    for folder in sorted({*folders} - {*keep}, key=lambda path: path.count("/"), reverse=True):
        with contextlib.suppress(OSError):
            (prefix / folder).rmdir()
        if not (prefix / folder).exists():
            gone.add(folder)
    return gone


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
