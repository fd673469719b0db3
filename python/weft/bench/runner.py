# SPDX-License-Identifier: Apache-2.0
"""The rounds of a benchmark: what was asked for, who takes turns, and what came out.

All jobs of a setup are started once. Then the systems take turns, case by case and round by round,
while all others sleep. Each turn is a block: a placement probe, warm-up, timed calls, a probe.
"""

from __future__ import annotations

import os
import platform
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from weft import _core

from .build import BuildError, build
from .job import Job, JobError, JobLacks, JobTimeout, Program
from .operations import Operation
from .results import Block, Case, block_from, case_name
from .systems import Family, System

_MIB = 1 << 20

LARGE = 32 * _MIB  # from here on a turn takes seconds
# A quick run ends within 50 s. The first setup has most of the cases; what remains after the last
# is for stopping and reporting.
QUICK_SECONDS = 42.0
QUICK_FIRST_SETUP = 27.0


@dataclass(frozen=True)
class Options:
    """What the command line asked for; the defaults are a full run."""

    quick: bool = False
    ranks: tuple[int, ...] | None = None
    ops: tuple[str, ...] | None = None
    sizes: tuple[int, ...] | None = None
    families: frozenset[str] | None = None
    cores: int | None = None
    rounds: int | None = None
    block_ms: float | None = None
    library: tuple[Path, Path] | None = None
    installed: bool = False  # leave out the peers' other settings

    def wants(self, name: str) -> bool:
        """Is the system or family `name` one of those that were asked for?"""
        return self.families is None or name in self.families


@dataclass(frozen=True)
class Setup:
    """A number of ranks, the cores they run on, and what they run."""

    ranks: int
    cores: tuple[int, ...]
    cases: tuple[Case, ...]
    systems: tuple[System, ...]

    @property
    def crowded(self) -> bool:
        return self.ranks > len(self.cores)


@dataclass
class Outcome:
    """What a run found, and what could not take part or broke off, by name."""

    blocks: list[Block] = field(default_factory=list)
    dropped: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    # Rows of values and of marks, made by a part that has other figures than blocks.
    ready: list[dict] = field(default_factory=list)
    interrupted: bool = False


def cores_here(limit: int | None) -> tuple[int, ...]:
    """The cores that this process may use, the first `limit` of them."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return cores if limit is None else cores[:limit]


def fits_memory(operation: Operation, case: Case, jobs: int, available: int) -> bool:
    """The job at work has the user's buffers, and every job may keep one for its own use."""
    buffers = operation.buffer_bytes(case.bytes, case.ranks)
    return case.ranks * (sum(buffers) + jobs * max(buffers)) <= 0.7 * available


def quick_end(number: int, setups: int) -> float:
    """When setup `number` of a quick run ends, in seconds from its start."""
    if number == setups - 1:
        return QUICK_SECONDS
    return QUICK_FIRST_SETUP + number * (QUICK_SECONDS - QUICK_FIRST_SETUP) / (setups - 1)


def available_memory() -> int:
    """What this machine has free, or less if the container may have less."""
    host, _, group = _core.memory()
    return min((n for n in (host, group) if n is not None), default=0)


