# SPDX-License-Identifier: Apache-2.0
"""Linux's perf: samples of all processes of a program, with their call stacks.

Neither Python nor the libraries of PyTorch keep frame pointers, so a stack is recorded as its
first bytes and unwound later, by the tables that exceptions need (`--call-graph dwarf`). Measured
on a conv2d loop, frame pointers gave 5 frames on average and reached main() in no stack; 16 KiB of
stack gave 35 frames and reached it in most, at the same speed of the program.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from . import ProfileError
from .samples import UNKNOWN, Frame, Sample, library_name

EVENTS = ("cycles", "cycles:u", "cpu-clock", "cpu-clock:u")
_CLOCK = re.compile(r"(cpu|task)-clock")
STACKS = ("dwarf", "fp", "lbr", "none")
STACK_BYTES = 16384
LIMIT = 1 << 30  # bytes of perf.data, about two minutes of two busy cores
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")

_HEAD = re.compile(
    r"^\s*(?P<thread>.*?)\s+(?P<pid>-?\d+)/(?P<tid>-?\d+)\s+"
    r"(?P<time>\d+\.\d+):\s+(?P<period>\d+)\s+(?P<event>\S.*?):\s*$"
)
# A function's name may hold blanks and parentheses; the object begins with / or [.
_FRAME = re.compile(
    r"^\s+(?P<address>[0-9a-f]+)\s(?P<function>.*) \((?P<file>[/[].*|inlined)\)\s*$"
)


@dataclass(frozen=True)
class Recorder:
    """How perf can record here."""

    perf: str
    event: str
    stacks: str
    rate: int  # samples in a second of CPU time

    def options(self) -> list[str]:
        graph = f"dwarf,{STACK_BYTES}" if self.stacks == "dwarf" else self.stacks
        stacks = [] if self.stacks == "none" else ["--call-graph", graph]
        # -N: else perf copies every library that it saw to ~/.debug, gigabytes with PyTorch.
        return ["-N", "-e", self.event, "-F", str(self.rate), "-k", "mono", *stacks]


def default_rate() -> int:
    """Samples a second: fewer where many cores would write more than a disk takes."""
    cores = len(os.sched_getaffinity(0))
    return 499 if cores <= 8 else 199 if cores <= 32 else 99


def find(stacks: str = "dwarf", rate: int | None = None) -> Recorder:
    """The first event that perf may count here; ProfileError says why there is none."""
    perf = shutil.which("perf")
    if perf is None:
        raise ProfileError(
            "there is no perf here: apt-get install linux-perf (linux-tools-generic on Ubuntu), "
            "or --tool sprof or torch"
        )
    said = ""
    with tempfile.TemporaryDirectory(prefix="weft-profile-") as folder:
        for event in EVENTS:
            recorder = Recorder(perf, event, stacks, rate or default_rate())
            said = _try(recorder, Path(folder) / "try.data") or ""
            if not said:
                return recorder
    raise ProfileError(_refused(said))


def _try(recorder: Recorder, data: Path) -> str | None:
    """Record nothing much; what perf says if it cannot."""
    command = [recorder.perf, "record", "-q", *recorder.options(), "-o", str(data), "--", "true"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode != 0:
        return done.stderr.strip() or "perf failed"
    return _other_event(recorder, data)


def _other_event(recorder: Recorder, data: Path) -> str | None:
    """Where the machine counts no cycles perf takes a clock, and says so in the file only."""
    command = [recorder.perf, "evlist", "-i", str(data)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    same = done.returncode != 0 or recorder.event.split(":")[0] in done.stdout
    return None if same else f"{recorder.event} is not counted here"


def _refused(said: str) -> str:
    """Why perf may not record, in a line."""
    try:
        level = int(_PARANOID.read_text())
    except (OSError, ValueError):
        level = None
    lower = said.lower()
    denied = any(
        word in lower for word in ("permission", "not permitted", "paranoid", "access to perf")
    )
    if denied and level is not None and level > 1 and os.geteuid() != 0:
        return (
            f"perf is not permitted here (kernel.perf_event_paranoid is {level}): as root, "
            "sysctl kernel.perf_event_paranoid=1; or --tool sprof or torch"
        )
    if denied:
        return (
            "perf is not permitted here, as in a container without perf_event_open: start it with "
            "--cap-add PERFMON or seccomp=unconfined; or --tool sprof or torch"
        )
    lines = [line.strip() for line in said.splitlines() if line.strip() not in ("", "Error:")]
    first = lines[0].rstrip(".") if lines else "no reason given"
    return f"perf cannot record here: {first}; or --tool sprof or torch"


class Control:
    """Switch recording on and off while the program runs, by time and by the size of the data."""

    def __init__(self, folder: Path, data: Path, delay: float, seconds: float | None) -> None:
        self._fifo = folder / "control"
        self._data, self._delay, self._seconds = data, delay, seconds
        self._begin = time.monotonic()
        self._off = self._on = False
        self.ended: str | None = None  # why recording stopped before the program
        os.mkfifo(self._fifo)
        self._pipe = os.open(self._fifo, os.O_RDWR | os.O_NONBLOCK)

    def options(self) -> list[str]:
        return [*(["-D", "-1"] if self._delay else []), "--control", f"fifo:{self._fifo}"]

    def look(self) -> None:
        """To be called now and then while the program runs."""
        since = time.monotonic() - self._begin
        if self._delay and not self._on and since >= self._delay:
            self._on = True
            self._tell("enable")
        if self._off:
            return
        if self._seconds is not None and since >= self._delay + self._seconds:
            self._end(f"{self._seconds:g} s were recorded, as asked for")
        elif _size(self._data) > LIMIT:
            self._end(
                f"the first {since:.0f} s were recorded: then the samples filled "
                f"{LIMIT >> 20} MiB; fewer with --rate, others with --delay"
            )

    def _end(self, why: str) -> None:
        self._off, self.ended = True, why
        self._tell("disable")

    def _tell(self, word: str) -> None:
        with contextlib.suppress(OSError):  # perf is gone, and the program with it
            os.write(self._pipe, f"{word}\n".encode())

    def close(self) -> None:
        os.close(self._pipe)
        self._fifo.unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def command(recorder: Recorder, control: Control, data: Path, program: list[str]) -> list[str]:
    """The program, recorded into `data`."""
    options = [*recorder.options(), *control.options()]
    return [recorder.perf, "record", "-q", *options, "-o", str(data), "--", *program]


def read(recorder: Recorder, data: Path) -> list[Sample]:
    """The samples that were recorded."""
    script = [recorder.perf, "script", "--no-inline", "-i", str(data)]
    script += ["-F", "comm,pid,tid,time,period,event,ip,sym,dso"]
    if os.geteuid() == 0:
        script.append("--force")  # whoever the file belongs to
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        with subprocess.Popen(
            script, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace"
        ) as perf:
            assert perf.stdout is not None
            samples = list(parse(perf.stdout, recorder))
        errors.seek(0)
        said = [line.strip() for line in errors if line.strip()]
    if perf.returncode != 0 and not samples:
        raise ProfileError(f"perf script failed: {said[-1] if said else perf.returncode}")
    return samples


def parse(lines: Iterable[str], recorder: Recorder) -> Iterator[Sample]:
    """The samples in the text of `perf script`; lines that are none are left out."""
    head: re.Match[str] | None = None
    stack: list[Frame] = []
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None:
            if head is not None:
                stack.append(_frame(frame))
            continue
        if head is not None:
            yield _sample(head, stack, recorder)
        head, stack = _HEAD.match(line), []
    if head is not None:
        yield _sample(head, stack, recorder)


def _frame(match: re.Match[str]) -> Frame:
    library = library_name(match["file"])
    return Frame(match["function"].strip() or UNKNOWN, library)


def _sample(head: re.Match[str], stack: list[Frame], recorder: Recorder) -> Sample:
    while stack and stack[-1] == (UNKNOWN, UNKNOWN):
        stack.pop()  # where unwinding gave up
    # A clock's period is in nanoseconds. perf takes the clock by itself where the machine counts
    # no cycles, so it is the event of the sample that says.
    clock = _CLOCK.match(head["event"])
    seconds = int(head["period"]) / 1e9 if clock else 1 / recorder.rate
    return Sample(
        int(head["pid"]),
        int(head["tid"]),
        float(head["time"]),
        seconds,
        tuple(stack) or (Frame(UNKNOWN, UNKNOWN),),
        head["thread"],
    )
