# SPDX-License-Identifier: Apache-2.0
"""What is built on torch.distributed gives over weft what it gives over gloo."""

import contextlib
import copy
import os
import tempfile

import groups
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.checkpoint as dcp
import torch.distributed.nn.functional as dist_nn
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    """A model with a branch that is not always used, a buffer and many sizes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(8, 50)
        self.norm = nn.BatchNorm1d(50)
        self.often = nn.Linear(50, 3)
        self.seldom = nn.Linear(50, 3)

    def forward(self, x, seldom=False):
        x = self.norm(torch.relu(self.first(x)))
        return (self.seldom if seldom else self.often)(x)


def batch(step):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return torch.randn(6, 8, generator=generator), torch.randn(6, 3, generator=generator)


def state(model):
    return [p.detach().clone() for p in model.parameters()]


def train(model, optimizer, steps=4, quiet=(), **arguments):
    for step in range(steps):
        x, y = batch(step)
        hush = model.no_sync() if step in quiet else contextlib.nullcontext()
        with hush:
            nn.functional.mse_loss(model(x, **arguments), y).backward()
        if step not in quiet:
            optimizer.step()
            optimizer.zero_grad()
    return state(model)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def ddp_plain():
    model = DistributedDataParallel(Model(), find_unused_parameters=True)
    return train(model, sgd(model))


def ddp_find_unused():
    model = DistributedDataParallel(Model(), find_unused_parameters=True, bucket_cap_mb=0.001)
    return train(model, sgd(model), seldom=dist.get_rank() == 0)


def ddp_no_sync():
    model = DistributedDataParallel(Model(), find_unused_parameters=True)
    return train(model, sgd(model), quiet=(0, 2))


def ddp_static_graph():
    model = DistributedDataParallel(Model(), static_graph=True, gradient_as_bucket_view=True)
    return train(model, sgd(model))


def ddp_hook(hook, make_state=lambda: None):
    """Every parameter is used: callbacks of a hook that communicate would race
    with what DDP sends to find unused ones."""
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(8, 50), nn.ReLU(), nn.Linear(50, 3))
    model = DistributedDataParallel(layers)
    model.register_comm_hook(make_state(), hook)
    return train(model, sgd(model), steps=8)


def ddp_allreduce_hook():
    return ddp_hook(default_hooks.allreduce_hook)


def ddp_fp16_hook():
    return ddp_hook(default_hooks.fp16_compress_hook)


def ddp_powersgd_hook():
    def make():
        return powerSGD_hook.PowerSGDState(
            None, start_powerSGD_iter=3, matrix_approximation_rank=1, min_compression_rate=1
        )

    return ddp_hook(powerSGD_hook.powerSGD_hook, make)


def ddp_join():
    """Ranks with different numbers of batches."""
    model = DistributedDataParallel(Model(), find_unused_parameters=True)
    optimizer = sgd(model)
    with Join([model]):
        train(model, optimizer, steps=2 + dist.get_rank())
    return state(model)


def zero_optimizer():
    model = DistributedDataParallel(Model(), find_unused_parameters=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    result = train(model, optimizer)
    optimizer.consolidate_state_dict(0)
    return result


def synced_batch_norm_buffers():
    model = DistributedDataParallel(Model(), find_unused_parameters=True)
    train(model, sgd(model))
    model(batch(9)[0])
    return [b.clone() for b in model.buffers()]


# Two ranks add two numbers, in whichever order: results are equal to the bit.
EXACT = [
    *(ddp_plain, ddp_find_unused, ddp_no_sync, ddp_static_graph, ddp_allreduce_hook),
    *(ddp_fp16_hook, ddp_powersgd_hook, ddp_join, zero_optimizer),
    synced_batch_norm_buffers,
]


@pytest.mark.parametrize("body", EXACT, ids=lambda f: f.__name__)
def test_data_parallel_training(body):
    groups.same_as_gloo(2, body)


def test_data_parallel_training_on_more_ranks():
    groups.same_as_gloo(4, ddp_plain, exact=False)


def fsdp2(dtype):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(8, 33), nn.ReLU(), nn.Linear(33, 3)).to(dtype)
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(3):
        x, y = batch(step)
        nn.functional.mse_loss(model(x.to(dtype)), y.to(dtype)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return [p.full_tensor().detach() for p in model.parameters()]


def fsdp2_f32():
    return fsdp2(torch.float32)


def fsdp2_bf16():
    return [t.isfinite().all() for t in fsdp2(torch.bfloat16)]


def test_fsdp2():
    groups.same_as_gloo(2, fsdp2_f32, exact=False)


def test_fsdp2_in_bf16():
    assert all(all(rank) for rank in groups.run(2, fsdp2_bf16))


def fsdp2_own_memory():
    """Communication buffers that come from the process group."""
    torch.manual_seed(2)
    model = nn.Linear(8, 3)
    fully_shard(model)
    if not hasattr(model, "set_allocate_memory_from_process_group_for_comm"):
        return None
    model.set_allocate_memory_from_process_group_for_comm(True)
    x, y = batch(0)
    nn.functional.mse_loss(model(x), y).backward()
    return [p.grad.full_tensor() for p in model.parameters()]


def test_fsdp2_with_memory_of_the_group():
    groups.run(2, fsdp2_own_memory)


def dtensors():
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    x = torch.arange(24.0).reshape(4, 6)
    sharded = distribute_tensor(x, mesh, [Shard(0)])
    moved = sharded.redistribute(mesh, [Shard(1)])
    partial = DTensor.from_local(x * (dist.get_rank() + 1), mesh, [Partial()])
    return [
        moved.to_local().contiguous(),
        sharded.full_tensor(),
        partial.redistribute(mesh, [Replicate()]).to_local(),
        partial.redistribute(mesh, [Shard(0)]).to_local().contiguous(),
        (moved @ distribute_tensor(x.t().contiguous(), mesh, [Shard(0)])).full_tensor(),
    ]


def mesh_of_two_dimensions():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    x = distribute_tensor(torch.arange(16.0).reshape(4, 4), mesh, [Shard(0), Shard(1)])
    total = torch.full((3,), float(dist.get_rank()))
    dist.all_reduce(total, group=mesh["tp"].get_group())
    return [x.full_tensor(), total, (x * 2).sum().full_tensor()]


def test_dtensor():
    groups.same_as_gloo(2, dtensors)


def test_device_mesh_of_two_dimensions():
    groups.same_as_gloo(4, mesh_of_two_dimensions)


def tensor_parallel():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(model, mesh, plan)
    generator = torch.Generator().manual_seed(5)
    out = model(torch.randn(5, 8, generator=generator))
    out.sum().backward()
    return [out.detach(), *(p.grad.full_tensor() for p in model.parameters())]


def test_tensor_parallel():
    groups.same_as_gloo(2, tensor_parallel)


def save(folder):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    x = distribute_tensor(torch.arange(40.0).reshape(10, 4), mesh, [Shard(0)])
    dcp.save({"x": x, "step": 7}, checkpoint_id=folder)


def load(folder):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    x = distribute_tensor(torch.zeros(10, 4), mesh, [Shard(0)])
    values = {"x": x, "step": 0}
    dcp.load(values, checkpoint_id=folder)
    assert torch.equal(values["x"].full_tensor(), torch.arange(40.0).reshape(10, 4))
    assert values["step"] == 7


def test_a_checkpoint_is_loaded_by_another_number_of_ranks():
    with tempfile.TemporaryDirectory() as folder:
        groups.run(2, save, folder)
        groups.run(3, load, folder)


def pipeline():
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    layers = [nn.Linear(8, 8) for _ in range(size)]
    stage = PipelineStage(layers[rank], rank, size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 4, loss_fn=nn.functional.mse_loss)
    generator = torch.Generator().manual_seed(6)
    x, y = torch.randn(8, 8, generator=generator), torch.randn(8, 8, generator=generator)
    losses = []
    if rank == 0:
        schedule.step(x)
    elif rank == size - 1:
        schedule.step(target=y, losses=losses)
    else:
        schedule.step()
    return [p.grad for p in layers[rank].parameters()] + [loss.detach() for loss in losses]


@pytest.mark.parametrize("size", [2, 3])
def test_pipeline(size):
    groups.same_as_gloo(size, pipeline)


def objects():
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = {"rank": rank, "text": "x" * (1000 * rank)}
    everyone = [None] * size
    dist.all_gather_object(everyone, mine)
    assert [o["rank"] for o in everyone] == list(range(size))
    gathered = [None] * size if rank == 1 else None
    dist.gather_object(mine, gathered, dst=1)
    assert rank != 1 or [len(o["text"]) for o in gathered] == [1000 * r for r in range(size)]
    given = [mine if rank == 0 else None]
    dist.broadcast_object_list(given, src=0)
    assert given[0]["rank"] == 0
    taken = [None]
    dist.scatter_object_list(taken, [{"to": r} for r in range(size)] if rank == 0 else None, src=0)
    assert taken == [{"to": rank}]
    if rank == 0:
        dist.send_object_list([mine], dst=1)
    elif rank == 1:
        received = [None]
        dist.recv_object_list(received, src=0)
        assert received[0]["rank"] == 0


def test_objects():
    groups.run(3, objects)


def functional():
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD
    x = torch.arange(4.0 * size) + rank
    results = [
        funcol.all_reduce(x, "sum", group),
        funcol.all_reduce(x, "avg", group),
        funcol.all_gather_tensor(x, 0, group),
        funcol.reduce_scatter_tensor(x, "sum", 0, group),
        funcol.all_to_all_single(x, None, None, group),
        funcol.broadcast(x, 1, group),
        *funcol.all_reduce_coalesced([x, x * 2], "sum", group),
        *funcol.all_gather_into_tensor_coalesced([x, x[:2]], group),
        *funcol.reduce_scatter_tensor_coalesced([x, x * 2], "sum", [0, 0], group),
    ]
    return [torch.as_tensor(r) + 0 for r in results]


def functional_without_avg():
    """gloo cannot take the mean."""
    results = functional() if dist.get_backend() == "weft" else None
    group = dist.group.WORLD
    x = torch.arange(4.0 * dist.get_world_size()) + dist.get_rank()
    if results is not None:
        assert torch.equal(results[1], results[0] / dist.get_world_size())
    return [
        funcol.all_reduce(x, "sum", group) + 0,
        funcol.all_gather_tensor(x, 0, group) + 0,
        funcol.reduce_scatter_tensor(x, "sum", 0, group) + 0,
        funcol.all_to_all_single(x, None, None, group) + 0,
        funcol.broadcast(x, 1, group) + 0,
    ]


def test_functional_collectives():
    groups.same_as_gloo(2, functional_without_avg)


def compiled(compiler):
    group = dist.group.WORLD

    def step(x):
        y = x * 2
        dist.all_reduce(y)
        z = funcol.all_gather_tensor(y, 0, group)
        w = funcol.reduce_scatter_tensor(z, "sum", 0, group)
        return w + 1

    x = torch.arange(6.0) + dist.get_rank()
    fast = torch.compile(step, fullgraph=True, backend=compiler)
    return [fast(x), fast(x + 1), step(x)]


def test_compiled_collectives():
    groups.same_as_gloo(2, compiled, "aot_eager")


@pytest.mark.skipif(os.environ.get("WT_FULL") != "1", reason="compiles C++; WT_FULL=1 runs it")
def test_collectives_compiled_by_inductor():
    groups.same_as_gloo(2, compiled, "inductor")


def differentiable():
    rank = dist.get_rank()
    results = []
    for function in (
        dist_nn.all_reduce,
        lambda x: torch.stack(dist_nn.all_gather(x)),
        lambda x: dist_nn.broadcast(x, 0),
        lambda x: dist_nn.reduce(x, 1),
        lambda x: dist_nn.all_to_all_single(torch.empty_like(x), x),
        lambda x: dist_nn.scatter([x, x * 2], 0),
    ):
        x = (torch.arange(4.0) + rank).requires_grad_()
        y = function(x)
        (y * (rank + 1)).sum().backward()
        results += [y.detach().clone(), x.grad if x.grad is not None else torch.zeros(4)]
    # Only rank 1 gets the result of the reduce; the others' memory is anything.
    return results if rank == 1 else results[:6] + results[7:]


def test_differentiable_collectives():
    groups.same_as_gloo(2, differentiable)


def deep_copies():
    model = DistributedDataParallel(Model(), find_unused_parameters=True)
    other = copy.deepcopy(model.module)
    return state(other)


def test_models_of_a_group_can_be_copied():
    groups.same_as_gloo(2, deep_copies)
