# SPDX-License-Identifier: Apache-2.0
"""How ranks find one another: launchers, torch's Store, mpi4py, objects of our own."""

import concurrent.futures
import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import ranks
import weft
from weft import _boot

SECONDS = 180


def launched(size, launcher):
    world = weft.init()
    assert weft._core.launcher() == (launcher, world.rank)
    assert world.size == size
    assert world.comm.allreduce(np.array([world.rank]))[0] == sum(range(size))
    assert all(peer.shares_memory for peer in world.peers)
    rank = world.rank
    weft.finalize()
    print(f"rank {rank} is well", flush=True)


def launch(command, body, *args):
    """Run `body` under a launcher; what it printed, or the reason why it failed."""
    done = subprocess.run(
        [*command, *ranks.child_command(body, *args)],
        env=ranks.quiet_environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def mpirun(size):
    """The command of whichever MPI is called mpirun here, and its name in weft."""
    path = shutil.which("mpirun")
    if path is None:
        pytest.skip("there is no mpirun here")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" in version.stdout or "OpenRTE" in version.stdout:
        # Without ssh it has to be told that all ranks are here.
        here = [] if shutil.which("ssh") else ["--mca", "plm", "isolated"]
        return [path, "--allow-run-as-root", *here, "--oversubscribe", "-n", str(size)], "openmpi"
    return [path, "-n", str(size)], "mpich"


def test_ranks_started_by_torchrun_find_one_another():
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
    text = launch([*command, "--nproc-per-node=2"], launched, 2, "torchrun")
    assert "rank 0 is well" in text and "rank 1 is well" in text


def test_ranks_started_by_mpirun_find_one_another():
    command, launcher = mpirun(3)
    text = launch(command, launched, 3, launcher)
    assert all(f"rank {rank} is well" in text for rank in range(3))


def test_ranks_started_by_hydra_find_one_another():
    path = shutil.which("mpiexec.hydra")
    if path is None:
        pytest.skip("there is no mpiexec.hydra (MPICH) here")
    text = launch([path, "-n", "2"], launched, 2, "mpich")
    assert "rank 0 is well" in text and "rank 1 is well" in text


def test_ranks_of_several_agents_of_torchrun_meet_in_its_store():
    pytest.importorskip("torch")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nnodes=2"]
    command += ["--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    with concurrent.futures.ThreadPoolExecutor() as agents:
        started = [
            agents.submit(launch, [*command, f"--node-rank={node}"], launched_twice, 4)
            for node in range(2)
        ]
        text = "".join(agent.result() for agent in started)
    assert all(f"rank {rank} is well" in text for rank in range(4))


def launched_twice(size):
    """Twice, with a process group in between, whose store is the same."""
    import torch.distributed as dist

    world = weft.init()
    assert world.comm.allreduce(np.array([world.rank]))[0] == sum(range(size))
    weft.finalize()
    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()
    launched(size, "torchrun")


def test_ranks_of_torchrun_on_several_hosts_are_told_what_to_use_from_c():
    env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_PORT": "1"}
    body = "import weft; weft._core.create(None, None)"
    done = in_environment(body, env)
    assert "weft.init() in Python uses torchrun's own" in done.stderr
    assert "WEFT_BOOT_DIR" in done.stderr


def in_environment(body, more):
    """A process that is told by `more` what a launcher would say."""
    return subprocess.run(
        [sys.executable, "-c", body],
        env={**ranks.quiet_environment(), **more},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def has_pmix():
    with contextlib.suppress(OSError):
        return ctypes.CDLL("libpmix.so.2") is not None
    return False


@pytest.mark.skipif(not has_pmix(), reason="there is no libpmix here")
def test_ranks_of_open_mpi_meet_by_pmix():
    command, launcher = mpirun(3)
    if launcher != "openmpi":
        pytest.skip("mpirun is not Open MPI's")
    command[1:1] = ["-x", "WEFT_BOOT=pmix"]
    text = launch(command, launched_by_pmix, 3)
    assert all(f"rank {rank} is well" in text for rank in range(3))


def launched_by_pmix(size):
    for _ in range(2):
        world = weft.init()
        assert world.comm.allreduce(np.array([world.rank]))[0] == sum(range(size))
        weft.finalize()
    launched(size, "openmpi")


@pytest.mark.skipif(not has_pmix(), reason="there is no libpmix here")
def test_pmix_and_open_mpi_share_a_process_whichever_comes_first():
    command, launcher = mpirun(2)
    if launcher != "openmpi":
        pytest.skip("mpirun is not Open MPI's")
    need_mpi4py(command)
    command[1:1] = ["-x", "WEFT_BOOT=pmix"]
    launch(command, pmix_then_mpi, True)
    launch(command, pmix_then_mpi, False)


def pmix_then_mpi(mpi_first):
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    from mpi4py import MPI

    if mpi_first:
        MPI.Init()
    world = weft.init()
    if not mpi_first:
        MPI.Init()
    assert (world.rank, world.size) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    MPI.COMM_WORLD.Barrier()
    weft.finalize()
    weft.init().comm.barrier()
    MPI.Finalize()
    weft.finalize()


def test_a_pmix_server_that_is_not_there_is_said_to_be_missing():
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "1"}
    pmix = {"SLURM_NNODES": "2", "PMIX_NAMESPACE": "none", "PMIX_RANK": "0"}
    done = in_environment("import weft; weft.init()", {**slurm, **pmix})
    assert "weft.UnsupportedError" in done.stderr or "Unsupported" in done.stderr
    assert "srun --mpi=pmix" in done.stderr and "PMIx: " in done.stderr


def over_mpi4py():
    from mpi4py import MPI

    mpi = MPI.COMM_WORLD
    world = weft.init(comm=mpi)
    assert (world.rank, world.size) == (mpi.rank, mpi.size)
    assert world.comm.allreduce(np.array([1.0]))[0] == mpi.size
    weft.finalize()
    part = mpi.Split(mpi.rank % 2)  # any communicator is a job
    world = weft.init(comm=part)
    assert world.size == part.size
    world.comm.barrier()
    weft.finalize()


def test_an_mpi4py_communicator_is_a_meeting_place():
    command, _ = mpirun(3)
    need_mpi4py(command)
    launch(command, over_mpi4py)


def need_mpi4py(command):
    probe = [*command[:-1], "1", sys.executable, "-c", "from mpi4py import MPI"]
    found = subprocess.run(probe, capture_output=True, text=True, timeout=SECONDS, check=False)
    if found.returncode != 0:
        pytest.skip(f"mpi4py does not work here: {found.stderr.strip().splitlines()[-1:]}")


def test_a_board_is_reached_only_with_its_secret():
    board = _boot.Board()
    addresses, port, secret = board.where
    _boot.Visitor((addresses, port, secret)).close()
    with pytest.raises(ConnectionError, match="rank 0 cannot be reached by TCP"):
        _boot.Visitor((addresses, port, secret[:-1] + b"?"))
    board.close()


def test_a_board_is_found_behind_addresses_where_somebody_else_answers():
    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=lambda: other.accept()[0].sendall(bytes(99)), daemon=True).start()
        port = other.getsockname()[1]
        with pytest.raises(ConnectionError, match="somebody else answers"):
            _boot.Visitor((["127.0.0.1"], port, bytes(32)))
    board = _boot.Board()
    addresses, port, secret = board.where
    visitor = _boot.Visitor((["256.0.0.1", *addresses], port, secret))
    visitor.set("key", b"value")
    assert visitor.get("key", 1) == b"value"
    visitor.close()
    board.close()


def over_store(path):
    import torch.distributed as dist

    rank, size = int(os.environ.pop("WEFT_RANK")), int(os.environ.pop("WEFT_RANKS"))
    store = dist.FileStore(path, size)
    for _ in range(2):  # a store outlives the worlds that met in it
        world = weft.init(store=store, rank=rank, size=size)
        assert (world.rank, world.size) == (rank, size)
        assert world.comm.allreduce(np.array([1]))[0] == size
        weft.finalize()
    dist.init_process_group(
        "gloo", store=dist.PrefixStore("gloo", store), rank=rank, world_size=size
    )
    world = weft.init(store=store)  # who this is, torch.distributed knows
    assert (world.rank, world.size) == (rank, size)
    world.comm.barrier()
    weft.finalize()
    dist.destroy_process_group()


def test_a_torch_store_is_a_meeting_place(tmp_path):
    pytest.importorskip("torch")
    ranks.run(2, over_store, str(tmp_path / "store"))


def test_a_rank_that_never_comes_to_the_store_is_a_timeout():
    dist = pytest.importorskip("torch.distributed")
    with pytest.raises(TimeoutError) as caught:
        weft.init(store=dist.HashStore(), rank=0, size=2, boot_timeout="300ms")
    assert isinstance(caught.value, weft.TimeoutError)


def test_a_rank_that_comes_to_the_store_twice_is_told_at_once():
    dist = pytest.importorskip("torch.distributed")
    store = dist.HashStore()
    with pytest.raises(weft.TimeoutError):
        weft.init(store=store, rank=1, size=3, boot_timeout="100ms")
    with pytest.raises(weft.MismatchError, match=r"rank 1 of 3 has used this store before"):
        weft.init(store=store, rank=1, size=3, boot_timeout="100ms")


class Broken:
    rank, size = 1, 2

    def set(self, key, value):
        raise PermissionError("the store is read-only")


class Interrupted(Broken):
    rank = 0  # which first waits for the others, and then tells them what went wrong

    def get(self, key, timeout):
        raise KeyboardInterrupt


def test_what_a_meeting_object_raises_is_the_cause():
    with pytest.raises(weft.Error, match="read-only") as caught:
        weft.init(Broken())
    assert isinstance(caught.value.__cause__, PermissionError)


def test_ctrl_c_in_a_meeting_object_comes_through():
    with pytest.raises(KeyboardInterrupt):
        weft.init(Interrupted())


def test_meeting_in_a_directory(tmp_path):
    ranks.run(2, sum_of_ranks, environment={"WEFT_BOOT_DIR": str(tmp_path)})
    assert not list(tmp_path.iterdir())


def sum_of_ranks():
    world = weft.init()
    assert world.comm.allreduce(np.array([world.rank]))[0] == 1
    weft.finalize()


def pretended_nodes():
    os.environ["WEFT_NODE"] = "ab"[int(os.environ["WEFT_RANK"]) % 2]
    world = weft.init()
    near = [peer.rank for peer in world.peers if peer.shares_memory]
    assert near == [rank for rank in range(world.size) if rank % 2 == world.rank % 2]
    assert world.comm.allreduce(np.array([world.rank]))[0] == sum(range(world.size))


@pytest.mark.over("nodes")
def test_ranks_with_different_node_names_share_no_memory_and_still_talk():
    ranks.run(4, pretended_nodes)
