# SPDX-License-Identifier: Apache-2.0
"""What is done with arguments that are odd, or cannot be right.

They are refused in torch's own words, by a ValueError or a TypeError: so does NCCL's
backend, and so do the checks of torch.distributed. gloo's backend raises RuntimeError.
"""

import groups
import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d


def options(kind, root):
    made = kind()
    made.rootRank = root
    return made


def refused():
    group, rank, size = dist.group.WORLD, dist.get_rank(), dist.get_world_size()
    other = (rank + 1) % size
    x, double, long = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)

    def broadcast(root):
        group.broadcast([x], options(c10d.BroadcastOptions, root))

    def reduce(root):
        group.reduce([x], options(c10d.ReduceOptions, root))

    def gather(outputs, inputs, root=rank):
        group.gather(outputs, inputs, options(c10d.GatherOptions, root))

    def scatter(outputs, inputs, root=rank):
        group.scatter(outputs, inputs, options(c10d.ScatterOptions, root))

    for root in (-1, size):
        for call in (
            broadcast,
            reduce,
            lambda r: gather([], [x], r),
            lambda r: scatter([x], [], r),
        ):
            with pytest.raises(ValueError, match=f"invalid root rank: {root}"):
                call(root)
        with pytest.raises(ValueError, match=f"invalid destination rank: {root}"):
            group.send([x], root, 0)
        with pytest.raises(ValueError, match=f"invalid source rank: {root}"):
            group.recv([x], root, 0)
    single = "requires a single-element"
    each = [x] * size
    for text, call in [
        (single, lambda: group.allreduce([x, x])),
        (single, lambda: group.broadcast([x, x], options(c10d.BroadcastOptions, 0))),
        (single, lambda: group.reduce([x, x], options(c10d.ReduceOptions, 0))),
        (single, lambda: gather([each], [x, x])),
        (single, lambda: gather([], [x])),
        (single, lambda: gather([each, each], [x])),
        ("Incorrect output list size 1. Output list size should be 2", lambda: gather([[x]], [x])),
        ("Incorrect output list size 3", lambda: gather([[x, x, x]], [x])),
        ("invalid tensor size", lambda: gather([[long] * size], [x])),
        ("requires empty output on non-root", lambda: gather([each], [x], other)),
        (single, lambda: scatter([x, x], [each])),
        (single, lambda: scatter([x], [])),
        ("Incorrect input list size 1. Input list size should be 2", lambda: scatter([x], [[x]])),
        ("invalid tensor size", lambda: scatter([x], [[long] * size])),
        ("requires empty input on non-root", lambda: scatter([x], [each], other)),
        ("Incorrect output list size 1", lambda: group.allgather([[x]], [x])),
        ("invalid tensor size", lambda: group.allgather([[long] * size], [x])),
        ("invalid tensor size", lambda: group._allgather_base(x, x)),
        (
            "output lists should be equal to world size",
            lambda: group.allgather_coalesced([[x]], [x]),
        ),
    ]:
        with pytest.raises(ValueError, match=text):
            call()
    for call in [
        lambda: gather([[double] * size], [x]),
        lambda: scatter([x], [[double] * size]),
        lambda: group.allgather([[double] * size], [x]),
    ]:
        with pytest.raises(TypeError, match="invalid tensor type"):
            call()
    x = torch.ones(2)
    dist.all_reduce(x)  # nothing was sent
    assert x.tolist() == [size] * 2


def test_what_cannot_be_right_is_refused_in_the_words_of_torch():
    groups.run(2, refused)


def repeated():
    """A tensor that a list names twice, and a part of one."""
    rank = dist.get_rank()
    results = []
    for count in (3, 100_000):
        x, y = torch.full((count,), rank + 1.0), torch.full((2, count), rank + 2.0)
        for tensors in ([x, x], [x, y, y, x], [y, y[1], y.t()]):
            dist.all_reduce_coalesced(tensors)
            results += [t.clone() for t in tensors]
            future = dist.all_reduce_coalesced(tensors, async_op=True)
            results += [t.clone() for t in future.wait()]
    return results


def test_a_tensor_that_a_list_names_twice_is_reduced_once():
    groups.same_as_gloo(2, repeated)
    groups.same_as_gloo(3, repeated)
