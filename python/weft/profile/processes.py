# SPDX-License-Identifier: Apache-2.0
"""The processes of the program that runs: which there are, and which rank each is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

# What launchers tell a process its rank by; torchrun's name first.
RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_INTERVAL = 0.05


def rank_in(environment: dict[str, str]) -> int | None:
    """The rank that a launcher has put there."""
    for name in RANK_NAMES:
        value = environment.get(name, "")
        if value.isdecimal():
            return int(value)
    return None


def _read(path: str) -> list[str]:
    """The words of a file of /proc that are ended by null bytes; none once the process is gone."""
    try:
        return [os.fsdecode(word) for word in Path(path).read_bytes().split(b"\0") if word]
    except OSError:
        return []


def _environment(pid: int) -> dict[str, str]:
    return dict(word.split("=", 1) for word in _read(f"/proc/{pid}/environ") if "=" in word)


def _children(pid: int) -> Iterator[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        try:
            text = Path(f"/proc/{pid}/task/{thread}/children").read_text()
        except OSError:
            continue
        yield from map(int, text.split())


def short_command(words: list[str]) -> str:
    """A command in a few words: the program, and what it runs if it is a Python."""
    if not words:
        return ""
    program = os.path.basename(words[0])
    if not program.startswith("python"):
        return program
    rest = iter(words[1:])
    for word in rest:
        if word in ("-W", "-X"):  # with a value
            next(rest, None)
        elif word == "-c":
            return f"{program} -c"
        elif word == "-m":
            return f"{program} -m {next(rest, '')}".rstrip()
        elif not word.startswith("-"):
            return f"{program} {os.path.basename(word)}"
    return program


class Watch:
    """Look at our own descendants while a program runs, on a thread.

    A process is seen from its second look on: between fork and exec it still carries the name and
    the environment of its parent. One that lives shorter than that has no rank and no command.
    """

    def __init__(self, each: Callable[[], None] | None = None) -> None:
        self.ranks: dict[int, int] = {}
        self.commands: dict[int, str] = {}
        self._each = each
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weft profile")

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        # They are for the thread that waits for the program.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while not self._end.wait(_INTERVAL):
            self._look()
            if self._each is not None:
                self._each()

    def _look(self) -> None:
        waiting = [os.getpid()]
        while waiting:
            for pid in _children(waiting.pop()):
                waiting.append(pid)
                self._note(pid)

    def _note(self, pid: int) -> None:
        command = short_command(_read(f"/proc/{pid}/cmdline"))
        if not command or self.commands.get(pid) == command:
            return
        self.commands[pid] = command
        rank = rank_in(_environment(pid))
        if rank is not None:
            self.ranks[pid] = rank


def labels(pids: set[int], ranks: dict[int, int], commands: dict[int, str]) -> dict[int, str]:
    """What to call each process: its rank if it has one, and what it runs."""
    known = {}
    for pid in sorted(pids, key=lambda pid: (ranks.get(pid, 1 << 30), pid)):
        command = commands.get(pid, "")
        what = f"rank {ranks[pid]}" if pid in ranks else f"process {pid}"
        known[pid] = f"{what} ({command})" if command else what
    return known
