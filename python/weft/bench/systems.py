# SPDX-License-Identifier: Apache-2.0
"""What a system is, the families of them, and how their ranks are built and started."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class System:
    """One system with one setting. Systems that share a `job` share its processes."""

    name: str
    family: str
    kind: str = "installed"  # "installed", "best" or "yield"
    pages: str = "4k"  # of the user's buffers: "4k" or "thp"
    env: dict[str, str] = field(default_factory=dict, hash=False)
    about: str = ""
    only_op: str | None = None  # a setting that speaks of one operation
    for_large: bool = False  # a "best" setting that matters where messages are long

    @property
    def job(self) -> str:
        """weft needs no settings of its own for huge pages: both kinds run in one job."""
        return self.name.removesuffix("-thp")

    @property
    def imports_torch(self) -> bool:
        """Starts slowly, then."""
        return FAMILIES[self.family].find is find_torch


@dataclass(frozen=True)
class Tools:
    """How to compile for a family and start it. `missing` says why it cannot take part."""

    compiler: str | None = None
    launcher: str | None = None
    hydra: bool = False  # the launcher is MPICH's
    missing: str | None = None


def _output(command: list[str], text: str = "", env: dict[str, str] | None = None) -> str:
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
class _Mpi:
    """An MPI is what its header and its launcher say it is, whatever the programs are called."""

    name: str
    macro: str
    mark: str
    launchers: tuple[str, ...]

    def find_launcher(self) -> str | None:
        return _find(self.launchers, lambda path: self.mark in _output([path, "--version"]))

    def find(self) -> Tools:
        dump = ["-E", "-dM", "-x", "c", "-"]
        compiler = _find(
            (f"mpicc.{self.name}", "mpicc"),
            lambda path: f"#define {self.macro} " in _output([path, *dump], "#include <mpi.h>\n"),
        )
        if compiler is None:
            return Tools(missing="no mpicc of it found")
        launcher = self.find_launcher()
        if launcher is None:
            return Tools(missing="no mpirun of it found")
        return Tools(compiler, launcher, self is _MPICH)


_OPENMPI = _Mpi("openmpi", "OPEN_MPI", "open-mpi.org", ("mpirun.openmpi", "mpirun", "mpiexec"))
_MPICH = _Mpi(
    "mpich", "MPICH_VERSION", "HYDRA", ("mpiexec.hydra", "mpirun.mpich", "mpirun", "mpiexec")
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
    said = _output([sys.executable, "-P", "-c", ask], env=env)
    if not said or "Traceback" in said:
        return Tools(missing="mpi4py finds no MPI library")
    mpi = _OPENMPI if "Open MPI" in said else _MPICH
    launcher, compiler = mpi.find_launcher(), find_compiler().compiler
    if launcher is None or compiler is None:
        return Tools(missing=f"no mpirun of {mpi.name}, which mpi4py uses")
    return Tools(compiler, launcher, mpi is _MPICH)


@dataclass(frozen=True)
class Family:
    """What ranks are made of.

    driver: what `build` compiles for them: a program, or the page that ranks in Python meet on
    find:   looks for what they need on this machine
    python: of ranks in Python, what the interpreter is told to run
    """

    driver: str
    find: Callable[[], Tools]
    python: tuple[str, ...] = ()


def _module(name: str, *words: str) -> tuple[str, ...]:
    return ("-m", f"weft.bench.{name}", *words)


FAMILIES = {
    "weft": Family("weft", find_compiler),
    "openmpi": Family("openmpi", _OPENMPI.find),
    "mpich": Family("mpich", _MPICH.find),
    "limit": Family("limit", find_compiler),
    # A script, so that it imports nothing but torch.
    "gloo": Family(
        "page", find_torch, (str(Path(__file__).parent / "collectives" / "gloo_rank.py"),)
    ),
    "torch-weft": Family("page", find_torch, _module("torch.rank", "weft")),
    "torch-gloo": Family("page", find_torch, _module("torch.rank", "gloo")),
    "torch-noop": Family("page", find_torch, _module("torch.rank", "noop")),
    "mpi-weft": Family("page", find_torch, _module("mpi.rank", "weft")),
    "mpi-gloo": Family("page", find_torch, _module("mpi.rank", "gloo")),
    "mpi4py": Family("page", find_mpi4py, _module("mpi.rank", "mpi4py")),
}


def find_tools(family: str) -> Tools:
    """Look for what `family` needs on this machine."""
    return FAMILIES[family].find()


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
