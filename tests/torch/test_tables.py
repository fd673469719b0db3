# SPDX-License-Identifier: Apache-2.0
"""A process group that exists is the job of tables, of weft.init and of weft.mpi."""

import os
import subprocess
import sys

import groups
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import weft
import weft.mpi
import weft.nn
import weft.optim

BACKENDS = ("weft", "gloo")


def place():
    return dist.get_rank(), dist.get_world_size()


def all_ways_into_a_table():
    rank, size = place()
    t = weft.zeros((size, 2))
    t[rank] = rank + 1
    dist.barrier()
    assert t[:, 0].tolist() == [r + 1.0 for r in range(size)]
    assert weft.region(t).ranks == size
    emb = weft.nn.Embedding(10, 3)
    assert emb.rows.ranks == size and emb.comm.rank == rank
    optimizer = weft.optim.SGD(emb, lr=1.0)
    before = emb(torch.tensor([4])).detach()
    emb.comm.barrier()
    emb(torch.tensor([4])).sum().backward()
    optimizer.step()
    assert torch.allclose(emb(torch.tensor([4])), before - size)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tables_have_the_ranks_of_the_process_group(backend):
    groups.run(3, all_ways_into_a_table, backend=backend)


def tutorial(rank, size, path, backend):
    dist.init_process_group(backend, init_method=f"file://{path}", rank=rank, world_size=size)
    all_ways_into_a_table()


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_of_spawn_and_init_process_group_share_tables(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    mp.spawn(tutorial, (2, str(tmp_path / "store"), backend), nprocs=2)


def other_ways_in():
    rank, size = place()
    world = weft.init(timeout=60)
    assert (world.rank, world.size) == (rank, size)
    assert weft.init() is world and weft.size() == size
    comm = weft.mpi.COMM_WORLD
    assert comm.Allreduce(torch.ones(2), weft.mpi.SUM).tolist() == [size, size]
    weft.finalize()
    import weft.compat.mpi4torch as old

    assert old.COMM_WORLD.size == size
    weft.finalize()
    import weft.compat.wholememory as wm

    wm.mp_init(rank, size)
    assert (weft.rank(), weft.size()) == (rank, size)
    wm.finalize_lib()


@pytest.mark.parametrize("backend", BACKENDS)
def test_init_and_mpi_and_the_old_names_have_the_ranks_of_the_process_group(backend):
    groups.run(2, other_ways_in, backend=backend)


def started_as_one_of_one():
    os.environ.update({"WEFT_RANK": "0", "WEFT_RANKS": "1", "WEFT_JOB": "alone"})
    assert weft.region(weft.zeros(6)).ranks == 2
    dist.destroy_process_group()
    weft.finalize()
    assert weft.region(weft.zeros(6)).ranks == 1


def test_the_environment_of_a_launcher_counts_less_than_the_process_group():
    groups.run(2, started_as_one_of_one)


def joined_before():
    rank, size = place()
    store = dist.PrefixStore("later", dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    alone = weft.init()
    comm = weft.mpi.COMM_WORLD
    assert (alone.size, comm.size, weft.zeros(3).shape) == (1, 1, (3,))
    dist.init_process_group("weft", store=store, rank=rank, world_size=size)
    text = rf"rank {rank} of {size} in the process group.*0 of 1.*weft.finalize\(\)"
    for make in (
        lambda: weft.zeros(3),
        lambda: weft.nn.Embedding(3, 2),
        lambda: weft.mpi.COMM_WORLD,
        weft.init,
    ):
        with pytest.raises(weft.InvalidError, match=text):
            make()
    assert weft.region(weft.zeros(3, comm=weft.world().comm)).ranks == 1
    weft.finalize()
    assert weft.region(weft.zeros(3)).ranks == size
    assert weft.mpi.COMM_WORLD.size == size


def test_a_process_group_that_comes_after_a_job_of_one_is_told_of():
    groups.run(2, joined_before)


def joined_alone_on_purpose():
    weft.init("alone")
    assert weft.region(weft.zeros(3)).ranks == 1


def test_a_job_that_was_asked_for_stays_what_it_is():
    groups.run(2, joined_alone_on_purpose)


def forked_child():
    dist.barrier()
    child = os.fork()
    if child == 0:
        try:
            weft.zeros(3)
        except weft.ClosedError as error:
            os._exit(0 if "forked by a rank of the process group" in str(error) else 2)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert weft.region(weft.zeros(3)).ranks == dist.get_world_size()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_forked_child_of_a_rank_is_told_that_it_is_none(backend):
    groups.run(2, forked_child, backend=backend)


CHILD = """
import sys, weft
try:
    weft.init(timeout=5)
except weft.ClosedError as error:
    assert f"process {sys.argv[1]} is already rank" in str(error), error
else:
    sys.exit("it has joined")
assert weft.init("alone").size == 1
"""


def started_child():
    rank, size = place()
    store = dist.PrefixStore("later", dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="localhost",
        MASTER_PORT="1",
        TORCHELASTIC_RUN_ID=f"child of {os.getppid()}",
        WEFT_BOOT_TIMEOUT="30s",
    )
    dist.init_process_group("weft", store=store, rank=rank, world_size=size)
    subprocess.run([sys.executable, "-c", CHILD, str(os.getpid())], check=True)
    assert weft.init().size == size
    groups.meet("children have ended")


def test_so_is_a_process_that_a_rank_starts():
    groups.run(2, started_child)


def pretended_ranks():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=64)
    with pytest.raises(weft.InvalidError, match="no processes"):
        weft.zeros(3)
    dist.destroy_process_group()


def test_ranks_that_are_no_processes_are_told_of():
    groups.run(1, pretended_ranks)
