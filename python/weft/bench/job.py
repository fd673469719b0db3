# SPDX-License-Identifier: Apache-2.0
"""One job of a benchmark: the ranks of one system with one setting, started once.

Every rank connects to the coordinator's socket and sleeps there until it is told to do something,
so that all jobs but one are out of the way. The page that the ranks share is a memory file of the
coordinator; they open it through /proc. Nothing outlives the run.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .systems import System, Tools, launch_command


def page_bytes(ranks: int) -> int:
    """The same as in driver/page.h."""
    return 65536 + ranks * (32 << 20)


class JobError(Exception):
    """A job failed; the text says what it said last."""


class JobTimeout(JobError):
    """A job did not answer in time."""


class JobLacks(JobError):
    """The ranks have no memory of the kind that was asked for. They go on."""


@dataclass(frozen=True)
class Program:
    """A family's driver and how to start it."""

    tools: Tools
    path: Path


@contextlib.contextmanager
def _started_on(cores: Sequence[int]) -> Iterator[None]:
    """Processes that this thread starts may use these cores alone; any of them if there are none.

    Ranks that share cores are to find that out when they start, before the driver pins each.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Job:
    """The processes of one system. Whoever makes it calls `stop`."""

    def __init__(
        self, system: System, program: Program, ranks: int, cores: Sequence[int], folder: Path
    ):
        self.system = system
        self.ranks = ranks
        self._conns: dict[int, socket.socket] = {}
        self._waiting: list[socket.socket] = []
        self._log = folder / f"{system.job}.log"
        self._page, page = self._make_page(folder)
        os.ftruncate(self._page, page_bytes(ranks))
        address = folder / f"{system.job}.sock"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(address))
        self._listener.listen(ranks)
        serve = ["--serve", str(address), page, ",".join(map(str, cores))]
        self._processes: list[subprocess.Popen] = []
        with open(self._log, "wb") as log:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "process_group": 0}
            with _started_on(cores if ranks > len(cores) else ()):
                self._start(program, self._rank_command(program, serve, folder), folder, pipes)

    def _make_page(self, folder: Path) -> tuple[int, str]:
        """The page's descriptor, and the path at which ranks find it."""
        fd = os.memfd_create("weft-bench", os.MFD_CLOEXEC)
        return fd, f"/proc/{os.getpid()}/fd/{fd}"

    def _rank_command(self, program: Program, serve: list[str], folder: Path) -> list[str]:
        """What a rank runs, however it is started."""
        python = self.system.family.python
        if not python:
            return [str(program.path), *serve]
        # -P: neither the script's folder nor this one is a place to import from.
        meeting = str(folder / f"{self.system.job}.store")
        return [sys.executable, "-P", *python, str(program.path), meeting, *serve]

    def _start(
        self, program: Program, command: list[str], folder: Path, pipes: Mapping[str, Any]
    ) -> None:
        """Start the processes of the coordinator, each with these `pipes`."""
        for words, env in self._commands(program, command):
            self._processes.append(subprocess.Popen(words, env=env, **pipes))

    def _commands(self, program: Program, command: list[str]):
        """The command and the environment of each process that the coordinator starts."""
        base = os.environ | self.system.env
        python = self.system.family.python
        if program.tools.launcher is not None:
            yield [*launch_command(program.tools, self.ranks), *command], base
            return
        job = {"WEFT_RANKS": str(self.ranks), "WEFT_JOB": f"bench-{secrets.token_hex(8)}"}
        for rank in range(self.ranks):
            env = base | {"BENCH_RANK": str(rank), "BENCH_RANKS": str(self.ranks)}
            if python:
                env["GLOO_SOCKET_IFNAME"] = "lo"
            elif self.system.family.driver.libweft:
                env |= job | {"WEFT_RANK": str(rank)}
            yield command, env

    def _failed(self, what: str, kind: type[JobError] = JobError) -> JobError:
        try:
            lines = self._log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        said = next((line for line in lines if line.strip(" -")), "")
        return kind(f"{what}{': ' + said if said else ''}")

    def wait_ready(self, seconds: float) -> None:
        """Return when all ranks have said hello."""
        deadline = time.monotonic() + seconds
        while len(self._conns) < self.ranks:
            left = deadline - time.monotonic()
            if left <= 0:
                what = f"only {len(self._conns)} of {self.ranks} ranks started"
                raise self._failed(what, JobTimeout)
            watched = [self._listener, *self._waiting]
            ready, _, _ = select.select(watched, [], [], min(left, 0.2))
            for sock in ready:
                self._greet(sock)
            if any(process.poll() is not None for process in self._processes):
                raise self._failed("a process ended while starting")

    def _greet(self, sock: socket.socket) -> None:
        if sock is self._listener:
            self._waiting.append(sock.accept()[0])
            return
        words = sock.recv(256).decode().split()
        self._waiting.remove(sock)
        if len(words) != 3 or words[0] != "hello" or int(words[2]) != self.ranks:
            sock.close()
            raise self._failed(f"a rank started wrongly ({' '.join(words) or 'it ended'})")
        self._conns[int(words[1])] = sock

    def ask(self, message: str, seconds: float) -> list[list[float]]:
        """Send a command to all ranks; the figures that each answers, by rank."""
        answers: dict[int, list[float] | None] = {}
        deadline = time.monotonic() + seconds
        try:
            for conn in self._conns.values():
                conn.send(message.encode())
        except OSError:
            raise self._failed("a rank is gone") from None
        while len(answers) < self.ranks:
            due = {conn: rank for rank, conn in self._conns.items() if rank not in answers}
            left = deadline - time.monotonic()
            ready, _, _ = select.select(list(due), [], [], max(left, 0))
            if not ready:
                what = f"no answer within {seconds:.0f} s to {message!r}"
                raise self._failed(what, JobTimeout)
            for conn in ready:
                answers[due[conn]] = self._answer(conn, message)
        figures = [answer for _, answer in sorted(answers.items()) if answer is not None]
        if len(figures) < self.ranks:
            raise self._failed(f"no memory of this kind for {message!r}", JobLacks)
        return figures

    def _answer(self, conn: socket.socket, message: str) -> list[float] | None:
        """The figures; None if the rank lacks what it needs for them."""
        try:
            words = conn.recv(256).decode().split()
        except OSError:
            words = []
        if words == ["lacks"]:
            return None
        if not words or words[0] != "ok":
            raise self._failed(f"a rank {'failed' if words else 'ended'} in {message!r}")
        return [float(word) for word in words[1:]]

    def dismiss(self) -> None:
        """Let the ranks go: each leaves when its socket closes."""
        for sock in [*self._conns.values(), *self._waiting, self._listener]:
            sock.close()

    def stop(self) -> None:
        """End the job, politely first. May be called twice."""
        self.dismiss()
        deadline = time.monotonic() + 3
        for process in self._processes:
            try:
                process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                self._kill(process)
        if self._page >= 0:
            os.close(self._page)
            self._page = -1

    @staticmethod
    def _kill(process: subprocess.Popen) -> None:
        """A launcher passes SIGTERM on; each process leads a session of its own."""
        process.terminate()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
