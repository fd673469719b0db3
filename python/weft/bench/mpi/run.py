# SPDX-License-Identifier: Apache-2.0
"""`weft bench mpi`: communication with gradients, against mpi4py and torch.distributed.nn on gloo.

The rounds are those of `collectives`. Two floors take part: torch's own `clone`, a node of the
autograd graph in C++ that communicates nothing, and weft's own allreduce without torch.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..collectives.run import Options, Outcome, Setup, cores_here, run_setups
from ..in_turn import CheckedInTurn
from ..job import Job, Program
from ..results import Case
from ..systems import System, Tools, _find, find_tools, launch_command

_MIB = 1 << 20
RANKS = 2


class InWeft(System):
    """Runs in weft's ranks: the same process, with the same memory behind it."""

    @property
    def job(self) -> str:
        return "weft"


SYSTEMS = (
    System("weft", "torch-mpi-weft", about="weft.mpi"),
    System("mpi4py", "mpi4py", about="kept buffers, without gradients"),
    System("gloo", "torch-mpi-gloo", about="torch.distributed.nn.functional"),
    # On one core its threads have to take turns; on a busy machine this serves them better.
    System("gloo-free", "torch-mpi-gloo", env={"BENCH_FREE": "1"}, about="the same, not pinned"),
    InWeft("clone", "torch-mpi-weft", about="torch's node that only clones"),
    # What forward and backward have to touch: two sources and two results.
    InWeft("kept", "torch-mpi-weft", about="two of the core's allreduces on four kept buffers"),
    System("core", "weft", about="weft's allreduce from C, in place on one kept buffer"),
)
NAMES = tuple(system.name for system in SYSTEMS)
GLOOS = ("gloo", "gloo-free")

# The bytes of a rank's tensor, and who takes part.
OPERATIONS: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "forward": ((4, 4 * _MIB, 64 * _MIB), tuple(name for name in NAMES if name != "kept")),
    "forward_backward": ((4, 4 * _MIB, 64 * _MIB), NAMES),
    "alltoall": ((8,), ("weft", "mpi4py")),
    "alltoall_grad": ((8,), ("weft",)),
    "ring": ((4,), ("weft", "mpi4py")),
    "ring_grad": ((4,), ("weft",)),
}
ABOUT = {
    "forward": "Allreduce, recorded",
    "forward_backward": "Allreduce and y.backward(g); two Allreduces of mpi4py and of the core",
    "alltoall": "Alltoall of 2 floats, not recorded",
    "alltoall_grad": "Alltoall of 2 floats, recorded",
    "ring": "Isend, Irecv, Wait, Wait, not recorded",
    "ring_grad": "Isend, Irecv, Wait, Wait, recorded",
}
CALLS_OF_CORE = {"forward": 1, "forward_backward": 2}


def find_mpi4py() -> Tools:
    """How to start ranks that use mpi4py: with the launcher of the MPI it is bound to."""
    if importlib.util.find_spec("mpi4py") is None or importlib.util.find_spec("numpy") is None:
        return Tools(missing="mpi4py and numpy are not installed")
    ask = "from mpi4py import MPI; print(MPI.Get_library_version())"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI"))}
    said = subprocess.run(
        [sys.executable, "-P", "-c", ask], capture_output=True, text=True, check=False, env=env
    )
    if said.returncode != 0:
        return Tools(missing="mpi4py finds no MPI library")
    kind, mark = ("openmpi", "open-mpi.org") if "Open MPI" in said.stdout else ("mpich", "HYDRA")
    names = (f"mpirun.{kind}", "mpiexec.hydra", "mpirun", "mpiexec")
    launcher = _find(names, lambda path: mark in _version(path))
    compiler = find_tools("gloo" if importlib.util.find_spec("torch") else "weft").compiler
    if launcher is None or compiler is None:
        return Tools(missing=f"no mpirun of {kind}, which mpi4py uses")
    return Tools(compiler, launcher)


def _version(launcher: str) -> str:
    said = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
    return said.stdout + said.stderr


class MpiJob(Job):
    """The ranks are Python; those of mpi4py are started by its mpirun."""

    def _commands(self, program: Program, serve: list[str], folder: Path):
        if self.system.family == "weft":
            yield from super()._commands(program, serve, folder)
            return
        name = self.system.family.removeprefix("torch-mpi-")
        meeting = str(folder / f"{self.system.job}.store")
        command = [sys.executable, "-P", "-m", "weft.bench.mpi.rank", name]
        command += [str(program.path), meeting, *serve]
        base = os.environ | self.system.env
        if program.tools.launcher is not None:
            kind = "mpich" if "HYDRA" in _version(program.tools.launcher) else "openmpi"
            yield [*launch_command(kind, program.tools, self.ranks), *command], base
            return
        for rank in range(self.ranks):
            more = {"BENCH_RANK": str(rank), "BENCH_RANKS": str(self.ranks)}
            yield command, base | more | {"GLOO_SOCKET_IFNAME": "lo"}


def takes_case(system: System, case: Case, quick: bool) -> bool:
    """A quick run leaves to the full one what no mark needs."""
    if system.name not in OPERATIONS[case.op][1]:
        return False
    if not quick or case.op not in CALLS_OF_CORE:
        return True
    if case.bytes > 4:
        return case.op == "forward_backward" and system.name in ("weft", "kept", "core")
    return system.name not in ("mpi4py", "kept")


def plan(options: Options, cores: Sequence[int]) -> list[Setup]:
    """One setup: two ranks."""
    setups = []
    for ranks in options.ranks or (RANKS,):
        some = tuple(cores[:ranks])
        cases = tuple(
            Case(op, size, ranks, len(some))
            for op in options.ops or tuple(OPERATIONS)
            for size in _sizes(op, options)
        )
        systems = tuple(system for system in SYSTEMS if system.name in options.families)
        setups.append(Setup(ranks, some, cases, systems))
    return setups


def _sizes(op: str, options: Options) -> tuple[int, ...]:
    if options.sizes is not None and op in CALLS_OF_CORE:
        return options.sizes
    return OPERATIONS[op][0]


class MpiRunner(CheckedInTurn):
    """The same rounds with other systems and other names."""

    def prepare(self) -> None:
        """Only the page the ranks meet on and the C driver are compiled."""
        for system in SYSTEMS:
            if system.name not in self._options.families:
                continue
            tools = find_mpi4py() if system.name == "mpi4py" else find_tools(system.family)
            kind = "weft" if system.name == "core" else "gloo"
            self._build(system.name, system.family, kind, tools)

    def _make(self, setup: Setup, system: System, folder: Path) -> Job:
        return MpiJob(system, self._programs[system.family], setup.ranks, setup.cores, folder)

    def _cases_in_memory(self, setup: Setup, systems: int) -> list[Case]:
        return list(setup.cases)

    def _words(self, system: System, case: Case) -> str:
        op = "allreduce" if system.name == "core" else case.op
        op = f"{system.name}_{op}" if isinstance(system, InWeft) else op
        return f"{op} {case.bytes} {system.pages}"

    def _takes(self, system: System, case: Case) -> bool:
        return takes_case(system, case, self._options.quick)


def measure(options: Options) -> Outcome:
    """A whole run. To be called from the main thread."""
    return run_setups(MpiRunner(options), plan(options, cores_here(options.cores)))
