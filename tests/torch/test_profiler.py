# SPDX-License-Identifier: Apache-2.0
"""What the profiler shows of operations, waited for or not."""

import groups
import pytest
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile


def traced(async_op):
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.ones(3, 5)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as trace:
        works = [
            dist.all_reduce(x, async_op=async_op),
            dist.broadcast(x, 0, async_op=async_op),
            dist.all_gather([torch.empty(3, 5) for _ in range(size)], x, async_op=async_op),
            dist.barrier(async_op=async_op),
        ]
        for work in works:
            if work is not None:
                work.wait()
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)
    events = list(trace.events())
    names = [e.name for e in events]
    message = "weft:send" if rank == 0 else "weft:recv"
    for name in ("weft:all_reduce", "weft:broadcast", "weft:all_gather", "weft:barrier", message):
        assert names.count(name) == 1, (name, names)
    reduce = next(e for e in events if e.name == "weft:all_reduce")
    assert reduce.is_async
    assert reduce.input_shapes == [[3, 5]]
    assert names.count("record_param_comms") >= 5, names


@pytest.mark.parametrize("async_op", [False, True])
def test_each_operation_is_one_event_with_shapes(async_op):
    groups.run(2, traced, async_op)
