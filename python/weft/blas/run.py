# SPDX-License-Identifier: Apache-2.0
"""Run a program so that a BLAS library of the user's choice serves PyTorch's calls in it.

Two ways. "preload" puts a library in front of PyTorch's own routines; it works where
libtorch_cpu.so calls them through the loader. "kernels" registers operators of PyTorch, in
Python, that call the library; it works everywhere, and is slower on small matrices. A trial
before the program says which of them does work, so that nothing is refused after an hour.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import libraries, report
from .libraries import SHIM, Library, Refused

HOOK = Path(__file__).with_name("hook")
SECONDS = 120  # of a trial: importing PyTorch from a cold disk takes long

# Loads what `import torch` would load, calls sgemm_, and leaves the rest to the report. It
# runs under whichever Python the program has, so it says everything in old words.
TRIAL = """
import sys
sys.path[:] = [place for place in sys.path if place]
import ctypes, importlib.util, os
found = importlib.util.find_spec("torch")
if found is None or not found.submodule_search_locations:
    sys.exit(0)
file = os.path.join(list(found.submodule_search_locations)[0], "lib", "libtorch_cpu.so")
try:
    ctypes.CDLL(file)
except OSError:
    import torch
one, x = ctypes.byref(ctypes.c_int(1)), ctypes.byref(ctypes.c_float(1))
ctypes.CDLL(None).sgemm_(b"N", b"N", one, one, one, x, x, one, x, one, x, x, one)
"""
KERNELS_TRIAL = """
import sys
sys.path[:] = [place for place in sys.path if place]
import importlib.util
if importlib.util.find_spec("torch") is None:
    sys.exit(0)
import torch
torch.mm(torch.ones(2, 2), torch.ones(2, 2))
"""


@dataclass(frozen=True)
class Options:
    """How a program is run."""

    method: str = "auto"
    threads: int | None = None
    lapack: bool = False
    onednn: bool = True


@dataclass
class Done:
    """How a run ended."""

    status: int
    method: str
    processes: list[report.Process]


def environment(library: Library, method: str, options: Options) -> dict[str, str]:
    """What the program's environment gets; Refused if the library cannot serve it."""
    given = libraries.environment(library, options.threads, options.lapack)
    hooked = method == "kernels" or not options.onednn
    if method == "kernels":
        if options.lapack:
            raise Refused("--lapack needs --method preload")
        del given["LD_PRELOAD"]
        given["WEFTBLAS_KERNELS"] = str(SHIM)
    if not options.onednn:
        given["WEFTBLAS_ONEDNN"] = "0"
    if hooked:
        paths = filter(None, (str(HOOK), os.environ.get("PYTHONPATH")))
        given["PYTHONPATH"] = os.pathsep.join(paths)
    return given


def run(
    library: Library,
    command: list[str],
    start: Callable[[list[str], Mapping[str, str]], int],
    options: Options,
) -> Done:
    """Try, refuse or start the program (`start` returns its exit status), and read what it said."""
    method, given = _choose(library, interpreter(command), options)
    with _report_file() as file:
        given["WEFTBLAS_REPORT"] = str(file)
        status = start(command, {**os.environ, **given})
        return Done(status, method, report.read(file, library))


def _choose(library: Library, python: str, options: Options) -> tuple[str, dict[str, str]]:
    """The first way that works in a trial, with its environment; Refused if there is none."""
    methods = [options.method]
    if options.method == "auto":
        methods = ["preload"] if options.lapack else ["preload", "kernels"]
    refused = ""
    for method in methods:
        given = environment(library, method, options)
        why = trial(library, python, method, given)
        if why is None:
            return method, given
        refused = refused or why
    raise Refused(refused)


def trial(library: Library, python: str, method: str, given: Mapping[str, str]) -> str | None:
    """Why the library would not serve PyTorch under this Python, or None.

    A Python without PyTorch is no reason: the program may bring another, or do without.
    """
    code = TRIAL if method == "preload" else KERNELS_TRIAL
    with _report_file() as file:
        env = {**os.environ, **given, "WEFTBLAS_REPORT": str(file)}
        try:
            done = subprocess.run(
                [python, "-c", code],
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"cannot try {library.name} with {python}: {error}"
        said = report.read(file, library)
    if done.returncode != 0:
        last = " ".join(done.stderr.strip().splitlines()[-1:])
        return f"{library.name} does not work with the PyTorch of {python}: {last or 'it crashed'}"
    for process in said:
        if process.failures:
            return f"{library.name} cannot be loaded: {process.failures[0]}"
        if process.torch and not process.served():
            return (
                f"none of the BLAS symbols of {process.torch} would be bound to {library.name}: "
                "they are not called through the loader; try --method kernels"
            )
    return None


def interpreter(command: list[str]) -> str:
    """The Python that a program runs on, as far as its first word says; else our own."""
    name = os.path.basename(command[0])
    if re.fullmatch(r"python[\d.]*", name):
        return command[0]
    try:
        with open(command[0], "rb") as file:
            first = file.readline(1000).decode(errors="replace")
    except OSError:
        return sys.executable
    words = first[2:].split() if first.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [shutil.which(word) or "" for word in words[1:] if not word.startswith("-")]
    if words and re.fullmatch(r"python[\d.]*", os.path.basename(words[0])):
        return words[0]
    return sys.executable


@contextmanager
def _report_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="weft-blas-") as folder:
        file = Path(folder, "report")
        file.touch()
        yield file
