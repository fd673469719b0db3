# SPDX-License-Identifier: Apache-2.0
"""A rank that is killed: whoever needs it is told at once, in whatever call; all others go on."""

import functools
import os
import pathlib
import secrets
import signal
import time

import numpy as np
import processes
import pytest
import weft

VICTIM = 1
LONG = 1 << 20  # bytes; so many go through no buffer
HOUR = 3600.0
SOON = 30.0  # seconds, on a crowded machine; nothing here may wait for the hour

CALLS = {
    "barrier": lambda comm: comm.barrier(),
    "broadcast": lambda comm: comm.broadcast(np.ones(3), VICTIM),
    "allreduce": lambda comm: comm.allreduce(np.ones(3)),
    "large allreduce": lambda comm: comm.allreduce(np.ones(LONG)),
    "scan": lambda comm: comm.scan(np.ones(3)),
    "reduce": lambda comm: comm.reduce(np.ones(3)),
    "reduce_scatter": lambda comm: comm.reduce_scatter(np.ones(3), np.ones(1)),
    "allgather": lambda comm: comm.allgather(np.ones(1), np.ones(3)),
    "gather": lambda comm: comm.gather(np.ones(1), np.ones(3)),
    "scatter": lambda comm: comm.scatter(None, np.ones(1), VICTIM),
    "alltoall": lambda comm: comm.alltoall(np.ones(3), np.ones(3)),
    "recv": lambda comm: comm.recv(bytearray(1), VICTIM),
    "long send": lambda comm: comm.send(bytes(LONG), VICTIM),
    "sendrecv": lambda comm: comm.sendrecv(bytes(LONG), VICTIM, bytearray(1)),
    "probe": lambda comm: comm.probe(VICTIM),
    "a request": lambda comm: comm.iallreduce(np.ones(3)).wait(),
    "a request with a timeout": lambda comm: comm.irecv(bytearray(1), VICTIM).wait(HOUR),
    "a request that is tested": lambda comm: until_over(comm.irecv(bytearray(1), VICTIM)),
}


def until_over(request):
    while not request.test():
        time.sleep(0.01)


def waiting(lines):
    """How many ranks the board shows in a call that is not the victim's last."""
    last = lines[VICTIM].partition("last in ")[2]
    return sum("last in" not in line and last not in line for line in lines)


def strike(comm):
    """The victim ends when the board shows that the others wait, which it need not show."""
    end = time.monotonic() + 1.0
    while comm.rank == VICTIM:
        if waiting(comm.world.dump().splitlines()) == comm.size - 1 or time.monotonic() > end:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)


def joined(job, size, settings, body, rank):
    """What a rank does: join, and call the body."""
    os.environ.update(WEFT_JOB=job, WEFT_RANK=str(rank), WEFT_RANKS=str(size))
    body(weft.init(timeout=HOUR, **settings).comm)


def run(body, **settings):
    """Run it on three ranks, of which one is killed; the others must end well, and soon."""
    work = functools.partial(joined, secrets.token_hex(8), 3, settings, body)
    ended = processes.start(3, work, deadline=4 * SOON)
    assert ended[VICTIM].error == "ended with -9", ended[VICTIM].error
    for rank in (0, 2):
        assert ended[rank].error is None, ended[rank].error


def killed_during(name, comm):
    others = comm.split(None if comm.rank == VICTIM else 0)
    comm.barrier()
    strike(comm)
    start = time.monotonic()
    with pytest.raises(weft.PeerError, match=f"rank {VICTIM} .*died") as first:
        CALLS[name](comm)
        comm.barrier()
    with pytest.raises(weft.PeerError) as second:
        comm.allreduce(np.ones(1))
    assert str(second.value) == str(first.value)
    assert others.allreduce(np.ones(1))[0] == 2
    assert time.monotonic() - start < SOON


@pytest.mark.parametrize("name", CALLS)
def test_a_killed_rank_is_named_at_once_in_every_call(name):
    run(functools.partial(killed_during, name))


LATE = ("allreduce", "large allreduce", "recv", "long send", "sendrecv", "probe", "a request")


def known_to_be_dead(comm):
    """On communicators that nobody has used since: the words do not depend on who noticed."""
    apart = [comm.dup() for _ in LATE]
    comm.barrier()
    strike(comm)
    with pytest.raises(weft.PeerError, match=f"rank {VICTIM} .*died"):
        comm.barrier()
    for name, each in zip(LATE, apart, strict=True):
        with pytest.raises(weft.PeerError, match=f"rank {VICTIM} .*died or exited"):
            CALLS[name](each)


