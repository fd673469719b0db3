# SPDX-License-Identifier: Apache-2.0
"""Groups of new_group belong to the world of the default group, and share its arena."""

import datetime
import os
import signal
import threading

import groups
import pytest
import torch
import torch.distributed as dist
import weft.torch
from torch.distributed.device_mesh import init_device_mesh

LARGE = 1 << 18  # elements: more than collectives copy through a slot at once


def number(group=None):
    return weft.torch.comm_of(group).world._number


def total(group, value):
    x = torch.tensor([value])
    dist.all_reduce(x, group=group)
    return x.item()


def one_arena():
    rank = dist.get_rank()
    pair = dist.new_group([0, 2])
    own = dist.new_group([rank], use_local_synchronization=True)
    everybody = dist.new_group()
    others = dist.new_group(pg_options=weft.torch.Options(spin="3us"))
    assert number(everybody) == number(own) == number()
    assert number(others) != number()  # settings are a world's
    with weft.torch.shared():
        x, out = torch.full((LARGE,), float(rank)), torch.empty(3 * LARGE)
    before = weft.torch.comm_of().world.arena.blocks
    for group in (None, everybody, others):
        dist.all_gather_into_tensor(out.fill_(-1), x, group=group)
        assert out.view(3, -1).mean(1).tolist() == [0, 1, 2]
    if rank != 1:
        assert number(pair) == number()
        two = out[: 2 * LARGE].fill_(-1)
        dist.all_gather_into_tensor(two, x, group=pair)
        assert two.view(2, -1).mean(1).tolist() == [0, 2]
    with weft.torch.shared(group=own):
        y = torch.empty(LARGE)
    assert weft.torch.comm_of().world.arena.blocks == before + 1
    del y


def test_groups_of_a_process_share_one_arena():
    groups.run(3, one_arena)


def late_calls(x, out, group):
    """By name: what it fills on rank 2 from x of rank 0, if x is 0 there, and how to start it.

    all_to_all_single is not among them: its data moves after its lengths in any case.
    """
    part = out[: len(x) // 2]
    return {
        "broadcast": (x, lambda: dist.broadcast(x, 0, group=group, async_op=True)),
        "all_reduce": (x, lambda: dist.all_reduce(x, group=group, async_op=True)),
        "all_gather": (
            out[: len(x)],
            lambda: dist.all_gather_into_tensor(out, x, group=group, async_op=True),
        ),
        "reduce_scatter": (
            part,
            lambda: dist.reduce_scatter_tensor(part, x, group=group, async_op=True),
        ),
    }


def seen_late(group, sharing):
    """Of which calls does rank 2 see what rank 0 wrote after it had made them?

    Nobody may write there at that time, and only data that has not been copied can show it. Rank 0
    has made its first step, which would fill its slots, when its call returns.
    """
    rank = dist.get_rank()
    with sharing:
        x, out = torch.empty(LARGE), torch.empty(2 * LARGE)
    found = set()
    for name, (result, call) in late_calls(x, out, group).items():
        x.zero_(), out.zero_()
        dist.barrier()
        if rank == 0:
            work = call()
            x.fill_(1)
        dist.barrier()
        if rank == 2:
            work = call()
        if rank != 1:
            work.wait()
        if rank == 2 and (result == 1).all():
            found.add(name)
    return found


def in_place():
    pair = dist.new_group([0, 2])
    elsewhere = dist.new_group([0, 2], pg_options=weft.torch.Options(spin="3us"))
    return [
        seen_late(pair, weft.torch.shared()),
        seen_late(pair, weft.torch.shared(minimum=1 << 40)),  # none is that large
        seen_late(elsewhere, weft.torch.shared()),  # its world does not know that arena
    ]


def test_groups_read_shared_tensors_in_place(monkeypatch):
    monkeypatch.delenv("WT_SHARE_ALL", raising=False)  # it says itself what is shared
    everything = {"broadcast", "all_reduce", "all_gather", "reduce_scatter"}
    assert groups.run(3, in_place)[2] == [everything, set(), set()]


def mesh():
    with weft.torch.shared():
        x = torch.full((LARGE,), float(dist.get_rank()))
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("row", "column"))
    assert {number(grid.get_group(name)) for name in ("row", "column")} == {number()}
    dist.all_reduce(x, group=grid.get_group("row"))
    return x[0].item()


