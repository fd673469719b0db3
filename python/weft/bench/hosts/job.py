# SPDX-License-Identifier: Apache-2.0
"""A job whose ranks are on hosts of a bed.

What the coordinator and the ranks tell each other goes through the folder that all hosts share, so
nothing of it is on the network that is measured.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..bed import Bed
from ..job import Job, Program
from ..systems import System, Tools


def mpi_command(bed: Bed, tools: Tools, ranks: Sequence[int]) -> list[str]:
    """What starts an MPI job with so many ranks on each host, before the program's own name."""
    assert tools.launcher is not None
    hosts = ",".join(f"{bed.name(host)}:{count}" for host, count in enumerate(ranks))
    if tools.hydra:
        rsh = ["-launcher", "rsh", "-launcher-exec", str(bed.rsh)]
        return [tools.launcher, *rsh, "-hosts", hosts, "-n", str(sum(ranks))]
    settings = {
        "plm_rsh_agent": str(bed.rsh),
        "oob_tcp_if_include": "eth0",
        "btl_tcp_if_include": "eth0",
    }
    words = [word for name, value in settings.items() for word in ("--mca", name, value)]
    # Some versions take namespaces of one machine for one host.
    words += ["--allow-run-as-root", "--bind-to", "none", "--oversubscribe"]
    words += ["--host", hosts, "-n", str(sum(ranks))]
    return [tools.launcher, *words]


class BedJob(Job):
    """The processes of one system on a bed, `each` on every host."""

    def __init__(
        self,
        bed: Bed,
        system: System,
        program: Program,
        cores: Sequence[int],
        folder: Path,
        *,
        each: int = 1,
    ):
        self._bed, self._each = bed, each
        super().__init__(system, program, each * len(bed), cores, folder)

    def _make_page(self, folder: Path) -> tuple[int, str]:
        """Processes of a host do not see this one in /proc, so the page is a file."""
        path = folder / f"{self.system.job}.page"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), str(path)

    def _start(
        self, program: Program, command: list[str], folder: Path, pipes: Mapping[str, Any]
    ) -> None:
        if program.tools.launcher is not None:
            ranks = [self._each] * len(self._bed)
            launch = mpi_command(self._bed, program.tools, ranks)
            # mpirun passes OMPI_* on to its ranks.
            mpirun = self._bed.popen(0, [*launch, *command], env=self.system.env, **pipes)
            self._processes.append(mpirun)
            return
        boot = folder / f"{self.system.job}.boot"
        boot.mkdir(mode=0o700)
        env = {**self.system.env, "WEFT_BOOT_DIR": str(boot)} if self._in_c() else self.system.env
        self._processes += self._bed.launch(command, ranks=self._each, env=env, **pipes)

    def _in_c(self) -> bool:
        """Programs in C have no store of torch to meet in."""
        return not self.system.family.python