@pytest.mark.parametrize("engine", ("auto", "message"))
def test_a_call_to_a_rank_that_is_known_to_be_dead_fails_in_the_same_words(engine):
    run(known_to_be_dead, engine=engine)


def left_in_good_order(comm):
    """Who needs the one that left is told, on what it needs it for; all else goes on."""
    others, apart = comm.split(None if comm.rank == VICTIM else 0), comm.dup()
    if comm.rank == VICTIM:
        comm.send(b"x", 0)
        weft.finalize()
        os.kill(os.getpid(), signal.SIGKILL)
    if comm.rank == 0:
        assert comm.recv(bytearray(1), VICTIM).length == 1
        with pytest.raises(weft.PeerError, match=f"rank {VICTIM} .*left"):
            comm.recv(bytearray(1), VICTIM)
        comm.send(b"y", 2)
    else:
        assert comm.recv(bytearray(1), 0).length == 1
    assert not comm.broken
    with pytest.raises(weft.PeerError, match=f"rank {VICTIM} .*left"):
        apart.barrier()
    assert others.allreduce(np.ones(1))[0] == 2


def test_a_rank_that_leaves_in_good_order_fails_only_what_needs_it():
    run(left_in_good_order)


def table(comm):
    return weft.region(weft.full((30, 2), 4.0, "f4", comm=comm, max_rows=60, like="numpy"))


REGION_CALLS = {
    "barrier": lambda comm, region, folder: region.barrier(),
    "wait": lambda comm, region, folder: region.wait(1),
    "resize": lambda comm, region, folder: region.resize(40),
    "empty": lambda comm, region, folder: weft.empty((9, 2), "f4", comm=comm, like="numpy"),
    "save": lambda comm, region, folder: region.save(f"{folder}/rows"),
    "load": lambda comm, region, folder: region.load(f"{folder}/saved"),
    "new_file": lambda comm, region, folder: weft.new_file(
        f"{folder}/new", (9, 2), "f4", like="numpy"
    ),
}


def killed_during_region(name, folder, comm):
    region = table(comm)
    region.save(f"{folder}/saved")
    comm.barrier()
    strike(comm)
    start = time.monotonic()
    with pytest.raises(weft.PeerError, match=f"rank {VICTIM} "):
        REGION_CALLS[name](comm, region, folder)
    assert (region.tensor == 4).all()
    assert time.monotonic() - start < SOON


@pytest.mark.parametrize("name", REGION_CALLS)
def test_a_killed_rank_is_named_at_once_in_every_call_on_a_table(name, tmp_path):
    run(functools.partial(killed_during_region, name, str(tmp_path)))
    assert [path.name for path in pathlib.Path(tmp_path).iterdir()] == ["saved"]


def embedding(comm):
    return weft.nn.Embedding(30, 2, comm=comm)


def step(comm, emb):
    sparse = weft.optim.Adagrad(emb, lr=0.1)
    strike(comm)
    emb(__import__("torch").tensor([1, 2])).sum().backward()
    sparse.step()
    sparse.step()


def killed_during_step(comm):
    emb = embedding(comm)
    comm.barrier()
    start = time.monotonic()
    with pytest.raises(weft.PeerError, match=f"rank {VICTIM} .*died"):
        step(comm, emb)
    assert time.monotonic() - start < SOON


def test_a_killed_rank_is_named_at_once_in_a_step_of_an_optimizer():
    pytest.importorskip("torch")
    run(killed_during_step)


OLD_CALLS = {
    "barrier": lambda wm, torch: wm.barrier([]),
    "aggregate_size": lambda wm, torch: wm.aggregate_size(1, []),
    "create_tensor": lambda wm, torch: wm.create_tensor([4, 2], [], torch.float32, True, []),
}


def killed_during_old_call(name, comm):
    import torch
    from weft.compat import wholememory as wm

    wm.mp_init(comm.rank, comm.size)
    comm.barrier()
    strike(comm)
    start = time.monotonic()
    with pytest.raises(weft.PeerError, match=f"rank {VICTIM} "):
        OLD_CALLS[name](wm, torch)
    assert time.monotonic() - start < SOON


@pytest.mark.parametrize("name", OLD_CALLS)
def test_a_killed_rank_is_named_at_once_in_calls_of_wholememory(name):
    pytest.importorskip("torch")
    run(functools.partial(killed_during_old_call, name))
