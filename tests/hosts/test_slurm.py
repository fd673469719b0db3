# SPDX-License-Identifier: Apache-2.0
"""Jobs that srun starts, under a Slurm of the test's own whose nodes are the hosts of a bed.

Skipped where Slurm or munge is not installed (Debian: slurmctld, slurmd, slurm-client, munge).
"""

import secrets
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.over("ucx")

CONFIGURATION = """
ClusterName=bed
SlurmctldHost={first}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""

ALLREDUCE = """
import socket, numpy as np, weft
comm = weft.init().comm
x = np.full(100_000, comm.rank + 1.0)
assert (comm.allreduce(x) == comm.size * (comm.size + 1) / 2).all()
comm.barrier()
print(f"right {comm.rank} of {comm.size} on {socket.gethostname()}\\n", end="", flush=True)
weft.finalize()
"""


@pytest.fixture
def srun(bed):
    """Run a Python program by srun with these options; its exit status and all that it said."""
    needed = ("munged", "slurmctld", "slurmd", "srun")
    if missing := [name for name in needed if shutil.which(name) is None]:
        pytest.skip(f"no {', '.join(missing)}: Slurm is not installed here")
    folder = bed.shared / "slurm"
    (folder / "state").mkdir(parents=True)
    folder.chmod(0o755)  # munged refuses a socket that others cannot reach
    (folder / "key").write_bytes(secrets.token_bytes(128))
    (folder / "key").chmod(0o600)
    names = [bed.name(host) for host in range(len(bed))]
    nodes = "\n".join(f"NodeName={name} CPUs=8" for name in names)
    conf = folder / "slurm.conf"
    conf.write_text(CONFIGURATION.format(first=names[0], folder=folder, nodes=nodes))
    env = {"SLURM_CONF": str(conf)}
    files = {what: f"{folder}/munge" + end for what, end in MUNGE_FILES.items()}
    munged = ["munged", "--foreground", "--force", f"--key-file={folder}/key"]
    munged += [f"--{what}={path}" for what, path in files.items()]
    daemons = [(0, munged), (0, ["slurmctld", "-D", "-i"])]
    daemons += [(host, ["slurmd", "-D", "-N", name]) for host, name in enumerate(names)]
    with (folder / "log").open("w") as log:
        children = [
            bed.popen(host, command, env=env, stdout=log, stderr=log) for host, command in daemons
        ]

    def run(*options, program=ALLREDUCE, timeout=60.0, **more):
        command = ["srun", *options, sys.executable, "-P", "-c", program]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with bed.popen(0, command, env={**env, **more}, cwd=folder, **pipes) as child:
            try:
                said, _ = child.communicate(timeout=timeout)
            except BaseException:
                child.kill()
                raise
        return child.returncode, said

    # srun asks a controller that is just starting again and again, and waits for its nodes.
    yield run
    for child in reversed(children):
        child.terminate()
        child.wait(timeout=30)


MUNGE_FILES = {"socket": "", "pid-file": ".pid", "log-file": ".log", "seed-file": ".seed"}


def right(said):
    return sorted(line for line in said.splitlines() if line.startswith("right"))


def on(*hosts):
    return [f"right {rank} of {len(hosts)} on {host}" for rank, host in enumerate(hosts)]


def test_jobs_of_srun_meet_by_pmix_or_a_directory_and_else_say_what_they_need(bed, srun):
    first, second = bed.name(0), bed.name(1)
    two = ("-N", "2", "--ntasks-per-node=2")
    plugins = srun("--mpi=list")[1]
    if "pmix" in plugins:
        status, said = srun("--mpi=pmix", *two)
        assert status == 0, said
        assert right(said) == on(first, first, second, second), said

    status, said = srun("-N", "1", "-n", "3", "-w", second)
    assert status == 0, said
    assert right(said) == on(second, second, second), said

    folder = bed.shared / "boot"
    folder.mkdir()
    status, said = srun(*two, WEFT_BOOT_DIR=str(folder))
    assert status == 0, said
    assert right(said) == on(first, first, second, second), said

    for plugin in ("none", "pmi2"):  # pmi2 sets variables of MPICH's
        if plugin in plugins:
            status, said = srun(f"--mpi={plugin}", *two)
            assert status != 0
            assert "use srun --mpi=pmix" in said