class Runner:
    """Runs the setups of a plan one after the other and collects their blocks.

    A benchmark says who takes a case and when it is checked. `operations` has those whose cases
    are left out where memory is short.
    """

    operations: Mapping[str, Operation] = {}

    def __init__(self, options: Options, parts: Mapping[str, Family]):
        """`parts`: those that the command line can name, and the family of each."""
        self.outcome = Outcome()
        self._options = options
        self._parts = parts
        self._rounds = options.rounds or (12 if options.quick else 10)
        self._block_ms = options.block_ms or (6.0 if options.quick else 20.0)
        self._start = time.monotonic()
        self._end = float("inf")
        self._seed = secrets.randbits(31)
        self._programs: dict[Family, Program] = {}

    def prepare(self) -> None:
        """Find and build everything before anything is started."""
        for name, family in self._parts.items():
            if self._options.wants(name):
                self._build(name, family)

    def _build(self, name: str, family: Family) -> None:
        """The driver of a family; or why `name` takes no part."""
        tools = family.find()
        if tools.compiler is None:
            self.outcome.missing[name] = tools.missing or "no C compiler found"
            return
        try:
            path = build(family.driver, tools.compiler, self._options.library)
        except BuildError as error:
            self.outcome.missing[name] = str(error)
            return
        self._programs[family] = Program(tools, path)

    def run_all(self, setups: list[Setup], advance: Callable[[str], None]) -> None:
        """Run one setup after the other, each within its share of the time."""
        for number, setup in enumerate(setups):
            if self._options.quick:
                self._end = self._start + self._quick_end(number, len(setups))
            if time.monotonic() < self._end:
                self._run(setup, advance)
            else:
                self.outcome.notes.append(f"{setup.ranks} ranks: no time left for them")

    def _quick_end(self, number: int, setups: int) -> float:
        """When setup `number` of a quick run ends, in seconds from its start."""
        return quick_end(number, setups)

    def _run(self, setup: Setup, advance: Callable[[str], None]) -> None:
        """Start the jobs of `setup`, let them take turns, and end them."""
        systems = [s for s in setup.systems if s.family in self._programs]
        cases = self._cases_in_memory(setup, len({system.job for system in systems}))
        with self._jobs(setup, systems) as jobs:
            self._check(setup, systems, jobs, cases)
            self._take_turns(systems, jobs, cases, advance)

    def _cases_in_memory(self, setup: Setup, jobs: int) -> list[Case]:
        available = available_memory()
        kept: list[Case] = []
        left_out: list[str] = []
        for case in setup.cases:
            operation = self.operations.get(case.op)
            if operation is None or fits_memory(operation, case, jobs, available):
                kept.append(case)
            else:
                left_out.append(case_name(case))
        if left_out:
            what = ", ".join(left_out)
            note = f"{setup.ranks} ranks: left out, they need more memory than is free: {what}"
            self.outcome.notes.append(note)
        return kept

    @contextmanager
    def _jobs(self, setup: Setup, systems: list[System]) -> Iterator[dict[str, Job]]:
        jobs: dict[str, Job] = {}
        with tempfile.TemporaryDirectory(prefix="weft-bench-", dir=self._place()) as folder:
            try:
                self._start_jobs(setup, systems, jobs, Path(folder))
                yield jobs
            finally:
                for job in jobs.values():
                    job.dismiss()
                for job in jobs.values():
                    job.stop()

    def _place(self) -> str | None:
        """Where the files of jobs go; a socket's path has room for 107 bytes only."""
        return None if len(tempfile.gettempdir()) < 60 else "/tmp"

    def _job(self, setup: Setup, system: System, folder: Path) -> Job:
        """Start a job."""
        return Job(system, self._programs[system.family], setup.ranks, setup.cores, folder)

    def _start_jobs(
        self, setup: Setup, systems: list[System], jobs: dict[str, Job], folder: Path
    ) -> None:
        """What imports torch starts first and is awaited last: that takes the longest."""
        unique = {system.job: system for system in systems}
        slow_last = sorted(unique.values(), key=lambda s: s.imports_torch)
        for system in reversed(slow_last):
            if system.imports_torch:
                jobs[system.job] = self._job(setup, system, folder)
        for system in slow_last:
            if system.job not in jobs:
                jobs[system.job] = self._job(setup, system, folder)
            try:
                jobs[system.job].wait_ready(self._patience(60))
            except JobError as error:
                self._drop(jobs, system, setup.ranks, error)

    def _patience(self, seconds: float) -> float:
        return max(2.0, min(seconds, self._end - time.monotonic()))

    def _drop(self, jobs: dict[str, Job], system: System, ranks: int, error: JobError) -> None:
        who = f"{system.job}, {ranks} ranks"
        if self._options.quick and isinstance(error, JobTimeout):
            self.outcome.notes.append(f"{who}: {error}; the time was up")
        else:
            self.outcome.failed[who] = str(error)
        jobs.pop(system.job).stop()

    def _ask(
        self, jobs: dict[str, Job], system: System, verb: str, case: Case
    ) -> list[list[float]] | None:
        """The ranks' answers; None if the job is gone, or just went."""
        job = jobs.get(system.job)
        if job is None:
            return None
        self._seed = (self._seed + 1) & 0x7FFFFFFF
        command = f"{verb} {self._words(system, case)} {self._block_ms} {self._seed}"
        try:
            return job.ask(command, self._patience(60 if case.bytes < LARGE else 180))
        except JobLacks as error:
            self.outcome.missing.setdefault(system.name, str(error))
            return None
        except JobError as error:
            self._drop(jobs, system, case.ranks, error)
            return None

    def _words(self, system: System, case: Case) -> str:
        """A case as the drivers are told of it."""
        return f"{case.op} {max(case.bytes, 4)} {system.pages}"

    def _takes(self, system: System, case: Case) -> bool:
        """Does `system` have this case, and something to say about it?"""
        raise NotImplementedError

    def _takes_turn(self, case: Case, turn: int) -> bool:
        """Is the case measured in this round?"""
        raise NotImplementedError

    def _check(
        self, setup: Setup, systems: list[System], jobs: dict[str, Job], cases: list[Case]
    ) -> None:
        """Nothing is timed whose result is wrong: such a job is dropped."""
        raise NotImplementedError

    def _take_turns(
        self,
        systems: list[System],
        jobs: dict[str, Job],
        cases: list[Case],
        advance: Callable[[str], None],
    ) -> None:
        for turn in range(self._rounds):
            for case in cases:
                if time.monotonic() > self._end:
                    return
                for system in systems if self._takes_turn(case, turn) else []:
                    if self._takes(system, case):
                        self._block(system, jobs, case, turn)
                        advance(f"{case.ranks} ranks, {case.op}")

    def _block(self, system: System, jobs: dict[str, Job], case: Case, turn: int) -> None:
        answers = self._ask(jobs, system, "block", case)
        if answers is None:
            return
        block = block_from(case, system.name, turn, answers)
        if block is None:
            self.outcome.dropped += 1
        else:
            self.outcome.blocks.append(block)

    def total(self, setups: list[Setup]) -> int:
        """How many blocks there will be, if time allows."""
        return sum(
            self._takes(system, case) and self._takes_turn(case, turn)
            for setup in setups
            for case in setup.cases
            for system in setup.systems
            if system.family in self._programs
            for turn in range(self._rounds)
        )


