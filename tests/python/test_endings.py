# SPDX-License-Identifier: Apache-2.0
"""A rank whose program ends, by an error or too early: the others are told at once, by name."""

import os
import pathlib
import time

import pytest
import ranks
import weft

HOUR = 3600.0
SOON = 30.0  # seconds, on a crowded machine; nothing here may wait for the hour


def end(how):
    """End a program as programs end."""
    if how == "error":
        raise ValueError("a mistake of the program")
    if how == "exit":
        raise SystemExit(0)


def weft_job(how):
    comm = weft.init(timeout=HOUR).comm
    comm.barrier()
    if comm.rank == 1:
        return end(how)
    with pytest.raises(weft.PeerError, match="rank 1 "):
        comm.barrier()


def torch_job(how, folder):
    import datetime

    import torch
    import torch.distributed as dist
    import weft.torch  # noqa: F401  registers the backend

    rank = int(os.environ["WEFT_RANK"])
    store = dist.FileStore(str(pathlib.Path(folder) / "store"), 2)
    hour = datetime.timedelta(seconds=HOUR)
    dist.init_process_group("weft", store=store, rank=rank, world_size=2, timeout=hour)
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        return end(how)
    with pytest.raises(RuntimeError, match="rank 1 "):
        dist.all_reduce(torch.ones(1))


def mpi_job(how):
    import torch
    from weft import mpi

    weft.init(timeout=HOUR)
    comm = mpi.COMM_WORLD
    x = torch.ones(3, requires_grad=True)
    loss = comm.Allreduce(x * 2).sum()
    if comm.rank == 1:
        return end(how)
    with pytest.raises(weft.PeerError, match="rank 1 "):
        mpi.backward(loss)


def table_job(how):
    weft.init(timeout=HOUR)
    found = weft.region(weft.full((8, 2), 3.0, "f4", like="numpy"))
    if found.rank == 1:
        return end(how)
    with pytest.raises(weft.PeerError, match="rank 1 "):
        found.barrier()
    assert (found.tensor == 3).all()


def finish(how, job, *args):
    with ranks.Job(2, job, how, *args) as started:
        began = time.monotonic()
        started.finish({1: 1 if how == "error" else 0}, seconds=4 * SOON)
        assert time.monotonic() - began < 2 * SOON


@pytest.mark.parametrize("how", ("error", "exit", "end"))
@pytest.mark.parametrize("job", (weft_job, table_job), ids=lambda job: job.__name__)
def test_a_rank_whose_program_ends_is_named_at_once(job, how):
    finish(how, job)


def needs_shim():
    pytest.importorskip("torch")
    if not pytest.importorskip("weft.torch.build").find():
        pytest.skip("the shim is not built")


def test_a_rank_of_a_group_whose_program_ends_is_named_at_once(tmp_path):
    needs_shim()
    finish("error", torch_job, str(tmp_path))


def test_a_rank_of_mpi_whose_program_ends_is_named_at_once():
    needs_shim()
    finish("error", mpi_job)
