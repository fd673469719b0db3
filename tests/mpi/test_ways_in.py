# SPDX-License-Identifier: Apache-2.0
"""Under every launcher, from every kind of communicator."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import jobs
import pytest
import torch
import torch.distributed as dist
import weft
import weft.torch
from weft import mpi

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "regression.py"
SECONDS = 300


def run(*command):
    env = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    env["OMP_NUM_THREADS"] = "1"
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env=env, check=False
    )


def mpirun(ranks, script):
    text = run("mpirun", "--version").stdout
    root = ["--allow-run-as-root", "--oversubscribe"] if "Open MPI" in text else []
    return run("mpirun", *root, "-np", str(ranks), sys.executable, str(script))


def test_alone():
    done = run(sys.executable, str(EXAMPLE))
    assert done.returncode == 0 and "loss" in done.stdout, done.stdout + done.stderr


def test_under_torchrun():
    done = run(
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"),
        *("--nproc-per-node", "2", sys.executable, str(EXAMPLE)),
    )
    assert done.returncode == 0 and done.stdout.count("loss") == 1, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_under_mpirun():
    done = mpirun(2, EXAMPLE)
    assert done.returncode == 0 and done.stdout.count("loss") == 1, done.stdout + done.stderr


def test_under_srun():
    """With the variables that Slurm's srun sets for the tasks of one step."""
    step = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_NODEID": "0"}
    step |= {"SLURM_NTASKS": "2", "SLURM_NPROCS": "2", "SLURM_NNODES": "1"}
    step |= {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "2", "OMP_NUM_THREADS": "1"}
    tasks = []
    for task in ("0", "1"):
        env = os.environ | step | {"SLURM_PROCID": task, "SLURM_LOCALID": task}
        command = [sys.executable, str(EXAMPLE)]
        tasks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    said = [task.communicate(timeout=SECONDS)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0]
    assert said[0].count("loss") == 1 and not said[1], said


def over_a_group(comm, folder):
    store = dist.FileStore(os.path.join(folder, "store"), comm.size)
    dist.init_process_group("weft", store=store, rank=comm.rank, world_size=comm.size)
    over = mpi.Comm(dist.group.WORLD)
    x = torch.ones(2, requires_grad=True)
    y = over.Allreduce(x)
    z = torch.ones(1)
    dist.all_reduce(z)  # the same order
    mpi.backward((y * z).sum(), over)
    torch.testing.assert_close(x.grad, torch.full((2,), float(comm.size**2)))
    again = mpi.Comm(dist.group.WORLD)
    assert again._id == over._id
    with pytest.raises(weft.InvalidError, match="not a communicator"):
        mpi.Comm(3)
    freed = comm.Dup()
    freed.Free()
    with pytest.raises(weft.ClosedError):
        freed.Allreduce(x)


def test_from_a_process_group():
    with tempfile.TemporaryDirectory() as folder:
        jobs.run(2, over_a_group, folder)


def over_mpi4py(folder):
    script = pathlib.Path(folder, "body.py")
    script.write_text(
        "import torch\n"
        "from mpi4py import MPI\n"
        "from weft import mpi\n"
        "world = mpi.Comm(MPI.COMM_WORLD)\n"
        "half = mpi.Comm(MPI.COMM_WORLD.Split(world.rank % 2, world.rank))\n"
        "x = torch.ones(1, requires_grad=True)\n"
        "mpi.backward(world.Allreduce(x).sum() + half.Allreduce(x).sum())\n"
        "assert x.grad.item() == world.size + half.size, x.grad\n"
        "print('good', flush=True)\n"
    )
    return script


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_from_mpi4py():
    pytest.importorskip("mpi4py")
    with tempfile.TemporaryDirectory() as folder:
        done = mpirun(3, over_mpi4py(folder))
    assert done.returncode == 0 and done.stdout.count("good") == 3, done.stdout + done.stderr