def machine() -> str:
    """One line on where the figures come from."""
    model = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return f"{model}, {cores} cores, Linux {platform.release()}, load {load:.1f} at the start"


@contextmanager
def progress(total: int) -> Iterator[Callable[..., None]]:
    """A progress bar on stderr, where tqdm is installed.

    It is moved by `advance(text)` for each block; `advance(text, 0)` says what is done meanwhile.
    """
    try:
        import tqdm
    except ImportError:
        yield lambda _text, _blocks=1: None
        return
    # Its monitor thread would wake up in the middle of a block.
    tqdm.tqdm.monitor_interval = 0
    with tqdm.tqdm(total=total, unit="block", file=sys.stderr, leave=False) as bar:

        def advance(text: str, blocks: int = 1) -> None:
            bar.set_description(text, refresh=blocks == 0)
            bar.update(blocks)

        yield advance


@contextmanager
def interruptible(outcome: Outcome) -> Iterator[None]:
    """What was measured until Ctrl-C or SIGTERM is worth having."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        outcome.interrupted = True
        outcome.notes.append("interrupted: these are the turns until then")
    finally:
        signal.signal(signal.SIGTERM, before)


def run_setups(runner: Runner, setups: list[Setup]) -> Outcome:
    """Run them, with a bar that shows how far it is, and leave nothing behind."""
    runner.prepare()
    with interruptible(runner.outcome), progress(runner.total(setups)) as advance:
        runner.run_all(setups, advance)
    return runner.outcome
