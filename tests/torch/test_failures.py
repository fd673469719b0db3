# SPDX-License-Identifier: Apache-2.0
"""What happens to the others when a rank dies or does something else."""

import os
import signal
import threading

import groups
import pytest
import torch
import torch.distributed as dist
import weft.torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel


def killed_in_backward():
    torch.manual_seed(0)
    layers = [nn.Linear(64, 64) for _ in range(6)]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.01)
    x = torch.randn(4, 64)
    model(x).sum().backward()
    hidden = model(x)
    groups.meet("all calls but those of the last backward are over")
    with pytest.raises(RuntimeError) as caught:
        groups.DieInBackward.apply(hidden).sum().backward()
        dist.barrier()
    text = str(caught.value)
    assert "rank 1" in text, text
    with pytest.raises(RuntimeError, match="rank 1"):
        dist.all_reduce(torch.ones(1))
    return text


def test_a_rank_killed_in_backward_is_named_by_all_others():
    ended = groups.start(3, killed_in_backward)
    assert ended[1].error == "ended with -9"
    for rank in (0, 2):
        assert ended[rank].error is None, ended[rank].error
        assert "rank 1" in ended[rank].value


def different_calls():
    rank = dist.get_rank()
    with pytest.raises(RuntimeError, match=r"rank 0 .*rank 1|rank 1 .*rank 0"):
        if rank == 0:
            dist.all_reduce(torch.ones(3))
        else:
            dist.all_reduce(torch.ones(4))


def test_different_calls_are_an_error_that_names_both():
    groups.run(2, different_calls)


def aborted():
    rank = dist.get_rank()
    backend = weft.torch.backend_of()
    if rank == 0:
        work = dist.irecv(torch.ones(3), 1)
        backend.abort()
        with pytest.raises(RuntimeError, match="abort"):
            work.wait()
        if groups.TORCH > (2, 11):  # which cannot show it to Python
            assert work.exception() is not None
        assert not work.is_success()
    with pytest.raises(RuntimeError, match="abort"):
        dist.barrier()


def test_abort_fails_everything_on_all_ranks():
    groups.run(2, aborted)


def failed_future():
    rank = dist.get_rank()
    groups.meet("the group is made")
    if rank == 1:
        os._exit(0)
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    with pytest.raises(RuntimeError, match="rank 1"):
        future.wait()


def test_a_future_fails_with_its_operation():
    ended = groups.start(2, failed_future)
    assert ended[0].error is None, ended[0].error


def one_leaves():
    rank = dist.get_rank()
    if rank == 2:
        dist.destroy_process_group()
    elif rank == 1:
        dist.recv(torch.zeros(1), 0)
    else:
        with pytest.raises(RuntimeError, match=r"rank 2 .* has left"):
            dist.recv(torch.zeros(1), 2)
        dist.send(torch.ones(1), 1)


def test_a_receive_from_a_rank_that_left_fails_alone():
    groups.run(3, one_leaves)


def in_detail():
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [size] * 3
    model = DistributedDataParallel(nn.Linear(3, 3))
    model(x).sum().backward()
    dist.barrier()
    if groups.TORCH > (2, 11):  # whose wrapper lacks the coalesced operations
        mesh = init_device_mesh("cpu", (size,))
        distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]).full_tensor()
    assert weft.torch.backend_of().rank() == rank
    with pytest.raises(RuntimeError, match=r"mismatch|inconsistent|Detected"):
        dist.all_reduce(torch.ones(3 + rank))


def test_torch_distributed_debug_detail():
    groups.run(2, in_detail, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


def interrupted(call):
    if dist.get_rank() == 1:
        with pytest.raises(RuntimeError, match="interrupted"):
            dist.recv(torch.zeros(1), 0, tag=9)  # which never comes
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    while not weft.torch.comm_of().broken:  # the signal may have come before the call
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            if call == "a collective":
                dist.barrier()
            elif call == "a sparse tensor":
                dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (2,)))
            else:
                dist.recv(torch.zeros(3), 1)
    with pytest.raises(RuntimeError, match="interrupted"):
        dist.barrier()


@pytest.mark.parametrize("call", ["a collective", "a receive", "a sparse tensor"])
def test_ctrl_c_is_a_keyboard_interrupt(call):
    groups.run(2, interrupted, call)


def leaves_without_destroying():
    x = torch.ones(3)
    dist.all_reduce(x)
    for _ in range(10):
        dist.all_reduce(torch.ones(10000), async_op=True)
    _never_comes = dist.irecv(x, 1 - dist.get_rank())
    groups.meet("all calls are made")  # none can be, once one of the two is gone
    os._exit(0)


def test_a_process_may_end_without_destroying_its_group():
    for ended in groups.start(2, leaves_without_destroying):
        assert ended.error == "ended with 0"
