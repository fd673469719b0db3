# SPDX-License-Identifier: Apache-2.0
"""A failed operation is an exception wherever its tensors are, never a value.

On a device the host goes on before the outcome is known. So a call may return, but
what it leaves behind is NaN, and the next call of its group fails.
"""

import contextlib
import datetime
import os
import signal
import time

import calls
import devices
import groups
import pytest
import torch
import torch._dynamo  # DDP does it: here once, and not in every rank
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import weft.torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LONG = datetime.timedelta(seconds=120)
PROMPT = 30  # seconds, on a crowded machine; far less than LONG


def groups_for(names, timeout=LONG):
    """A group for each, over communicators of their own; the same on all ranks."""
    comm = weft.torch.comm_of()
    return {name: weft.torch.as_group(comm.dup(), timeout) for name in names}


def over(work):
    """Ask until it is over, as a program may that never waits."""
    end = time.monotonic() + PROMPT
    while not work.is_completed():
        assert time.monotonic() < end, "it is not over"
        time.sleep(0.001)


def check_sync(device, group, call, match):
    """It raises, or leaves poison behind and the next call raises."""
    kind = devices.use(device)
    try:
        _, outputs = call(group, kind, False)
    except RuntimeError as error:
        assert match in str(error), error
    else:
        assert device != "cpu", "it has raised nothing"
        devices.settle(device)
        for x in outputs:
            assert x.isnan().all(), x
    for _ in range(2):
        with pytest.raises(RuntimeError, match=match):
            group.allreduce([torch.ones(3, device=kind)]).wait()
            devices.settle(device)
            group.allreduce([torch.ones(3, device=kind)]).wait()


def look_at_work(device, group, work, outputs, match):
    """Everything that a Work can be asked tells of the error."""
    over(work)
    devices.settle(device)
    assert not work.is_success()
    assert isinstance(work.exception(), RuntimeError)
    assert match in str(work.exception())
    for ask in (work.wait, work.result, work.synchronize, work.get_future().wait):
        if ask != work.synchronize or device != "cpu":  # where that does nothing
            with pytest.raises(RuntimeError, match=match):
                ask()
    if device != "cpu":
        for x in outputs:
            assert x.isnan().all(), x


def look_at_future(device, group, work, outputs, match):
    """A future fails with the operation, and so do those that hang on it."""
    called = []
    future = work.get_future()
    then = future.then(lambda done: called.append(done.wait()))
    for ask in (future.wait, then.wait):
        with pytest.raises(RuntimeError, match=match):
            ask()
    assert not called


def wait_at_once(device, group, work, outputs, match):
    """It raises, or leaves poison behind and the next call raises."""
    with pytest.raises(RuntimeError, match=match):
        work.wait()
        assert device != "cpu", "it has raised nothing"
        devices.settle(device)
        for x in outputs:
            assert x.isnan().all(), x
        group.allreduce([torch.ones(3, device=devices.use(device))])


LOOKS = [look_at_work, look_at_future, wait_at_once]


def prepared(table):
    """Groups for each operation: one for its blocking form, and one for each look at its Work."""
    looks = groups_for([(name, look) for name in table for look in LOOKS])
    return groups_for(table), looks


def begun(device, looks):
    """Each look's group with its operation under way, and what it writes."""
    kind = devices.use(device)
    return [
        (look, group, *calls.ALL[name](group, kind, True)) for (name, look), group in looks.items()
    ]


def peer_dies(device):
    devices.use(device)
    blocking, looks = prepared(calls.ALL)
    if dist.get_rank() == 1:
        groups.meet("the works are begun")
        os.kill(os.getpid(), signal.SIGKILL)
    works = begun(device, looks)
    groups.meet("the works are begun")
    since = time.monotonic()
    for look, group, work, outputs in works:
        look(device, group, work, outputs, "rank 1")
    for name, group in blocking.items():
        check_sync(device, group, calls.ALL[name], "rank 1")
    assert time.monotonic() - since < PROMPT


