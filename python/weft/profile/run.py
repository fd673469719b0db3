# SPDX-License-Identifier: Apache-2.0
"""Run a program under one or several tools and put what they found together."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..cli.common import run_program
from . import ProfileError, elf, ldprofile, operators, page, perf, processes, trace
from .attribute import attribute, by_operator
from .result import Result
from .samples import (
    JIT,
    UNKNOWN,
    Frame,
    Sample,
    Spent,
    by_function,
    by_library,
    is_library,
    nameless,
    within,
)

TOOLS = ("auto", "perf", "sprof", "torch")
_NAMELESS = 0.01  # of all time: less is not worth a line


@dataclass(frozen=True)
class Options:
    """What to look at, and how."""

    tool: str = "auto"
    library: str | None = None
    rate: int | None = None
    stacks: str = "dwarf"
    delay: float = 0.0
    seconds: float | None = None


class _Run:
    """One run of the program, with a folder for what the tools write meanwhile."""

    def __init__(self, program: Sequence[str], options: Options, folder: Path) -> None:
        self.program, self.options, self.folder = list(program), options, folder
        self.env: dict[str, str] = dict(os.environ)
        self.watch = processes.Watch(self._each)
        self.looks: list[Callable[[], None]] = []
        self.result = Result(self.program, [], options.library)
        self.ran = False

    def _each(self) -> None:
        for look in self.looks:
            look()

    def start(self, command: Sequence[str]) -> None:
        self.ran = True
        with self.watch:
            self.result.status = run_program(command, self.env)


def profile(program: Sequence[str], options: Options, typed: Sequence[str] = ()) -> Result:
    """Run the program. ProfileError if that is not tried; a problem afterwards is in the result.

    `typed` is the program as a person wrote it.
    """
    with tempfile.TemporaryDirectory(prefix="weft-profile-") as name:
        run = _Run(program, options, Path(name))
        run.result.program = list(typed or program)
        way = {"sprof": _with_loader, "torch": _with_operators}.get(options.tool, _with_perf)
        try:
            way(run)
        except ProfileError as error:
            if not run.ran:
                raise
            run.result.problem = str(error)
        return run.result


def _with_perf(run: _Run) -> None:
    """Samples, and operators as well unless perf alone was asked for."""
    options = run.options
    both = options.tool == "auto"
    try:
        recorder = perf.find(options.stacks, options.rate)
    except ProfileError as error:
        if not both:
            raise
        _without_perf(run, str(error))
        return
    data = run.folder / "perf.data"
    control = perf.Control(run.folder, data, options.delay, options.seconds)
    run.looks.append(control.look)
    # oneDNN makes its kernels as the program runs, and tells their names only if asked to.
    run.env.setdefault("ONEDNN_JIT_PROFILE", "2")
    if both:
        _hook(run)
    result = run.result
    result.epoch = time.time() - time.monotonic()
    began = time.time()
    try:
        run.start(perf.command(recorder, control, data, run.program))
    finally:
        control.close()
    result.tools.append(f"perf ({recorder.event}, {recorder.rate} a second)")
    if control.ended:
        result.notes.append(control.ended)
    if not data.exists() or not data.stat().st_size:
        raise ProfileError("perf wrote nothing")
    samples = perf.read(recorder, data)
    _forget_maps({sample.pid for sample in samples}, began)
    result.has_stacks = recorder.stacks != "none"
    if both:
        _add_operators(run)
        samples = attribute(samples, result.events, result.epoch)
    _count(result, samples)
    _label(run)


def _without_perf(run: _Run, why: str) -> None:
    """What is left for --tool auto where perf cannot record."""
    if run.options.library:
        _with_loader(run)
    else:
        _with_operators(run)
    run.result.notes.append(why.removesuffix("; or --tool sprof or torch"))


def _count(result: Result, samples: list[Sample]) -> None:
    """Fill in the tables of libraries and functions."""
    result.seconds = sum(sample.seconds for sample in samples)
    if not samples:
        raise ProfileError("not one sample was taken: the program used too little CPU time")
    if result.library is not None:
        kept = within(samples, result.library)
        if not kept:
            seen = [name for name in by_library(samples) if name not in (UNKNOWN, JIT)]
            raise ProfileError(
                f"no time was spent in {result.library}; it was spent in {', '.join(seen[:8])}"
            )
        samples = kept
    result.samples = samples
    libraries, functions = by_library(samples), by_function(samples)
    if result.library is not None:
        libraries = {n: s for n, s in libraries.items() if is_library(n, result.library)}
        functions = {f: s for f, s in functions.items() if is_library(f.library, result.library)}
        _keep_operators(result)
    result.libraries, result.functions = libraries, functions
    result.inside = by_operator(samples)
    for name, unknown, own in nameless(samples):
        if name in libraries and own > _NAMELESS * result.seconds:
            result.notes.append(
                f"{name} has no names for {100 * unknown / own:.0f} % of its time (stripped): "
                "install its debug symbols to see its functions"
            )


def _keep_operators(result: Result) -> None:
    """Only those in which the library was."""
    names = {name for sample in result.samples for name in sample.operators}
    result.operators = [op for op in result.operators if op.name in names]
    result.events = [event for event in result.events if event["name"] in names]


def _forget_maps(pids: set[int], began: float) -> None:
    """Remove the files with the names of generated code that this program wrote."""
    for pid in pids:
        path = Path(f"/tmp/perf-{pid}.map")
        try:
            if path.stat().st_mtime >= began - 1:
                path.unlink()
        except OSError:
            continue


def _hook(run: _Run) -> None:
    folder = run.folder / "operators"
    folder.mkdir()
    run.env = operators.environment(folder, run.options.seconds, run.env)


def _add_operators(run: _Run) -> None:
    found = operators.read(run.folder / "operators")
    run.watch.ranks.update(found.ranks)
    for pid, command in found.commands.items():
        run.watch.commands.setdefault(pid, command)
    result = run.result
    result.events = found.events
    result.operators = operators.operators(found.events)
    result.notes += found.notes
    if result.operators:
        result.tools.append("torch.profiler")


def _with_operators(run: _Run) -> None:
    if run.options.library:
        raise ProfileError("operators belong to no library: --lib needs --tool perf or sprof")
    _hook(run)
    run.start(run.program)
    _add_operators(run)
    _label(run)
    if not run.result.operators:
        raise ProfileError(
            "no operator was recorded: no process imported torch and ended by itself, or Python "
            "was started with -I, -E or -S"
        )


def _with_loader(run: _Run) -> None:
    """One library, by glibc's LD_PROFILE."""
    wanted = run.options.library or run.env.get("LD_PROFILE")
    if not wanted:
        raise ProfileError("sprof needs a library: --lib NAME, or LD_PROFILE in the environment")
    library = ldprofile.find(wanted, run.env)
    name = ldprofile.soname(library)
    run.env = ldprofile.environment(library, run.folder, run.env)
    loaded = _Loaded(run.watch, library)
    run.looks.append(loaded.look)
    run.start(run.program)
    result = run.result
    result.library = name
    result.tools.append("LD_PROFILE")
    counted = ldprofile.read(library, run.folder)
    if counted is None or not (counted.ticks or counted.arcs):
        why = ldprofile.why_nothing(library, run.env, counted is not None or loaded.seen)
        raise ProfileError(why)
    _count_loader(run, library, counted)
    _label(run)


