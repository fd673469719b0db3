# SPDX-License-Identifier: Apache-2.0
"""Programs written for mpi4torch run unchanged under every launcher; so does the PDE example."""

import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys

import jobs
import pytest
import torch

ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 300

# The examples of mpi4torch's README as one program; a bracket is mended.
PROGRAM = """
import torch
import mpi4torch

comm = mpi4torch.COMM_WORLD
xinput = torch.rand(100, dtype=torch.double, generator=torch.Generator().manual_seed(comm.rank))


def some_parametrized_function(x, params):
    return params[2] * x**2 + params[1] * x + params[0]


true = torch.tensor([0.1, 1.0, -2.0], dtype=torch.double)
youtput = some_parametrized_function(xinput, true)


def lossfunction(params):
    # average initial params to bring all ranks on the same page
    params = comm.Allreduce(params, mpi4torch.MPI_SUM) / comm.size

    # compute local loss
    localloss = torch.sum(torch.square(youtput - some_parametrized_function(xinput, params)))

    # sum up the loss among all ranks
    return comm.Allreduce(localloss, mpi4torch.MPI_SUM)


params = torch.arange(3, dtype=torch.double).requires_grad_()
optimizer = torch.optim.LBFGS([params], 1)
for i in range(10):
    def closure():
        optimizer.zero_grad()
        loss = lossfunction(params)
        loss.backward()
        return loss
    optimizer.step(closure)
assert torch.allclose(params.detach(), true, atol=1e-4), params

after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
sendbuffer = torch.full((3,), float(comm.rank), requires_grad=True)

recvbuffer = torch.empty(3)
handle = comm.Isend(sendbuffer, after, 0)
comm.Recv(recvbuffer, before, 0)
comm.Wait(handle)
assert recvbuffer.tolist() == [before] * 3

recvbuffer = torch.empty(3)
handle = comm.Isend(sendbuffer, after, 0)
res1 = comm.Recv(mpi4torch.JoinDummies(recvbuffer, [handle.dummy]), before, 0)
res2 = comm.Wait(mpi4torch.JoinDummiesHandle(handle, [res1]))
res = (comm.rank + 1) * mpi4torch.JoinDummies(res1, [res2])
res.sum().backward()
assert res1.tolist() == [before] * 3
assert sendbuffer.grad.tolist() == [after + 1.0] * 3, sendbuffer.grad
print(f"rank {comm.rank} of {comm.size} is well", flush=True)
"""

FROM_MPI4PY = """
import torch
from mpi4py import MPI
import mpi4torch

world = mpi4torch.comm_from_mpi4py(MPI.COMM_WORLD)
backwards = mpi4torch.comm_from_mpi4py(MPI.COMM_WORLD.Split(0, -world.rank))
assert backwards.rank == world.size - 1 - world.rank
x = torch.ones(1, requires_grad=True)
freed = MPI.COMM_WORLD.Dup()
comm = mpi4torch.comm_from_mpi4py(freed)
y = comm.Allreduce(x, mpi4torch.MPI_SUM) + backwards.Bcast_(x * 2, 0)
freed.Free()  # before backward, which mpi4torch did not survive
y.sum().backward()
assert x.grad.item() == world.size + (2 * world.size if backwards.rank == 0 else 0), x.grad
nobody = torch.full((1,), 5.0)
assert world.Recv(nobody, MPI.PROC_NULL, 0).item() == 5
sent = world.Isend(torch.tensor([float(world.rank)]), (world.rank + 1) % world.size, 3)
got = world.Recv(torch.empty(1), MPI.ANY_SOURCE, 3)
assert got.item() == (world.rank - 1) % world.size
world.Wait(sent)
print(f"rank {world.rank} of {world.size} is well", flush=True)
"""


def openmpi(size):
    path = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if path is None or "open-mpi.org" not in version(path):
        pytest.skip("there is no mpirun of Open MPI here")
    here = [] if shutil.which("ssh") else ["--mca", "plm", "isolated"]
    return [path, "--allow-run-as-root", *here, "--oversubscribe", "-np", str(size)]


def mpich(size):
    path = shutil.which("mpirun.mpich") or shutil.which("mpiexec.hydra")
    if path is None:
        pytest.skip("there is no mpirun of MPICH here")
    return [path, "-np", str(size)]


def torchrun(size):
    start = ["-m", "torch.distributed.run", "--standalone", "--no-python"]
    return [sys.executable, *start, "--nproc-per-node", str(size)]


def alone(size):
    return []


def version(path):
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return said.stdout


def run(*command):
    env = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "compat")}
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def all_well(text, size):
    return all(f"rank {rank} of {size} is well" in text for rank in range(size))


SOME = [(alone, 1), (torchrun, 2), (openmpi, 3), (mpich, 2)]
ALL = [(alone, 1), *((start, n) for start in (torchrun, openmpi, mpich) for n in (1, 2, 3))]


@pytest.mark.parametrize(("launcher", "size"), ALL if jobs.FULL else SOME)
def test_the_readme_of_mpi4torch_runs(launcher, size, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert all_well(run(*launcher(size), sys.executable, program), size)


def mpi_of_mpi4py():
    """The launcher of the MPI that mpi4py uses."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    ask = "from mpi4py import MPI; print(MPI.Get_library_version())"
    said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        pytest.skip("mpi4py finds no MPI library")
    return openmpi if "Open MPI" in said.stdout else mpich


@pytest.mark.parametrize("size", [1, 3] if jobs.FULL else [3])
def test_communicators_of_mpi4py_are_taken(size, tmp_path):
    launcher = mpi_of_mpi4py()
    program = tmp_path / "program.py"
    program.write_text(FROM_MPI4PY)
    assert all_well(run(*launcher(size), sys.executable, program), size)


def test_the_old_name_does_not_hide_an_installed_original(tmp_path):
    original = tmp_path / "mpi4torch"
    original.mkdir()
    (original / "__init__.py").write_text("'''The original.'''\n")
    code = f"import sys; sys.path.append({str(tmp_path)!r}); import mpi4torch"
    env = os.environ | {"PYTHONPATH": str(ROOT / "compat")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode != 0 and "would hide" in done.stderr


def test_the_material_of_the_pde_example_is_a_possible_one():
    example = runpy.run_path(str(ROOT / "examples" / "pde.py"))
    at = torch.arange(example["POINTS"]) / example["POINTS"]
    k = example["true_conductivity"](*torch.meshgrid(at, at, indexing="ij"))
    assert k.min() > 0.05 and example["RATIO"] * k.max() < 0.25


@pytest.mark.parametrize("launcher", [torchrun, openmpi] if jobs.FULL else [openmpi])
def test_the_pde_example_learns_the_same_on_one_and_on_four_ranks(launcher):
    command = [sys.executable, ROOT / "examples" / "pde.py", "--iterations", 6]
    one = run(*alone(1), *command)
    four = run(*launcher(4), *command)
    losses = [re.findall(r"loss (\S+)", text) for text in (one, four)]
    assert losses[0] == losses[1] and len(losses[0]) == 2
    assert float(losses[0][1]) < 0.8 * float(losses[0][0])
    assert "(2, 2) ranks" in four
