# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors: the same values, gradients and errors, and the same order over devices.

All ranks use the first GPU, and are started anew rather than forked.
"""

import os
import signal

import gpu
import jobs
import pytest
import torch
import weft
from cases import cases, inputs, real_cases
from test_order import fuzz
from weft import mpi

pytestmark = gpu.needed()


def gradients(comm):
    for case in [*cases(), *real_cases()]:
        if "Exscan" in case.name:
            continue  # infinities on rank 0
        xs = [x.requires_grad_() for x in inputs(case, comm.size, torch.float64)]
        ys = case.all_ranks(xs)
        value = sum(((r + 1) * y * y).sum() for r, y in enumerate(ys))
        grads = torch.autograd.grad(value, xs, allow_unused=True)
        x = xs[comm.rank].detach().cuda().requires_grad_()
        y = case.ours(comm, x)
        assert y.is_cuda, case.name
        torch.testing.assert_close(y.cpu(), ys[comm.rank], msg=case.name)
        mpi.backward(((comm.rank + 1) * y * y).sum())
        expected = grads[comm.rank]
        expected = torch.zeros(x.shape, dtype=x.dtype) if expected is None else expected
        torch.testing.assert_close(x.grad.cpu(), expected, msg=case.name)


@pytest.mark.parametrize("size", (1, 3))
def test_gradients_of_every_operation(size):
    jobs.run(size, gradients, context=jobs.SPAWN)


def test_order_over_two_devices():
    jobs.run(2, fuzz, 900, 50, "cpu", "cuda", context=jobs.SPAWN)
    jobs.run(2, fuzz, 950, 20, "cuda", context=jobs.SPAWN)


def killed(comm, device):
    """There, back, and in a message, on a communicator each; whoever waits is told at once."""
    x = torch.ones(3, device=device, requires_grad=True)
    back, message = comm.Dup(), comm.Dup()
    loss = back.Allreduce(x * 2).sum()
    comm.Barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for call in (
        lambda: comm.Allreduce(x.detach()),
        lambda: mpi.backward(loss, back),
        lambda: message.Recv(x.detach(), 1),
    ):
        with pytest.raises(weft.PeerError, match=r"rank 1 .*died"):
            call()


def test_a_killed_rank_is_named_there_and_back():
    ended = jobs.start(2, killed, "cuda", timeout=3600.0, context=jobs.SPAWN)
    assert ended[0].error is None, ended[0].error
    assert ended[1].error == "ended with -9"


def different(comm, device):
    """Of a call and of a message; later calls tell the same."""
    n = 2 if comm.rank else 3
    message = comm.Dup()
    for _ in range(2):
        with pytest.raises(weft.MismatchError, match=r"rank [01] .*rank [01] "):
            comm.Allreduce(torch.ones(n, device=device))
    if comm.rank == 0:
        message.Send(torch.ones(n, device=device), 1)
    else:
        with pytest.raises(weft.MismatchError, match="rank 0"):
            message.Recv(torch.ones(n, device=device), 0)


def test_different_calls_are_an_error_that_names_both():
    jobs.run(2, different, "cuda", context=jobs.SPAWN)


def late(comm, device):
    """A rank that does not come is named when the time is over."""
    if comm.rank == 0:
        comm.weft_comm.timeout = 0.3
        with pytest.raises(weft.TimeoutError, match="rank 1 "):
            comm.Allreduce(torch.ones(3, device=device))
    else:
        with pytest.raises(weft.TimeoutError):
            comm.Recv(torch.ones(3, device=device), 0)


def test_a_rank_that_does_not_come_is_named():
    jobs.run(2, late, "cuda", timeout=3600.0, context=jobs.SPAWN)
