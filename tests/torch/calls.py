# SPDX-License-Identifier: Apache-2.0
"""Every operation of a process group, as rank 0 calls it.

    for call in calls.ALL.values():
        work, outputs = call(group, device, async_op)

What rank 1 would have to do is left out: these calls are there to fail. Where
only one rank gets a result, it is rank 0. They are made on the group itself: what
torch.distributed logs of an error, it has for groups only that it made.
"""

import torch
import torch.distributed.distributed_c10d as c10d

N = 5


def _options(kind, async_op, root=None):
    options = kind()
    options.asyncOp = async_op
    if root is not None:
        options.rootRank = root
    return options


def _ones(device, pieces=1):
    return torch.ones(N * pieces, device=device)


def _each(group, device):
    return [torch.ones(N, device=device) for _ in range(group.size())]


def _waited(work, async_op):
    """What has no other form is waited for, which is what torch.distributed does."""
    if async_op:
        return work
    work.wait()
    return None


def _all_reduce(group, device, async_op):
    x = _ones(device)
    return group.allreduce([x], _options(c10d.AllreduceOptions, async_op)), [x]


def _all_reduce_coalesced(group, device, async_op):
    xs = _each(group, device)
    return group.allreduce_coalesced(xs, _options(c10d.AllreduceCoalescedOptions, async_op)), xs


def _broadcast(group, device, async_op):
    x = _ones(device)
    return group.broadcast([x], _options(c10d.BroadcastOptions, async_op, 1)), [x]


def _reduce(group, device, async_op):
    x = _ones(device)
    return group.reduce([x], _options(c10d.ReduceOptions, async_op, 0)), [x]


def _all_gather(group, device, async_op):
    xs, own = _each(group, device), _ones(device)
    return group.allgather([xs], [own], _options(c10d.AllgatherOptions, async_op)), xs


def _all_gather_into_tensor(group, device, async_op):
    x, own = _ones(device, group.size()), _ones(device)
    return group._allgather_base(x, own, _options(c10d.AllgatherOptions, async_op)), [x]


def _all_gather_coalesced(group, device, async_op):
    xs = [_ones(device, group.size()) for _ in range(2)]
    inputs = [_ones(device) for _ in range(2)]
    return _waited(group.allgather_into_tensor_coalesced(xs, inputs), async_op), xs


def _gather(group, device, async_op):
    xs, own = _each(group, device), _ones(device)
    return group.gather([xs], [own], _options(c10d.GatherOptions, async_op, 0)), xs


def _scatter(group, device, async_op):
    x = _ones(device)
    return group.scatter([x], [], _options(c10d.ScatterOptions, async_op, 1)), [x]


def _reduce_scatter(group, device, async_op):
    x, inputs = _ones(device), _each(group, device)
    return group.reduce_scatter([x], [inputs], _options(c10d.ReduceScatterOptions, async_op)), [x]


def _reduce_scatter_tensor(group, device, async_op):
    x, whole = _ones(device), _ones(device, group.size())
    return group._reduce_scatter_base(x, whole, _options(c10d.ReduceScatterOptions, async_op)), [x]


def _reduce_scatter_coalesced(group, device, async_op):
    xs = [_ones(device) for _ in range(2)]
    inputs = [_ones(device, group.size()) for _ in range(2)]
    options = _options(c10d.ReduceScatterOptions, async_op)
    return group.reduce_scatter_tensor_coalesced(xs, inputs, options), xs


def _all_to_all(group, device, async_op):
    xs, inputs = _each(group, device), _each(group, device)
    return group.alltoall(xs, inputs, _options(c10d.AllToAllOptions, async_op)), xs


def _all_to_all_single(group, device, async_op):
    x, whole = (_ones(device, group.size()) for _ in range(2))
    return group.alltoall_base(x, whole, [], [], _options(c10d.AllToAllOptions, async_op)), [x]


def _recv(group, device, async_op):
    x = _ones(device)
    return _waited(group.recv([x], 1, 0), async_op), [x]


def _recv_of_any(group, device, async_op):
    x = _ones(device)
    return _waited(group.recv_anysource([x], 0), async_op), [x]


def _recv_of_many(group, device, async_op):
    """In a batch, whose Works are one."""
    xs = [_ones(device) for _ in range(2)]
    backend = group._get_backend(xs[0].device)
    backend._start_coalescing()
    for tag, x in enumerate(xs):
        group.recv([x], 1, tag)
    return _waited(backend._end_coalescing(), async_op), xs


MESSAGES = {"recv": _recv, "recv of any": _recv_of_any, "recv of many": _recv_of_many}
COLLECTIVES = {
    "all_reduce": _all_reduce,
    "all_reduce_coalesced": _all_reduce_coalesced,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "all_gather_into_tensor_coalesced": _all_gather_coalesced,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "reduce_scatter_tensor_coalesced": _reduce_scatter_coalesced,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
}
ALL = {**COLLECTIVES, **MESSAGES}
