# SPDX-License-Identifier: Apache-2.0
"""Tensors of a device through a weft-switch: staged through host memory, and summed there."""

import datetime
import os
import signal
import time

import devices
import groups
import pytest
import switches
import torch
import torch._dynamo  # DDP does it: here once, and not in every rank
import torch.distributed as dist
import weft.torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from weft._switch import PROGRAM

pytestmark = [
    pytest.mark.skipif(not PROGRAM.exists(), reason="weft-switch is not in the package"),
    pytest.mark.parametrize("device", devices.STAGED),
]
QUIET = {"WEFT_LOG": "error"}  # that a switch died is what these tests are about
# Seconds in which ranks must be back at a switch that is there again; it is no measure of speed.
BACK = 30


def run(switch, size, body, device, *args):
    environment = {**switch.environment(), **QUIET}
    return devices.run(size, body, device, *args, backend="sml", environment=environment)


def reduced(device, x, **how):
    """What an allreduce makes of a host's tensor that was put on the device."""
    on_device = x.to(devices.use(device), copy=True)
    work = dist.all_reduce(on_device, **how)
    if work is not None:
        work.wait()
    devices.settle(device)
    return on_device.cpu()


def sums(device, page):
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
        for n in (0, 1, 20001):
            for async_op in (False, True):
                numbers = torch.arange(n) % 50
                x = reduced(device, (numbers + rank).to(dtype), async_op=async_op)
                expected = (numbers * size + size * (size - 1) // 2).to(dtype)
                torch.testing.assert_close(x, expected, rtol=1e-6, atol=0)
    special = torch.tensor([float("nan"), float("inf"), 1.0, -float("inf")])
    torch.testing.assert_close(
        reduced(device, special), special * size, rtol=0, atol=0, equal_nan=True
    )
    groups.meet("all have their sums")
    assert rank != 0 or switches.chunks_at(page) > 200
    groups.meet("the switch has told")
    return reduced(device, torch.randn(5000, generator=torch.Generator().manual_seed(rank)))


@pytest.mark.parametrize(
    "switch", [("--inject", "loss=0.01,seed=5")], ids=["1 % loss"], indirect=True
)
def test_sums_are_right_and_the_same_on_all_ranks(switch, device):
    results = run(switch, 3, sums, device, switch.page)
    for x in results:
        assert torch.equal(x, results[0])


def train(device, page):
    """Gradients are views of what is reduced, so the double can be waited for before a step.

    DDP is made, and its buckets are, in calls whose results it looks at by itself.
    """
    kind = devices.use("cpu" if device == "double" else device)
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3)).to(kind)
    model = DistributedDataParallel(network, gradient_as_bucket_view=True, bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(20):
        if step == 2:
            devices.use(device)
        x = torch.randn(16, 20, generator=generator).to(kind)
        loss = nn.functional.mse_loss(model(x), x[:, :3].sin())
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        devices.settle(device)
        optimizer.step()
    groups.meet("all are trained")
    assert page is None or dist.get_rank() != 0 or switches.chunks_at(page) > 20
    groups.meet("the switch has told")
    return [p.detach().cpu() for p in model.parameters()]


def test_ddp_steps_are_those_of_gloo_on_the_host(switch, device):
    ours = run(switch, 2, train, device, switch.page)
    theirs = groups.run(2, train, "cpu", None, backend="gloo")
    for mine, other, peer in zip(*ours, theirs[0], strict=True):
        assert torch.equal(mine, other)
        torch.testing.assert_close(mine, peer, rtol=1e-3, atol=1e-5)


def outlives_the_switch(device, key, pid, port):
    """Rank 0 kills it while calls are under way, and starts it again."""
    rank, kind = dist.get_rank(), devices.use(device)
    tensors = [torch.full((1 << 18,), rank + i + 1.0, device=kind) for i in range(8)]
    reduced(device, torch.ones(1000))
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    if rank == 0:
        os.kill(pid, signal.SIGKILL)
    for work in works:
        work.wait()
    devices.settle(device)
    for i, x in enumerate(tensors):
        assert x.cpu().eq(2 * i + 3).all()
    groups.meet("all went on without it")
    again = switches.Switch(key, port) if rank == 0 else None
    groups.meet("it is there again")
    end = time.monotonic() + BACK
    back = torch.zeros(1)
    while back.item() == 0:
        assert time.monotonic() < end, "no call went through the switch that came back"
        assert reduced(device, torch.ones(1000)).eq(2).all()
        there = again is not None and switches.chunks_at(again.page) > 0
        back = reduced(device, torch.tensor([float(there)]))
    groups.meet("all are back")
    if again is not None:
        again.kill()


def test_calls_outlive_the_switch_and_go_back_to_it(switch, device):
    run(switch, 2, outlives_the_switch, device, switch.key, switch.process.pid, switch.port)


def waits_in_vain(device, place, key):
    """The switch answers, the other rank does not: an error, and NaN where a result would be."""
    kind = devices.use(device)
    options = weft.torch.Options(
        datetime.timedelta(seconds=1), switch=place, switch_key=key, engine="switch"
    )
    group = dist.new_group(backend="weft", pg_options=options)
    if dist.get_rank() == 0:
        x = torch.ones(1000, device=kind)
        work = dist.all_reduce(x, group=group, async_op=True)
        with pytest.raises(RuntimeError, match="Timed out waiting"):
            work.get_future().wait()
        devices.settle(device)
        assert x.isnan().all()
        with pytest.raises(RuntimeError, match="Timed out waiting"):
            dist.all_reduce(torch.ones(3, device=kind), group=group)
    groups.meet("all is over")


def test_a_timeout_is_an_error_and_poison(switch, device):
    run(switch, 2, waits_in_vain, device, f"127.0.0.1:{switch.port}", switch.key)
