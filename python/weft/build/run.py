# SPDX-License-Identifier: Apache-2.0
"""Run the steps of a build: skip those that are done, log all, show how far it is."""

from __future__ import annotations

import collections
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from . import Failed
from .progress import Progress, is_compile
from .recipe import Step
from .work import Work

TAIL = 15  # lines of the log that are shown when a step fails
PATIENCE = 10.0  # seconds that a command gets to stop


class Stopped(Exception):
    """Somebody asked us to stop; commands have been stopped."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise Stopped, once: what undoes things is not interrupted."""

    def stop(number: int, _frame: object) -> None:
        for known in before:
            signal.signal(known, signal.SIG_IGN)
        raise Stopped(number)

    before: dict[int, object] = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for known, handler in before.items():
            signal.signal(known, handler)  # type: ignore[arg-type]


def run(steps: list[Step], work: Work, quiet: bool = False) -> list[str]:
    """Run the steps that are not done yet; their names. Failed with the end of the log."""
    done = work.done()
    ran = []
    for at, step in enumerate(steps):
        if done[: at + 1] == [known.name for known in steps[: at + 1]]:
            continue
        _one(step, work, quiet)
        work.note(step.name)
        done = work.done()
        ran.append(step.name)
    return ran


def _one(step: Step, work: Work, quiet: bool) -> None:
    for path in step.fresh:
        shutil.rmtree(path, ignore_errors=True)
    with open(work.log, "a", errors="replace") as log:
        print(f"\n$ {step.shell()}", file=log, flush=True)
        if step.action is not None:
            if not quiet:
                print(f"{step.what} ...", file=sys.stderr, flush=True)
            step.action()
            return
        last = _command(step, work, log, quiet)
    if last is not None:
        raise Failed(last)


def _command(step: Step, work: Work, log: IO[str], quiet: bool) -> str | None:
    """Run a command; what to say if it failed."""
    step.cwd.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "LC_ALL": "C.UTF-8", **step.env}
    progress = Progress(step.what, _count(step, env), quiet)
    tail: collections.deque[str] = collections.deque(maxlen=TAIL)
    child = subprocess.Popen(
        step.command,
        cwd=step.cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,  # a Ctrl-C is ours to pass on, to all of it
        pass_fds=(work.handle,),
    )
    try:
        assert child.stdout is not None
        for line in child.stdout:
            log.write(line)
            tail.append(line.rstrip("\n"))
            progress.feed(line)
        status = child.wait()
    except BaseException:
        _end(child)
        raise
    finally:
        progress.close()
    if status == 0:
        return None
    why = f"signal {-status}" if status < 0 else f"exit status {status}"
    lines = "\n".join(f"  {line}" for line in tail)
    return f"{step.what} failed ({why}); the log is {work.log}, its last lines:\n{lines}"


def _count(step: Step, env: dict[str, str]) -> int | None:
    if not step.count:
        return None
    try:
        done = subprocess.run(
            step.count,
            cwd=step.cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError:
        return None
    return sum(map(is_compile, done.stdout.splitlines())) or None


def _end(child: subprocess.Popen[str]) -> None:
    """Stop a command and all that it started."""
    for number, patience in ((signal.SIGTERM, PATIENCE), (signal.SIGKILL, PATIENCE)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(patience)
            break
    # The group's other members may be a moment behind their leader.
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return
        time.sleep(0.02)


def free(path: Path) -> int:
    """Bytes that can be written below `path`, which need not exist yet."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