@pytest.mark.parametrize("device", devices.ALL)
def test_a_death_is_told_by_every_operation(device):
    ended = devices.start(2, peer_dies, device)
    assert ended[1].error == "ended with -9"
    assert ended[0].error is None, ended[0].error


def peer_calls_something_else(device):
    kind = devices.use(device)
    blocking, looks = prepared(calls.COLLECTIVES)
    if dist.get_rank() == 1:
        groups.meet("the works are begun")  # a call that comes later may itself raise
        for group in (*looks.values(), *blocking.values()):
            with contextlib.suppress(RuntimeError):
                group.allreduce([torch.ones(3, dtype=torch.int64, device=kind)]).wait()
    else:
        match = "rank 1 called allreduce of 3 i64"
        works = begun(device, looks)
        groups.meet("the works are begun")
        for look, group, work, outputs in works:
            look(device, group, work, outputs, match)
        for name, group in blocking.items():
            check_sync(device, group, calls.COLLECTIVES[name], match)
    groups.meet("all is over")


@pytest.mark.parametrize("device", devices.ALL)
def test_a_mismatch_is_told_by_every_operation(device):
    devices.run(2, peer_calls_something_else, device)


def peer_is_late(device):
    """All time out together: their works are there before the first is looked at."""
    devices.use(device)
    made = groups_for(calls.ALL, datetime.timedelta(seconds=1))
    if dist.get_rank() == 0:
        kind = devices.use(device)
        works = {name: calls.ALL[name](group, kind, True) for name, group in made.items()}
        for work, outputs in works.values():
            for ask in (work.get_future().wait, work.wait):
                with pytest.raises(RuntimeError, match="Timed out waiting"):
                    ask()
            devices.settle(device)
            assert device == "cpu" or all(x.isnan().all() for x in outputs)
    groups.meet("all is over")


@pytest.mark.parametrize("device", devices.ALL)
def test_a_timeout_is_told_by_every_operation(device):
    devices.run(2, peer_is_late, device)


def own_timeout(device):
    kind = devices.use(device)
    group = dist.group.WORLD
    if dist.get_rank() == 0:
        options = dist.distributed_c10d.AllreduceOptions()
        options.timeout = datetime.timedelta(milliseconds=300)
        work = group.allreduce([torch.ones(3, device=kind)], options)
        with pytest.raises(RuntimeError, match="Timed out waiting"):
            work.get_future().wait() if device != "cpu" else work.wait()
        with pytest.raises(RuntimeError, match="Timed out waiting"):
            dist.all_reduce(torch.ones(3, device=kind))
    groups.meet("all is over")


@pytest.mark.parametrize("device", devices.ALL)
def test_the_timeout_of_one_call_breaks_the_group(device):
    devices.run(2, own_timeout, device)


def waits_with_a_timeout(device):
    """Which leaves the operation going."""
    rank, kind = dist.get_rank(), devices.use(device)
    x = torch.full((3,), rank + 1.0, device=kind)
    if rank == 1:
        groups.meet("it has timed out")
    work = dist.all_reduce(x, async_op=True)
    if rank == 0:
        with pytest.raises(RuntimeError, match="goes on"):
            work.wait(datetime.timedelta(milliseconds=100))
        assert not work.is_completed()
        assert work.exception() is None
        groups.meet("it has timed out")
    work.wait()
    devices.settle(device)
    assert work.is_success()
    assert work.exception() is None
    assert x.tolist() == [3, 3, 3]


@pytest.mark.parametrize("device", devices.ALL)
def test_a_wait_that_times_out_leaves_the_operation_going(device):
    devices.run(2, waits_with_a_timeout, device)