def test_so_do_those_of_a_device_mesh():
    assert groups.run(4, mesh) == [2, 4, 2, 4]


def on_meta():
    with torch.device("meta"):
        group = dist.new_group()
    return total(group, dist.get_rank())


def test_a_group_is_made_whatever_the_default_device_is():
    assert groups.run(2, on_meta) == [1, 1]


def breaks():
    rank, world = dist.get_rank(), dist.get_world_size()
    first, second = dist.new_group(), dist.new_group()
    groups.meet("made")
    if rank == 0:
        weft.torch.backend_of(first).abort()
    with pytest.raises(RuntimeError, match="rank 0 aborted"):
        dist.barrier(first)
    assert total(second, 1) == total(None, 1) == world
    groups.meet("used")
    if rank == 1:  # the others need not know yet
        weft.torch.backend_of().abort()
    third = dist.new_group()
    assert total(second, 1) == total(third, 1) == world
    with pytest.raises(RuntimeError, match="rank 1 aborted"):
        dist.barrier()
    dist.destroy_process_group(first)
    assert total(third, 1) == world


def test_a_group_that_breaks_breaks_no_other_and_a_broken_one_hinders_none():
    groups.run(3, breaks)


def some_have_settings():
    spin = {"spin": "3us"} if dist.get_rank() == 1 else {}
    with pytest.raises(weft.MismatchError, match=r"rank 1 .* settings other than .* rank 0 does"):
        dist.new_group(pg_options=weft.torch.Options(**spin))
    return total(None, 1)


def test_settings_on_some_ranks_only_are_an_error_on_all():
    assert groups.run(3, some_have_settings) == [3, 3, 3]


def late():
    """Rank 1 comes when the others have given up."""
    moment = datetime.timedelta(milliseconds=50)
    if dist.get_rank() != 1:
        with pytest.raises(weft.TimeoutError):
            dist.new_group(timeout=moment)
    else:
        dist.distributed_c10d._process_group_name([0, 1, 2], False)  # the names go on alike
    assert total(None, 1) == 3
    return total(dist.new_group(), 1)


def test_a_group_that_is_not_made_leaves_the_others_whole():
    assert groups.run(3, late) == [3, 3, 3]


def dies():
    rank = dist.get_rank()
    old = dist.new_group()
    groups.meet("made")
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    left = dist.new_group([0, 2], use_local_synchronization=True)
    assert total(left, 1) == 2
    with pytest.raises(RuntimeError, match="rank 1"):
        dist.barrier(old)
    dist.shrink_group([1])
    again = dist.new_group()  # ranks are those of the default group that there is now
    return total(again, 1), number(again) == number()


def test_a_death_ends_the_groups_of_the_dead_and_no_others():
    ended = groups.start(3, dies)
    assert ended[1].error == "ended with -9"
    for rank in (0, 2):
        assert ended[rank].error is None, ended[rank].error
        assert ended[rank].value == (2, True)


def in_turn():
    """A world ends with the last of its groups, and the next default group has its own."""
    group = dist.new_group()
    first, world = number(), weft.torch.comm_of().world
    with weft.torch.shared():
        x = torch.ones(LARGE)
    store = dist.distributed_c10d._get_default_store()
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    del group
    assert world.closed
    again = dist.PrefixStore("again", store)
    dist.init_process_group("weft", store=again, rank=rank, world_size=size)
    assert number(dist.new_group()) == number() != first
    dist.all_reduce(x)
    return x.mean().item()


def test_default_groups_follow_each_other():
    assert groups.run(2, in_turn) == [2, 2]


def busy():
    other, sums = dist.new_group(), []
    thread = threading.Thread(target=lambda: sums.extend(total(other, 1) for _ in range(300)))
    thread.start()
    made = [dist.new_group() for _ in range(10)]
    sums.extend(total(group, 1) for group in (*made, None))
    thread.join()
    return len(sums), set(sums)


def test_groups_are_made_while_another_thread_computes():
    assert groups.run(2, busy) == [(311, {2})] * 2
