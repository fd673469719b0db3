# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors: right results in the order of streams, and a host that goes on.

All ranks use the first GPU, and are started anew rather than forked.
"""

import gpu
import groups
import pytest
import torch
import torch.distributed as dist
from torch.autograd import DeviceType
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

pytestmark = gpu.needed()
SLOW = 400_000_000  # clock cycles, about a quarter of a second
N = 1 << 20


def warm_up():
    """Load kernels, make streams and pinned memory, so that nothing later waits for that."""
    x = torch.ones(N, device="cuda")
    for _ in range(3):
        dist.all_reduce(x, async_op=True).wait()
        dist.all_reduce(x)
    dist.broadcast(x, 0)
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()
    dist.barrier()


def every_operation():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        for async_op in (False, True):
            own = torch.full((5, 3), rank % 2, device="cuda").to(dtype)
            done = []
            x = own.clone()
            done.append(dist.all_reduce(x, dist.ReduceOp.MAX, async_op=async_op))
            y = own.t().contiguous().t()
            done.append(dist.broadcast(y, 1, async_op=async_op))
            outs = [torch.empty_like(own) for _ in range(size)]
            done.append(dist.all_gather(outs, own, async_op=async_op))
            flat = torch.empty(5 * size, 3, dtype=dtype, device="cuda")
            done.append(dist.all_gather_into_tensor(flat, own, async_op=async_op))
            swapped = torch.empty_like(flat)
            done.append(dist.all_to_all_single(swapped, flat, async_op=async_op))
            piece = torch.empty_like(own)
            op = dist.ReduceOp.MAX
            done.append(dist.reduce_scatter_tensor(piece, flat, op, async_op=async_op))
            for work in done:
                if work is not None:
                    work.wait()
            one = torch.ones(5, 3, device="cuda").to(dtype)
            assert torch.equal(x, one)
            assert torch.equal(y, one)
            for r, out in enumerate(outs):
                assert torch.equal(out, (one * (r % 2)).to(dtype))
            assert torch.equal(flat, torch.cat(outs))
            assert torch.equal(swapped, torch.cat([outs[rank]] * size))
            assert torch.equal(piece, outs[rank])


def test_every_operation():
    groups.run(2, every_operation, context=groups.SPAWN)


def stream_order():
    size = dist.get_world_size()
    warm_up()
    for async_op in (False, True):
        x = torch.zeros(N, device="cuda")
        slept = torch.cuda.Event()
        torch.cuda._sleep(SLOW)
        slept.record()
        x.fill_(1)  # the call must wait for this, and for the sleep
        work = dist.all_reduce(x, async_op=async_op)
        if work is not None:
            work.wait()
        result = x.clone()  # comes after the call
        x.fill_(7)  # and so does this
        assert not slept.query(), "the host waited for the device"
        torch.cuda.synchronize()
        assert torch.equal(result, torch.full_like(result, size))


def test_calls_are_in_the_order_of_the_stream_and_the_host_goes_on():
    groups.run(2, stream_order, context=groups.SPAWN)


def side_stream():
    size = dist.get_world_size()
    warm_up()
    side = torch.cuda.Stream()
    x = torch.zeros(N, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(SLOW)
        x.fill_(2)
        work = dist.all_reduce(x, async_op=True)
    work.wait()  # the current stream waits, not the one of the call
    y = x + 1
    assert torch.equal(y, torch.full_like(y, 2 * size + 1))


def test_another_stream_may_wait():
    groups.run(2, side_stream, context=groups.SPAWN)


def mixed():
    """Host and device tensors in turn, and both ways of waiting."""
    size = dist.get_world_size()
    for _ in range(20):
        a, b = torch.ones(100, device="cuda"), torch.ones(100)
        work = dist.all_reduce(a, async_op=True)
        dist.all_reduce(b)
        c = dist.all_reduce(torch.ones(7, device="cuda"), async_op=True).get_future()
        work.wait()
        assert b[0] == size
        assert a.sum().item() == 100 * size
        assert c.wait()[0].sum().item() == 7 * size
    dist.barrier()


def test_host_and_device_tensors_in_turn():
    groups.run(2, mixed, context=groups.SPAWN)


def messages():
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for n in (1, 3_000_000):
        got, own = torch.zeros(n, device="cuda"), torch.full((n,), float(rank), device="cuda")
        ops = [dist.P2POp(dist.irecv, got, left), dist.P2POp(dist.isend, own, right)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert torch.equal(got, torch.full((n,), float(left), device="cuda"))


def test_messages_whose_receives_are_posted_first():
    groups.run(3, messages, context=groups.SPAWN)


def traced():
    warm_up()
    x = torch.ones(N, device="cuda")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        for _ in range(3):
            dist.all_reduce(x, async_op=True).wait()
            dist.all_reduce(x)
    # Ranges that enclose kernels are shown once more, as the device's.
    names = [e.name for e in trace.events() if e.device_type == DeviceType.CPU]
    assert names.count("weft:all_reduce") == 6
    # The end of the profile itself waits for the device, once.
    assert names.count("cudaStreamSynchronize") == 0, names
    assert names.count("cudaEventSynchronize") == 0, names
    assert names.count("cudaDeviceSynchronize") <= 2, names


def test_the_profiler_shows_no_host_that_waits():
    groups.run(2, traced, context=groups.SPAWN)


def train():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    model = DistributedDataParallel(model.cuda(), bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(5):
        model(torch.randn(16, 64, generator=generator).cuda()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().cpu() for p in model.parameters()]


def test_data_parallel_training():
    groups.same_as_gloo(2, train, exact=False, context=groups.SPAWN)


def beside_nccl():
    """One rank, because NCCL refuses two on one GPU."""
    host, device = torch.full((4,), 2.0), torch.full((4,), 3.0, device="cuda")
    dist.all_reduce(host)
    dist.all_reduce(device)
    assert host[0] == 2
    assert device[0].item() == 3
    group = dist.group.WORLD
    return [group._get_backend(torch.device(d)).name() for d in ("cpu", "cuda")]


def test_nccl_can_have_the_cuda_tensors():
    if not dist.is_nccl_available():
        pytest.skip("this torch has no NCCL")
    assert groups.run(1, beside_nccl, backend="cpu:weft,cuda:nccl", context=groups.SPAWN) == [
        ["weft", "nccl"]
    ]
