# SPDX-License-Identifier: Apache-2.0
"""Ranks that die, and processes that fork."""

import multiprocessing
import os
import signal

import numpy as np
import pytest
import ranks
import weft


def await_death(victim):
    comm = weft.init(timeout=60).comm
    print("ready", flush=True)
    if comm.rank == victim:
        signal.pause()
    with pytest.raises(weft.PeerError, match=f"rank {victim}"):
        comm.barrier()
    with pytest.raises(ConnectionError):
        comm.allreduce(np.ones(1))


def test_a_killed_rank_is_an_error_that_names_it_on_all_others():
    with ranks.Job(3, await_death, 2) as job:
        for rank in job.ranks:
            rank.line("ready")
        job.kill(2)
        job.finish({2: -signal.SIGKILL})


def test_a_rank_that_ends_without_finalize_is_named_too():
    ranks.run(2, leave_early)


def leave_early():
    comm = weft.init(timeout=60).comm
    if comm.rank == 1:
        os._exit(0)
    with pytest.raises(weft.PeerError, match="rank 1"):
        comm.barrier()


def refused_in_child(comm, request):
    for use in (weft.world, comm.barrier, comm.dup, request.test, request.wait):
        with pytest.raises(weft.ClosedError):
            use()


def fork_and_die(victim):
    comm = weft.init(timeout=60).comm
    request = comm.dup().irecv(bytearray(1), (comm.rank + 1) % comm.size)
    if comm.rank == victim:
        child = os.fork()
        if child == 0:
            refused_in_child(comm, request)
            print(f"child {os.getpid()}", flush=True)
            signal.pause()
        signal.pause()
    print("ready", flush=True)
    with pytest.raises(weft.PeerError, match=f"rank {victim}"):
        comm.barrier()


def test_a_forked_child_is_no_rank_and_does_not_keep_its_dead_parent_alive():
    with ranks.Job(2, fork_and_die, 1) as job:
        child = int(job[1].line("child"))
        try:
            job[0].line("ready")
            job.kill(1)
            job.finish({1: -signal.SIGKILL})
        finally:
            os.kill(child, signal.SIGKILL)


def in_child():
    weft.finalize()
    assert weft.init("alone").comm.allreduce(np.ones(1))[0] == 1


def children_come_and_go():
    comm = weft.init().comm
    request = comm.irecv(got := bytearray(1), 1 - comm.rank)
    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    child.join()
    assert child.exitcode == 0
    pid = os.fork()
    if pid == 0:
        raise SystemExit(0)  # through atexit, unlike multiprocessing
    assert os.waitpid(pid, 0)[1] == 0
    comm.send(b"x", 1 - comm.rank)
    assert request.wait().length == 1 and got == b"x"
    comm.barrier()


def test_children_that_end_leave_their_parents_world_as_it_was():
    ranks.run(2, children_come_and_go)


class Numbers:
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return float(index)


def load_and_die(victim):
    from torch.utils.data import DataLoader

    comm = weft.init(timeout=60).comm
    if comm.rank == victim:
        batches = iter(DataLoader(Numbers(), num_workers=1, multiprocessing_context="fork"))
        next(batches)
        print("loading", flush=True)
        signal.pause()
    with pytest.raises(weft.PeerError, match=f"rank {victim}"):
        comm.barrier()


def test_a_data_loaders_worker_does_not_keep_its_dead_parent_alive():
    pytest.importorskip("torch")
    with ranks.Job(2, load_and_die, 0) as job:
        job[0].line("loading")
        job.kill(0)
        job.finish({0: -signal.SIGKILL})


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_worlds_can_be_made_and_closed_over_and_over_without_leaking():
    def cycle():
        comm = weft.init("alone").comm
        comm.dup().iallreduce(np.ones(5))
        weft.finalize()

    for _ in range(3):
        cycle()
    before = descriptors()
    for _ in range(50):
        cycle()
    assert descriptors() == before