def aborts(device):
    devices.use(device)
    made = groups_for(calls.ALL)
    if dist.get_rank() == 0:
        kind = devices.use(device)
        since = time.monotonic()
        works = {name: calls.ALL[name](group, kind, True) for name, group in made.items()}
        for name, (work, _) in works.items():
            weft.torch.backend_of(made[name]).abort()
            for ask in (work.get_future().wait, work.wait):
                with pytest.raises(RuntimeError, match="abort"):
                    ask()
        devices.settle(device)
        for _, outputs in works.values():
            assert device == "cpu" or all(x.isnan().all() for x in outputs)
        assert time.monotonic() - since < PROMPT
    groups.meet("all is over")


@pytest.mark.parametrize("device", devices.ALL)
def test_an_abort_is_told_by_every_operation(device):
    devices.run(2, aborts, device)


def leaves_receives_behind(device):
    """And destroys the group: at once, for nobody waits for them."""
    kind = devices.use(device)
    x = torch.zeros(3, device=kind)
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(torch.ones(3, device=kind))
    if dist.get_rank() == 1:
        store.wait(["rank 0 has looked"])
    else:
        works = [dist.irecv(x, 1, tag=tag) for tag in range(3)]
        future = works[2].get_future()
        since = time.monotonic()
        dist.destroy_process_group()
        assert time.monotonic() - since < 9  # seconds; it has patience for other operations
        for ask in (works[0].wait, works[2].wait, future.wait):
            with pytest.raises(RuntimeError, match=r"closed|destroyed"):
                ask()
        devices.settle(device)
        assert not works[0].is_success()
        store.set("rank 0 has looked", "")


@pytest.mark.parametrize("device", devices.ALL)
def test_the_end_of_a_group_does_not_wait_for_receives(device):
    devices.run(2, leaves_receives_behind, device)


def ends_after_a_receive(device):
    """The stream waits for the message, and so does the end of the group."""
    rank, kind = dist.get_rank(), devices.use(device)
    x = torch.full((3,), rank + 1.0, device=kind)
    group = groups_for(["own"])["own"]
    if rank == 0:
        group.recv([x], 1, 0).wait()
        groups.meet("the receive is called") if device != "cpu" else None
        group.shutdown()
        devices.settle(device)
        assert x.tolist() == [2, 2, 2]
    else:
        groups.meet("the receive is called") if device != "cpu" else None
        group.send([x], 0, 0).wait()
        group.shutdown()
    groups.meet("all is over")


@pytest.mark.parametrize("device", devices.ALL)
def test_the_end_of_a_group_waits_for_what_a_stream_waits_for(device):
    devices.run(2, ends_after_a_receive, device)


def future_before_the_end(device):
    """A future is done when the operation is, and not when it is queued."""
    rank, kind = dist.get_rank(), devices.use(device)
    x = torch.full((3,), rank + 1.0, device=kind)
    if rank == 1:
        groups.meet("the future was looked at")
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future()
    outcome = work.get_future_result()
    if rank == 0:
        assert not future.done()
        assert not outcome.done()
        groups.meet("the future was looked at")
    assert future.wait()[0].tolist() == [3, 3, 3]
    assert outcome.wait() == 0


@pytest.mark.parametrize("device", devices.ALL)
def test_a_future_is_done_with_its_operation(device):
    devices.run(2, future_before_the_end, device)


def blocking(device):
    """The host waits, so each call raises by itself."""
    kind = devices.use(device)
    options = weft.torch.Options(LONG, blocking_wait=True)
    group = dist.new_group(pg_options=options, backend="weft")
    x = torch.ones(3, device=kind)
    dist.all_reduce(x, group=group)
    devices.settle(device)
    assert x.tolist() == [2, 2, 2]
    groups.meet("the group is made")
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(torch.ones(3, device=kind), group=group, async_op=True)
    with pytest.raises(RuntimeError, match="rank 1"):
        work.wait()
    with pytest.raises(RuntimeError, match="rank 1"):
        dist.all_reduce(torch.ones(3, device=kind))  # of a group that does not block
        devices.settle(device)
        dist.all_reduce(torch.ones(3, device=kind))


