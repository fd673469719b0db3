# SPDX-License-Identifier: Apache-2.0
"""Processes that measure what they are told to, line by line.

Commands go as lines of JSON to the standard input of a process, answers come as lines from its
standard output. One that is busy for long says now and then that it is at work.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

_TELL = 1.0  # seconds from one word that a process is at work to the next
PATIENCE = 120.0  # seconds without a word from a process


class RankError(Exception):
    """A process of the benchmark failed; the text says what it said."""


class Rank:
    """One process that measures. Whoever makes it calls `stop`."""

    def __init__(
        self,
        command: Sequence[str],
        env: dict[str, str] | None = None,
        start: Callable[..., subprocess.Popen] = subprocess.Popen,
    ):
        """`start` is subprocess.Popen, or what starts a process elsewhere."""
        self._unread = b""
        self._process = start(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=os.environ | (env or {}),
            process_group=0,  # Ctrl-C is for the coordinator, which ends it
        )

    def tell(self, do: str, **words: object) -> None:
        """Send a command whose answer `hear` gives later."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **words}) + "\n")
        except OSError as error:
            raise RankError(f"the process is gone: {error}") from error

    def hear(self, seconds: float = PATIENCE) -> dict:
        """The answer to the last command. One that says that it is at work has more time."""
        while "at_work" in (answer := self._next(seconds)):
            pass
        if "error" in answer:
            raise RankError(answer["error"])
        return answer

    def _next(self, seconds: float) -> dict:
        """The next line. Several may come at once, and then select knows of the first only."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            if not select.select([pipe], [], [], seconds)[0]:
                raise RankError(f"no answer for {seconds:.0f} s")
            more = os.read(pipe, 1 << 16)
            if not more:
                raise RankError(f"the process ended with status {self._process.wait()}")
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def ask(self, do: str, **words: object) -> dict:
        self.tell(do, **words)
        return self.hear()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Ranks:
    """Several of them, which are told things one after the other or at once."""

    def __init__(self, ranks: list[Rank]):
        self.ranks = ranks

    def all(self, do: str, **words: object) -> list[dict]:
        """What all answer; they do it at the same time."""
        for rank in self.ranks:
            rank.tell(do, **words)
        return [rank.hear() for rank in self.ranks]

    def one(self, do: str, **words: object) -> dict:
        """What the first answers."""
        return self.ranks[0].ask(do, **words)


def _now_and_then(tell: Callable[[], object]) -> Callable[[], None]:
    """Call `tell` at most once in a while, however often this is called."""
    last = time.monotonic()

    def at_work() -> None:
        nonlocal last
        if time.monotonic() > last + _TELL:
            last = time.monotonic()
            tell()

    return at_work


def serve(make: Callable[[Callable[[], None]], Any]) -> int:
    """Obey until there are no more commands. Those of `make(at_work)` begin with `do_`."""
    # What libraries print must not get among the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    rank = make(_now_and_then(lambda: answers.write('{"at_work": true}\n')))
    for line in sys.stdin:
        words = json.loads(line)
        try:
            answer = getattr(rank, "do_" + words.pop("do"))(**words)
        except Exception as error:  # told to the coordinator, whatever it is
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
    return 0
