# SPDX-License-Identifier: Apache-2.0
"""Selective checkpointing: what a policy keeps is not communicated again, and is right."""

import functools
import time

import jobs
import pytest
import torch
import weft
from torch.utils import checkpoint
from torch.utils.checkpoint import CheckpointPolicy
from weft import mpi

close = torch.testing.assert_close
D = torch.float64


def neighbours(comm):
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def exchanged(comm, x):
    up, down = neighbours(comm)
    return comm.Sendrecv(x.sin(), up, 1, x, down, 1).cos()


def several_steps(comm, x):
    up, down = neighbours(comm)
    comm.Send(x.sin(), up, 1)
    y = comm.Recv(x, down, 1)
    comm.Send(y * x, up, 2)
    z = comm.Recv(x, down, 2)
    return z * z * y


def data_among_them(comm, x):
    """A receive of what is not recorded is none in the second pass, too."""
    up, down = neighbours(comm)
    comm.Send(x.detach() * 2, up, 1)
    y = comm.Recv(x, down, 1)
    return comm.Sendrecv(y * x, up, 1, x, down, 1) * y


def towards_the_last(comm, x):
    """Ranks do not send and receive alike."""
    if comm.rank > 0:
        x = x + comm.Recv(x, mpi.ANY_SOURCE).sin()
    if comm.rank < comm.size - 1:
        comm.Send(x, comm.rank + 1)
    return x * x


def started(comm, x):
    up, down = neighbours(comm)
    handles = [comm.Irecv(x, down, 1), comm.Isend(x.sin(), up, 1)]
    return comm.Waitall(handles)[0] * x.cos()


def collectives(comm, x):
    y = comm.Wait(comm.Iallreduce(x.sin()))
    return comm.Scan(comm.Allreduce(y * x, mpi.MAX)) * comm.Allreduce(x, mpi.PROD)


PROGRAMS = [exchanged, several_steps, data_among_them, towards_the_last, started, collectives]


def keeps_sines(ctx, op, *args, **kwargs):
    """All that is communicated is communicated again."""
    if op is torch.ops.aten.sin.default:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def context_of(policy):
    return functools.partial(checkpoint.create_selective_checkpoint_contexts, policy)


def outcome(comm, step):
    """Two steps, one behind the other."""
    x = ((torch.arange(3.0, dtype=D) + comm.rank + 1) / 4).requires_grad_()
    loss = (step(step(x.cos())) ** 2).sum()
    mpi.backward(loss)
    assert comm.history == 0
    return loss.detach(), x.grad


def right(comm):
    for program in PROGRAMS:
        step = functools.partial(program, comm)
        expected = outcome(comm, step)
        for policy in (mpi.checkpoint_policy, keeps_sines):
            kept = functools.partial(
                checkpoint.checkpoint, step, use_reentrant=False, context_fn=context_of(policy)
            )
            close(outcome(comm, kept), expected, msg=lambda text, at=program: f"{at}: {text}")
            comm.Barrier()


@pytest.mark.parametrize("size", jobs.SIZES)
def test_policies_of_every_kind_of_communication(size):
    jobs.run(size, right)


def keeps_sends(ctx, op, *args, **kwargs):
    if op is torch.ops.weft.send.default:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def half_kept(comm):
    step = functools.partial(several_steps, comm)
    began = time.monotonic()
    with pytest.raises(weft.MismatchError, match="keeps the results of some messages"):
        outcome(
            comm,
            functools.partial(
                checkpoint.checkpoint, step, use_reentrant=False, context_fn=context_of(keeps_sends)
            ),
        )
    assert time.monotonic() - began < 20


def test_a_policy_that_keeps_sends_and_receives_again_is_refused_at_once():
    jobs.run(3, half_kept)
