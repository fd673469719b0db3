# SPDX-License-Identifier: Apache-2.0
"""Ranks on several hosts that an MPI's mpirun starts, as a transport over that MPI needs.

    WT_HOSTS=2 WT_MPI=openmpi python -m pytest tests/mpi

Each call of processes.start() is a job of mpirun then, whose ranks load the test's module anew. So
`work`, and what it is called with, are things that can be pickled. mpirun ends a job of which a
rank dies, so tests in which ranks die are not for it.

Run as a script, this file is a rank.
"""

import contextlib
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import warnings

import on_hosts
import processes

LAUNCHERS = {"openmpi": "mpirun.openmpi", "mpich": "mpiexec.hydra"}
RANK = {"openmpi": "OMPI_COMM_WORLD_RANK", "mpich": "PMI_RANK"}


def lacks(mpi):
    """What is missing for jobs of this MPI; None if nothing is."""
    import weft

    library = pathlib.Path(weft.__file__).parent / f"libweft_mpi_{mpi}.so"
    if shutil.which(LAUNCHERS[mpi]) is None or not library.exists():
        return f"no {LAUNCHERS[mpi]}, or {library.name} was not built"
    return None


def command(mpi, bed, counts, words):
    """Start so many ranks on each host of the bed, which talk by the network alone."""
    hosts = ",".join(f"{bed.name(host)}:{count}" for host, count in enumerate(counts) if count)
    ranks = str(sum(counts))
    # Hosts that are namespaces have the machine's memory in common, which is no network.
    if mpi == "openmpi":
        launch = ["--allow-run-as-root", "--bind-to", "none", "--mca", "btl", "tcp,self"]
        launch += ["--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"]
        launch += ["--mca", "plm_rsh_agent", bed.rsh, "--mca", "pml", "ob1"]
        launch += ["--mca", "mpi_yield_when_idle", "1", "--host", hosts, "-n", ranks]
    else:
        launch = ["-launcher", "rsh", "-launcher-exec", bed.rsh, "-hosts", hosts]
        launch += ["-n", ranks, "-genv", "UCX_TLS", "tcp,self", "-genv", "MPIR_CVAR_NOLOCAL", "1"]
    return [LAUNCHERS[mpi], *launch, "env", "WEFT_TRANSPORTS=self,shm,mpi", *words]


def start(size, work, *args, deadline):
    """processes.start(), by mpirun on the hosts of on_hosts."""
    bed = on_hosts.bed()
    counts = [0] * len(bed)
    for rank in range(size):
        counts[on_hosts.host_of(rank, size)] += 1
    with tempfile.TemporaryDirectory(prefix="launched-", dir=bed.shared) as name:
        folder = pathlib.Path(name)
        task = pickle.dumps((work, args))
        (folder / "task").write_bytes(pickle.dumps((sys.path, dict(os.environ), task)))
        words = command(on_hosts.MPI, bed, counts, [sys.executable, __file__, name])
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        launcher = bed.popen(0, words, **pipes)
        try:
            said, _ = launcher.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            said = f"not done in {deadline:g} s\n{_end(launcher)}"
        return [_answer(folder / str(rank), said) for rank in range(size)]


def _end(launcher):
    """End a job, and give what it has printed.

    mpirun that is asked to end takes its daemons and ranks with it; one that is killed does not.
    """
    launcher.terminate()
    for _ in range(2):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return launcher.communicate(timeout=10)[0]
        launcher.kill()
    return "it was killed, and its ranks may be there still"


def _answer(file, said):
    if not file.exists():
        return processes.Ended(error=f"gave no answer; mpirun said:\n{said}")
    return pickle.loads(file.read_bytes())


def main(name):
    folder = pathlib.Path(name)
    path, environment, task = pickle.loads((folder / "task").read_bytes())
    sys.path[:] = path
    for key, value in environment.items():
        os.environ.setdefault(key, value)
    rank = int(os.environ[RANK[on_hosts.MPI]])
    work, args = pickle.loads(task)
    warnings.simplefilter("ignore")
    ended = processes.outcome(work, rank, args)
    there = folder / f"{rank}.part"
    there.write_bytes(pickle.dumps(ended))
    there.rename(folder / str(rank))
    if on_hosts.MPI == "mpich":
        os._exit(0)  # before MPICH 4.2 MPI_Finalize can hang over UCX


if __name__ == "__main__":
    main(sys.argv[1])
