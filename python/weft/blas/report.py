# SPDX-License-Identifier: Apache-2.0
"""What the processes of a program said about their BLAS calls: read, and told to a person.

The lines are written by the preloaded library (python/ext/blas/report.c) as things happen,
so that a process that was killed has still said what it did until then.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass, field
from pathlib import Path

from .libraries import Library

BLAS = re.compile(r"[sdcz](gemm|gemv|trsm|axpy|copy|scal|dot[uc]?)_")
SHOWN = 8  # names in a sentence; --json has all of them


@dataclass
class Process:
    """One process of the program that called BLAS or loaded PyTorch."""

    pid: int
    rank: str = ""
    name: str = ""
    torch: str | None = None  # the libtorch_cpu.so it loaded
    calls: dict[str, str] = field(default_factory=dict)  # routine: file that served it
    bindings: dict[str, str] = field(default_factory=dict)  # symbol of libtorch_cpu.so: file
    rebound: dict[str, str] = field(default_factory=dict)  # those that lead to the library
    operators: list[str] = field(default_factory=list)  # of PyTorch, registered in Python
    failures: list[str] = field(default_factory=list)
    ended: bool = False  # with its exit handlers, not killed

    @property
    def kept(self) -> list[str]:
        return [name for name in self.bindings if name not in self.rebound]

    def served(self) -> bool:
        """Whether calls of PyTorch reach the library."""
        return bool(self.rebound or self.operators)


def _same(one: str, other: str) -> bool:
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def read(path: Path, library: Library) -> list[Process]:
    """The processes in the order in which they first spoke."""
    found: dict[int, Process] = {}
    for line in path.read_text(errors="replace").splitlines():
        kind, *words = line.split("\t")
        if not words or not words[0].isdecimal():
            continue
        pid = int(words[0])
        _take(found.setdefault(pid, Process(pid)), kind, words[1:], library)
    return list(found.values())


def _take(process: Process, kind: str, words: list[str], library: Library) -> None:
    match kind, words:
        case "process", [rank, name]:
            process.rank, process.name, process.ended = rank, name, False
        case "torch", [file]:
            process.torch = file
        case "call", [routine, _, file]:
            process.calls[routine] = file
        case "bind", [symbol, file, whose]:
            process.bindings[symbol] = file
            # LAPACK does not come by way of the preloaded library.
            if whose == "library" or _same(file, library.file):
                process.rebound[symbol] = file
        case "operators", names:
            process.operators = names
        case "failure", [text]:
            process.failures.append(text)
        case "end", []:
            process.ended = True


def as_json(library: Library, method: str, command: list[str], status: int, said: list[Process]):
    return {
        "library": vars(library),
        "method": method,
        "program": command,
        "status": status,
        "processes": [
            {
                "pid": process.pid,
                "rank": process.rank or None,
                "name": process.name,
                "torch": process.torch,
                "called": process.calls,
                "rebound": process.rebound,
                "not_rebound": process.kept,
                "operators": process.operators,
                "failures": process.failures,
                "ended": process.ended,
            }
            for process in said
        ],
    }


def summary(library: Library, status: int, said: list[Process], onednn: bool = True) -> str:
    """One paragraph: who served what, and what stayed with PyTorch.

    A launcher imports PyTorch as well: where some processes called BLAS, it is about these.
    """
    with_torch = [process for process in said if process.torch]
    with_torch = [process for process in with_torch if process.calls] or with_torch
    if not with_torch:
        return _without_torch(library, status, said)
    served = [process for process in with_torch if process.served()]
    if not served:
        return (
            f"{library.name} served nothing: none of the symbols of {with_torch[0].torch} was "
            "rebound in the program, though they were in a trial; does it clear LD_PRELOAD?"
        )
    parts = (_served(library, served), _calls(served), *_rest(served, onednn))
    return " ".join(filter(None, parts))


def _without_torch(library: Library, status: int, said: list[Process]) -> str:
    if said:
        names = _some(sorted({name for process in said for name in process.calls}))
        return f"no process loaded PyTorch; others called {names} of {library.name}"
    if status > 128:
        ended = _signal(status)
        return (
            f"no process made a BLAS call until the program was ended by {ended}, so "
            f"{library.name} served nothing; whether PyTorch was loaded is not known"
        )
    return f"no process loaded PyTorch, so {library.name} served nothing"


def _signal(status: int) -> str:
    try:
        return signal.Signals(status - 128).name
    except ValueError:
        return f"exit status {status}"


def _served(library: Library, served: list[Process]) -> str:
    name = os.path.basename(library.name)
    version = f" {library.version}" if library.version else ""
    ranks = sorted({process.rank for process in served if process.rank}, key=lambda r: (len(r), r))
    where = "1 process" if len(served) == 1 else f"{len(served)} processes"
    if ranks:
        where += f" (rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)})"
    if served[0].operators:
        how = f"{len(served[0].operators)} operators of PyTorch run on it"
    else:
        names = served[0].rebound
        how = f"{len(names)} symbols of libtorch_cpu.so are bound to it"
    return f"{name}{version}, {library.file}, served PyTorch in {where}: {how}."


def _calls(served: list[Process]) -> str:
    called = list(dict.fromkeys(name for process in served for name in process.calls))
    text = f"Called: {_some(called)}." if called else "None of its routines was called."
    killed = [process for process in served if not process.ended]
    if killed:
        pids = ", ".join(str(process.pid) for process in killed[:SHOWN])
        text += f" Not at its end when it stopped, so this may not be all: process {pids}."
    return text


def _rest(served: list[Process], onednn: bool) -> list[str]:
    """What did not go to the library."""
    kept = [] if served[0].operators else served[0].kept
    groups: dict[str, list[str]] = {}
    for name in kept:
        groups.setdefault(_group(name), []).append(name)
    parts = [f"{what} ({_some(names, 3)})" for what, names in groups.items()]
    failures = list(dict.fromkeys(text for process in served for text in process.failures))
    return [
        f"Not rebound: {'; '.join(parts)}." if parts else "",
        "oneDNN, which computes most convolutions, is PyTorch's own." if onednn else "",
        *(f"FAILED: {failure}." for failure in failures),
    ]


def _group(name: str) -> str:
    if name.startswith("cblas_"):
        return "batched and packed products"
    return "BLAS that the library lacks" if BLAS.fullmatch(name) else "LAPACK"


def _some(names: list[str], shown: int = SHOWN) -> str:
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")