def blocking_at_once(device):
    kind = devices.use(device)
    groups.meet("the group is made")
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="rank 1"):
        dist.all_reduce(torch.ones(3, device=kind))


@pytest.mark.parametrize("device", devices.ALL)
def test_with_blocking_wait_the_call_itself_raises(device):
    ended = devices.start(2, blocking, device)
    assert ended[0].error is None, ended[0].error
    ended = devices.start(
        2, blocking_at_once, device, environment={"WEFT_TORCH_BLOCKING_WAIT": "1"}
    )
    assert ended[0].error is None, ended[0].error


def trains(device):
    """The construction of DDP looks at what it broadcast, which the double cannot hold back."""
    kind = devices.use("cpu" if device == "double" else device)
    torch.manual_seed(0)
    layers = [nn.Linear(64, 64) for _ in range(6)]
    model = DistributedDataParallel(nn.Sequential(*layers).to(kind), bucket_cap_mb=0.01)
    x = torch.randn(4, 64, device=kind)
    model(x).sum().backward()
    devices.use(device)
    for p in model.parameters():
        p.grad = None
    model(x).sum().backward()
    hidden = model(x)
    for p in model.parameters():
        p.grad = None
    groups.meet("all calls but those of the last backward are over")
    with pytest.raises(RuntimeError, match="rank 1"):
        groups.DieInBackward.apply(hidden).sum().backward()
    with pytest.raises(RuntimeError, match="rank 1"):
        dist.all_reduce(torch.ones(1, device=kind))


@pytest.mark.parametrize("device", devices.STAGED)
def test_a_backward_of_ddp_raises_when_a_rank_dies(device):
    ended = devices.start(3, trains, device)
    assert ended[1].error == "ended with -9"
    for rank in (0, 2):
        assert ended[rank].error is None, ended[rank].error


def functional(device):
    """wait_tensor makes the stream wait: it raises, or the next call does."""
    kind = devices.use(device)
    groups.meet("the group is made")
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="rank 1"):
        y = funcol.wait_tensor(
            funcol.all_reduce(torch.ones(3, device=kind), "sum", dist.group.WORLD)
        )
        assert device != "cpu", "it has raised nothing"
        devices.settle(device)
        assert y.isnan().all()
        funcol.all_reduce(torch.ones(3, device=kind), "sum", dist.group.WORLD)


@pytest.mark.parametrize("device", devices.ALL)
def test_functional_collectives_tell_of_a_death(device):
    ended = devices.start(2, functional, device)
    assert ended[0].error is None, ended[0].error


def on_the_host_next(device):
    """A receive fails alone; but the stream went on with it, so that later calls tell."""
    kind = devices.use(device)
    if dist.get_rank() == 0:
        work = dist.irecv(torch.ones(3, device=kind), 1)
        groups.meet("the receive is called")
        work.wait()
        groups.meet("the stream waits for it")
        devices.settle(device)
        devices.use("cpu")
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"weft recv: rank 1 .* has left"):
                dist.all_reduce(torch.ones(3))
    else:
        groups.meet("the receive is called")
        groups.meet("the stream waits for it")
        dist.destroy_process_group()


@pytest.mark.parametrize("device", devices.STAGED)
def test_a_call_on_host_tensors_tells_of_a_failed_one_on_a_device(device):
    devices.run(2, on_the_host_next, device)


def refused(device):
    """What cannot be is told by the call, as on the host."""
    kind = devices.use(device)
    with pytest.raises(ValueError, match="band"):
        dist.all_reduce(torch.ones(3, device=kind), dist.ReduceOp.BAND)
    x = torch.ones(3, device=kind)
    dist.all_reduce(x)
    devices.settle(device)
    assert x.tolist() == [2, 2, 2]


@pytest.mark.parametrize("device", devices.ALL)
def test_a_reduction_that_a_type_does_not_have_is_refused_at_once(device):
    devices.run(2, refused, device)
