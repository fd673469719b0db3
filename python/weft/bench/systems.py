# SPDX-License-Identifier: Apache-2.0
"""Who takes part in a run: weft, its peers with their settings, and the machine's own limit."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass, field

FAMILIES = ("weft", "openmpi", "mpich", "gloo", "limit")

# Keep malloc's memory mapped and in huge pages, so that the temporary buffers of an MPI are not
# faulted in again at every call.
_KEEP_MEMORY = {
    "GLIBC_TUNABLES": ":".join(
        (
            f"glibc.malloc.mmap_threshold={1 << 30}",
            f"glibc.malloc.trim_threshold={4 << 30}",
            f"glibc.malloc.top_pad={64 << 20}",
            "glibc.malloc.hugetlb=1",
        )
    )
}


def _eager(limit: int) -> dict[str, str]:
    """Open MPI's shared-memory eager limit; the transport is vader up to 4.x and sm from 5.0."""
    return {
        "OMPI_MCA_btl_vader_eager_limit": str(limit),
        "OMPI_MCA_btl_sm_eager_limit": str(limit),
    }


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
        return self.family == "gloo" or self.family.startswith("torch-")


SYSTEMS = (
    System("weft", "weft", about="as installed"),
    System("openmpi", "openmpi", about="as installed"),
    System("mpich", "mpich", about="as installed"),
    System("gloo", "gloo", about="through torch.distributed"),
    System("limit", "limit", about="line hand-over, reading a peer's lines, updating memory"),
    System("weft-thp", "weft", "best", "thp", about="buffers in huge pages", for_large=True),
    System(
        "openmpi-keep",
        "openmpi",
        "best",
        "thp",
        _KEEP_MEMORY,
        "malloc keeps its memory",
        for_large=True,
    ),
    System(
        "openmpi-eager128k",
        "openmpi",
        "best",
        "thp",
        _KEEP_MEMORY | _eager(128 << 10),
        "and eager messages up to 128 KiB",
    ),
    System(
        "openmpi-alg6",
        "openmpi",
        "best",
        "thp",
        _KEEP_MEMORY
        | _eager(32 << 10)
        | {
            "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
            "OMPI_MCA_coll_tuned_allreduce_algorithm": "6",
        },
        "and eager up to 32 KiB, Rabenseifner's algorithm",
        "allreduce",
    ),
    System(
        "mpich-keep",
        "mpich",
        "best",
        "thp",
        _KEEP_MEMORY,
        "malloc keeps its memory",
        for_large=True,
    ),
    System(
        "mpich-eager",
        "mpich",
        "best",
        "thp",
        _KEEP_MEMORY | {"UCX_RNDV_THRESH": "inf"},
        "and no rendezvous",
    ),
    System(
        "mpich-posix",
        "mpich",
        "best",
        "thp",
        _KEEP_MEMORY | {"UCX_TLS": "posix,self"},
        "and POSIX shared memory alone",
    ),
    System(
        "openmpi-yield",
        "openmpi",
        "yield",
        "4k",
        {"OMPI_MCA_mpi_yield_when_idle": "1"},
        "mpi_yield_when_idle=1",
    ),
)


def taking_part(families: set[str], ranks: int, cores: int) -> list[System]:
    """The systems of a run with `ranks` ranks on `cores` cores.

    When ranks share cores, Open MPI has to yield, the settings that keep memory say nothing, and
    gloo's event threads multiply the ranks once more. The limit is that of ranks with cores.
    """
    if ranks > cores:
        names = {"weft", "openmpi-yield", "mpich"}
    else:
        names = {s.name for s in SYSTEMS if s.kind != "yield"}
    return [s for s in SYSTEMS if s.name in names and s.family in families]


@dataclass(frozen=True)
class Tools:
    """How to compile for a family and start it. `missing` says why it cannot take part."""

    compiler: str | None = None
    launcher: str | None = None
    missing: str | None = None


def _output(command: list[str], text: str = "") -> str:
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=20, check=False
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


def _find_mpi(suffix: str, macro: str, mark: str, launchers: tuple[str, ...]) -> Tools:
    """An MPI is what its header and its launcher say it is, whatever the programs are called."""
    dump = ["-E", "-dM", "-x", "c", "-"]
    compiler = _find(
        (f"mpicc.{suffix}", "mpicc"),
        lambda path: f"#define {macro} " in _output([path, *dump], "#include <mpi.h>\n"),
    )
    if compiler is None:
        return Tools(missing="no mpicc of it found")
    launcher = _find(launchers, lambda path: mark in _output([path, "--version"]))
    if launcher is None:
        return Tools(missing="no mpirun of it found")
    return Tools(compiler, launcher)


def find_tools(family: str) -> Tools:
    """Look for what `family` needs on this machine."""
    if family == "openmpi":
        return _find_mpi(
            "openmpi", "OPEN_MPI", "open-mpi.org", ("mpirun.openmpi", "mpirun", "mpiexec")
        )
    if family == "mpich":
        return _find_mpi(
            "mpich", "MPICH_VERSION", "HYDRA", ("mpiexec.hydra", "mpirun.mpich", "mpirun")
        )
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        return Tools(missing="no C compiler found")
    needs_torch = family == "gloo" or family.startswith("torch-")
    if needs_torch and importlib.util.find_spec("torch") is None:
        return Tools(missing="torch is not installed")
    return Tools(compiler)


def launch_command(family: str, tools: Tools, ranks: int) -> list[str]:
    """What starts all ranks of an MPI job, before the program's own name."""
    assert tools.launcher is not None
    if family == "mpich":
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