def _count_loader(run: _Run, library: elf.Object, counted: ldprofile.Histogram) -> None:
    result, name = run.result, ldprofile.soname(library)
    counts = ldprofile.counts(counted, library)
    result.calls = counts.calls
    result.seconds = sum(counts.seconds.values())
    if counts.seconds:
        result.libraries = {name: Spent(result.seconds, result.seconds)}
    for function, time_ in sorted(counts.seconds.items(), key=lambda item: -item[1]):
        result.functions[Frame(function, name)] = Spent(time_, time_)
    if not counts.calls:
        result.notes.append(
            f"{name} was called through pointers only (dlsym, ctypes, -fno-plt), which the loader "
            "does not count: there are times but no calls"
        )
    if library.stripped:
        result.notes.append(
            f"{name} is stripped: what has no exported name is {UNKNOWN} or its neighbour's"
        )


class _Loaded:
    """Was a library seen in the memory of any process?"""

    def __init__(self, watch: processes.Watch, library: elf.Object) -> None:
        self._watch, self._file, self.seen = watch, os.path.realpath(library.file), False

    def look(self) -> None:
        for pid in [] if self.seen else list(self._watch.commands):
            try:
                self.seen |= self._file in Path(f"/proc/{pid}/maps").read_text(errors="replace")
            except OSError:
                continue


def _label(run: _Run) -> None:
    result = run.result
    pids = {sample.pid for sample in result.samples}
    pids |= {event["pid"] for event in result.events if isinstance(event["pid"], int)}
    result.ranks = {pid: rank for pid, rank in run.watch.ranks.items() if pid in pids}
    result.labels = processes.labels(pids, result.ranks, run.watch.commands)


def default_folder() -> Path:
    """weft-profile-<date>, or that with a number if there is one."""
    name = time.strftime("weft-profile-%Y-%m-%d-%H%M%S")
    path, n = Path(name), 1
    while path.exists():
        n += 1
        path = Path(f"{name}-{n}")
    return path


def unwritable(folder: Path) -> str | None:
    """Why files cannot be written into the folder, which need not be there yet."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return f"{there} is not a folder"
    return None if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written to"


def write(result: Result, folder: Path, data: Mapping[str, object]) -> list[Path]:
    """Write the page, the trace and the data; a new folder is there in full or not at all."""
    texts = {"profile.html": page.render(result)}
    if result.samples or result.events:
        texts["trace.json"] = json.dumps(trace.render(result), separators=(",", ":"))
    files = [folder / name for name in [*texts, "profile.json"]]
    texts["profile.json"] = json.dumps({**data, "files": [*map(str, files)]}, indent=1) + "\n"
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
    except OSError as error:
        if new:
            shutil.rmtree(folder, ignore_errors=True)
        raise ProfileError(f"{folder}: {error.strerror}") from error
    return files
