# SPDX-License-Identifier: Apache-2.0
"""Jobs of this user on this host, by the board that their ranks hold open."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import weft
from weft import _core

from . import Refused

LINK = "/memfd:the weft board"  # WF_BOARD_NAME, as /proc shows it
PROC = Path("/proc")


@dataclass
class Job:
    """A job with ranks on this host. `fd` is its board, open for reading."""

    fd: int
    program: str = ""  # kept, as processes end while one looks
    pids: dict[int, int] = field(default_factory=dict)  # as the board has it -> as it is here
    elsewhere: list[int] = field(default_factory=list)  # on other boards of the same job

    def read(self) -> dict[str, Any]:
        """What the board shows now. weft.Error if it is none that this weft can read."""
        shown: dict[str, Any] = json.loads(_core.view_json(self.fd))
        return shown

    def close(self) -> None:
        os.close(self.fd)


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def program(pid: int) -> str:
    """The script that a process runs, or its program."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    names = [os.path.basename(word) for word in words if word and not word.startswith("-")]
    scripts = [name for name in names if name.endswith(".py")]
    return (scripts or names or [""])[0]


def _inner_pid(pid: int) -> int:
    """Its number in the innermost namespace: as the process itself and its job know it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return pid


def _boards(pid: int) -> list[str]:
    """Paths of the boards that a process holds."""
    folder = PROC / str(pid) / "fd"
    found = []
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            path = f"{folder}/{entry}"
            with contextlib.suppress(OSError):
                if os.readlink(path).startswith(LINK):
                    found.append(path)
    return found


def _own_pids() -> list[int]:
    own = []
    for name in os.listdir(PROC):
        with contextlib.suppress(OSError):
            if name.isdecimal() and (PROC / name).stat().st_uid == os.geteuid():
                own.append(int(name))
    return sorted(own)


def _descendants(pid: int) -> list[int]:
    """Processes of this user that a process has started, and theirs: the ranks of a launcher."""
    children: dict[int, list[int]] = {}
    for child in _own_pids():
        with contextlib.suppress(OSError, ValueError, IndexError):
            # "pid (name) state parent ...", and the name may contain anything.
            fields = (PROC / str(child) / "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(child)
    found = [pid]
    for parent in found:  # which grows meanwhile
        found += children.get(parent, [])
    return found[1:]


def jobs(only: Container[int] | None = None) -> list[Job]:
    """All jobs of this user here, oldest process first; or those that one of `only` is in."""
    found: dict[tuple[int, int], Job] = {}
    wanted: set[tuple[int, int]] = set()
    for pid in _own_pids():
        for path in _boards(pid):
            # Those who hold it open may have ended meanwhile.
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                about = os.fstat(fd)
                key = (about.st_dev, about.st_ino)
                if pid == os.getpid():  # what is open here because we look at it
                    os.close(fd)
                    continue
                if key in found:
                    os.close(fd)
                job = found.setdefault(key, Job(fd))
                job.pids[_inner_pid(pid)] = pid
                job.program = job.program or program(pid)
                if only is not None and pid in only:
                    wanted.add(key)
    for key in [key for key in found if only is not None and key not in wanted]:
        found.pop(key).close()
    return list(found.values())


def _id_of(job: Job) -> str:
    """What boards of one job have in common; "" of one that this weft cannot read."""
    with contextlib.suppress(weft.Error):
        return str(job.read()["job"])
    return ""


def _one_of(found: Sequence[Job], pid: int) -> Job:
    """The one job that these boards are of, for a process that holds them or has started it.

    A job whose hosts are namespaces of this machine has a board on each of them. Of several
    worlds of one process it is the first.
    """
    first, *others = found
    name, more = _id_of(first), set()
    for job in others:
        own = _id_of(job)
        if own == name:
            first.elsewhere += sorted(job.pids.values())
        elif set(job.pids.values()).isdisjoint(first.pids.values()):
            more.add(own)
        job.close()
    if more:
        first.close()
        raise Refused(f"process {pid} has started {1 + len(more)} jobs; weft top lists them")
    return first


def by_pid(pid: int) -> Job:
    """The job of a process, or the one job of those that it has started."""
    try:
        owner = (PROC / str(pid)).stat().st_uid
    except OSError:
        raise Refused(f"there is no process {pid}") from None
    if owner != os.geteuid():
        me, them = user_name(os.geteuid()), user_name(owner)
        raise Refused(
            f"process {pid} belongs to {them}, and you are {me}: weft top shows jobs of the user "
            "who runs it"
        )
    found = jobs([pid] if _boards(pid) else _descendants(pid))
    if not found:
        raise Refused(f"process {pid} ({program(pid)}) is in no job of weft, and has started none")
    return _one_of(found, pid)


def matches(job: Job, shown: dict[str, Any], name: str) -> bool:
    """Is this the job's name, its program, or the beginning of its id?"""
    programs = {program(pid) for pid in job.pids.values()}
    return name == shown["name"] or name in programs or shown["job"].startswith(name.lower())
