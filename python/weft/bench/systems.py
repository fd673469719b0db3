# SPDX-License-Identifier: Apache-2.0
"""What a system is, what its ranks are made of, and how to find that and start them.

The systems of a benchmark are the rows of its own table, `SYSTEMS`.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from .build import PAGE, Driver


@dataclass(frozen=True)
class Tools:
    """How to compile for a family and start it. `missing` says why it cannot take part."""

    compiler: str | None = None
    launcher: str | None = None
    hydra: bool = False  # the launcher is MPICH's
    missing: str | None = None


def output(command: list[str], text: str = "", env: dict[str, str] | None = None) -> str:
    """What a program prints; nothing if it does not run."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=20, check=False, env=env
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _find(names: tuple[str, ...], belongs) -> str | None:
    for name in names:
        path = shutil.which(name)
        if path is not None and belongs(path):
            return path
    return None


@dataclass(frozen=True)
class Mpi:
    """An MPI is what its header and its launcher say it is, whatever the programs are called."""

    name: str
    macro: str
    version: str  # a part of what its launcher prints for --version
    launchers: tuple[str, ...]
    hydra: bool = False

    def find_launcher(self) -> str | None:
        return _find(self.launchers, lambda path: self.version in output([path, "--version"]))

    def find(self) -> Tools:
        dump = ["-E", "-dM", "-x", "c", "-"]
        compiler = _find(
            (f"mpicc.{self.name}", "mpicc"),
            lambda path: f"#define {self.macro} " in output([path, *dump], "#include <mpi.h>\n"),
        )
        if compiler is None:
            return Tools(missing="no mpicc of it found")
        launcher = self.find_launcher()
        if launcher is None:
            return Tools(missing="no mpirun of it found")
        return Tools(compiler, launcher, self.hydra)


OPENMPI = Mpi("openmpi", "OPEN_MPI", "open-mpi.org", ("mpirun.openmpi", "mpirun", "mpiexec"))
MPICH = Mpi(
    "mpich",
    "MPICH_VERSION",
    "HYDRA",
    ("mpiexec.hydra", "mpirun.mpich", "mpirun", "mpiexec"),
    hydra=True,
)


def find_compiler() -> Tools:
    """The C compiler of this machine."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    return Tools(compiler) if compiler is not None else Tools(missing="no C compiler found")


def find_torch() -> Tools:
    """What ranks need that import torch."""
    tools = find_compiler()
    if tools.missing is None and importlib.util.find_spec("torch") is None:
        return Tools(missing="torch is not installed")
    return tools


def find_mpi4py() -> Tools:
    """How to start ranks that use mpi4py: with the launcher of the MPI it is bound to."""
    if importlib.util.find_spec("mpi4py") is None or importlib.util.find_spec("numpy") is None:
        return Tools(missing="mpi4py and numpy are not installed")
    ask = "from mpi4py import MPI; print(MPI.Get_library_version())"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI"))}
    said = output([sys.executable, "-P", "-c", ask], env=env)
    if not said or "Traceback" in said:
        return Tools(missing="mpi4py finds no MPI library")
    mpi = OPENMPI if "Open MPI" in said else MPICH
    launcher, compiler = mpi.find_launcher(), find_compiler().compiler
    if launcher is None or compiler is None:
        return Tools(missing=f"no mpirun of {mpi.name}, which mpi4py uses")
    return Tools(compiler, launcher, mpi.hydra)


@dataclass(frozen=True)
class Family:
    """What ranks are made of, for the systems that differ in settings only.

    driver: what `build` compiles for them: a program, or the page that ranks in Python meet on
    find:   looks for what they need on this machine
    python: of ranks in Python, what the interpreter is told to run
    ranks:  it has some; those without tell the limit of something
    """

    name: str
    driver: Driver
    find: Callable[[], Tools]
    python: tuple[str, ...] = ()
    ranks: bool = True


def python_family(name: str, module: str, *words: str, find=find_torch) -> Family:
    """Ranks in Python: a module of this package, told who it is."""
    return Family(name, PAGE, find, ("-m", f"weft.bench.{module}", *words))


@dataclass(frozen=True)
class Line:
    """How a system is drawn in plots, in matplotlib's words."""

    label: str
    color: str
    marker: str = ""
    linestyle: str = "-"
    linewidth: float = 1.6
    zorder: int = 2


# The colours can be told apart by those who do not see all of them.
WEFT_LINE = Line("weft", "#d55e00", "o", linewidth=2.4, zorder=3)
GLOO_LINE = Line("gloo", "#cc79a7", "D")
FREE_GLOO_LINE = Line("gloo, not pinned", "#cc79a7", "d", "--")


@dataclass(frozen=True)
class System:
    """One system with one setting: a row of its benchmark's table."""

    name: str
    family: Family
    kind: str = "installed"  # "installed", "arena", "best" or "yield"
    # Of the user's buffers: "4k" or "thp", of private memory, or "arena", the library's own.
    pages: str = "4k"
    env: dict[str, str] = field(default_factory=dict, hash=False)
    about: str = ""
    lacks: frozenset[str] = frozenset()  # operations that it does not have
    only_op: str | None = None  # it speaks of one operation
    in_quick: frozenset[str] | None = None  # what a quick run measures of it, if not all
    for_large: bool = False  # a "best" setting that matters where messages are long
    at_most: float = math.inf  # bytes of a case that it has something to say about
    in_crowd: bool = False  # takes part when ranks share cores
    runs_in: str | None = None  # the system whose processes it shares
    asked: str | None = None  # what its driver is asked for, if not for the operation
    checked: bool = True  # has results
    line: Line | None = None  # how it is drawn, if at all

    @property
    def job(self) -> str:
        """The name of its processes."""
        return self.runs_in or self.name

    def has(self, op: str, quick: bool = False) -> bool:
        """Is `op` measured with it, in a quick run or in a full one?"""
        if op in self.lacks or self.only_op not in (None, op):
            return False
        return not quick or self.in_quick is None or op in self.in_quick

    @property
    def imports_torch(self) -> bool:
        """Starts slowly, then."""
        return self.family.find is find_torch


def launch_command(tools: Tools, ranks: int) -> list[str]:
    """What starts all ranks of an MPI job, before the program's own name."""
    assert tools.launcher is not None
    if tools.hydra:
        return [tools.launcher, "-n", str(ranks)]
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    # Open MPI looks for ssh even if all ranks are here, unless told that they are.
    here = [] if shutil.which("ssh") else ["--mca", "plm", "isolated"]
    # The driver pins itself; mpirun must neither bind it nor count slots.
    return [
        tools.launcher,
        *as_root,
        *here,
        "--oversubscribe",
        "--bind-to",
        "none",
        "-n",
        str(ranks),
    ]
