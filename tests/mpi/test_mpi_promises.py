# SPDX-License-Identifier: Apache-2.0
"""The same bits in every run; receives that stand ready; what is broken stays so."""

import time

import jobs
import pytest
import torch
import weft
from weft import mpi
from weft.compat import mpi4torch

N = 50_001  # elements; more than go with the call


def trained(comm):
    """Values and gradients whose sums depend on the order in which they are added."""
    generator = torch.Generator().manual_seed(comm.rank)
    results = []
    for n in (7, N):
        x = torch.randn(n, generator=generator) * 10.0 ** (comm.rank - 1)
        x.requires_grad_()
        y = comm.Allreduce(x * x)
        z = comm.Wait(comm.Iallreduce(x * x))
        assert torch.equal(y, z)
        mpi.backward((comm.Allgather(y * 3).sum() * x.sum()).sin())
        results += [y.detach(), x.grad]
    return results


def test_all_runs_give_the_same_bits_of_values_and_gradients():
    first, again = jobs.run(3, trained), jobs.run(3, trained)
    for ours, theirs in zip(first, again, strict=True):
        for x, y in zip(ours, theirs, strict=True):
            assert torch.equal(x, y)
    for ours in first[1:]:
        assert torch.equal(ours[0], first[0][0]) and torch.equal(ours[2], first[0][2])


def standing(comm):
    """A receive that is only asked for is not over when the time is."""
    if comm.rank == 0:
        handle = comm.Irecv(torch.empty(3), 1, 5)
        comm.weft_comm.timeout = 0.05
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            assert not handle.test()
        comm.weft_comm.timeout = 60.0
    comm.Barrier()
    if comm.rank == 1:
        comm.Send(torch.ones(3), 0, 5)
    else:
        assert comm.Wait(handle).tolist() == [1, 1, 1]


def test_a_receive_that_is_only_asked_for_has_no_deadline():
    jobs.run(2, standing)


def broken(comm):
    """Of the first error that others have a part in, all later calls tell."""
    texts = []
    for call in (comm.Allreduce, comm.Alltoall, comm.Bcast):
        with pytest.raises(weft.MismatchError) as caught:
            call(torch.ones(2 if comm.rank else 4))
        texts.append(str(caught.value).partition(": ")[2])
    assert len(set(texts)) == 1, texts
    return texts[0]


def test_later_calls_fail_with_the_text_of_the_first():
    told = jobs.run(2, broken)
    assert told[0] == told[1]


def old_names(comm):
    with pytest.raises(weft.MismatchError, match=r"rank [01] .*rank [01] "):
        mpi4torch.COMM_WORLD.Allreduce(torch.ones(2 if comm.rank else 3), mpi4torch.MPI_SUM)
    with pytest.raises(weft.MismatchError, match=r"rank [01] .*rank [01] "):
        mpi4torch.COMM_WORLD.Bcast_(torch.ones(2), 0)


def test_different_calls_of_the_old_names_are_an_error_that_names_both():
    jobs.run(2, old_names)
