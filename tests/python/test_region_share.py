# SPDX-License-Identifier: Apache-2.0
"""Shared tensors sent to processes that are no ranks: the memory goes, not a copy."""

import contextlib
import copy as copy_module
import gc
import multiprocessing
import os
import pathlib
import pickle
import socket
import subprocess
import sys
import threading
import time
import traceback

import numpy as np
import pytest
import ranks
import weft

SECONDS = 180


def add_to_all(inbox, outbox):
    """A child: add 1 to each array that comes, and say what it saw."""
    while (x := inbox.get(timeout=SECONDS)) is not None:
        outbox.put(float(x.sum()))
        if getattr(x, "requires_grad", False):
            x = x.detach()
        x += 1
        outbox.put(type(x).__name__)
        del x


def change_argument(x):
    x += 5


def exchange(method, arrays):
    context = multiprocessing.get_context(method)
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=add_to_all, args=(inbox, outbox))
    child.start()
    seen = []
    for x in arrays:
        inbox.put(x)
        seen.append((outbox.get(timeout=SECONDS), outbox.get(timeout=SECONDS)))
    inbox.put(None)
    child.join(SECONDS)
    assert child.exitcode == 0
    return seen


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_queue_passes_the_memory_of_arrays(alone, method):
    t = weft.full((10, 4), 2.0, like="numpy")
    plain = np.ones(3)
    seen = exchange(method, [t, t[3:5, ::2], plain])
    assert seen == [(80.0, "ndarray"), (12.0, "ndarray"), (3.0, "ndarray")]
    assert (t[0] == 3).all() and (t[3:5, ::2] == 4).all() and (t[3:5, 1::2] == 3).all()
    assert (plain == 1).all()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_queue_passes_the_memory_of_tensors(alone, method):
    torch = pytest.importorskip("torch")
    t = weft.full((10, 4), 2.0)
    parameter = torch.nn.Parameter(t[8:])
    seen = exchange(method, [t, t[:, 1], parameter])
    assert [total for total, _ in seen] == [80.0, 30.0, 8 * 3.0 + 2.0]
    assert (t[:8, 1] == 4).all() and (t[8:, 1] == 5).all() and (t[:8, 0] == 3).all()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_arguments_of_a_child_are_passed_as_memory(alone, method):
    t = weft.full((3, 4), 1.0, like="numpy")
    child = multiprocessing.get_context(method).Process(target=change_argument, args=(t,))
    child.start()
    child.join(SECONDS)
    assert child.exitcode == 0 and (t == 6).all()


def test_what_was_sent_lasts_until_it_is_taken(alone):
    t = weft.full((3, 4), 1.0, like="numpy")
    sent = bytes(multiprocessing.reduction.ForkingPickler.dumps(t))
    del t
    gc.collect()
    again = pickle.loads(sent)
    assert (again == 1).all() and len(sent) < 2000
    with pytest.raises(weft.InvalidError, match="has been used"):
        pickle.loads(sent)
    found = weft.region(again)
    assert found.shape == (3, 4) and "attached" in repr(found)
    with pytest.raises(weft.UnsupportedError, match="no rank"):
        found.barrier()
    # From there it can be sent on.
    third = pickle.loads(bytes(multiprocessing.reduction.ForkingPickler.dumps(again[1:])))
    third[...] = 9
    assert again.tolist() == [[1] * 4, [9] * 4, [9] * 4]
    assert weft.gather(third, [1]).tolist() == [[9] * 4]


def test_plain_pickle_copies(alone):
    t = weft.full((3, 4), 1.0, like="numpy")
    copy = pickle.loads(pickle.dumps(t))
    copy += 1
    assert (t == 1).all()
    for way in (pickle.dumps, copy_module.deepcopy):
        with pytest.raises(TypeError, match="pass its tensor"):
            way(weft.region(t))


STRANGER = """
import pickle, sys, weft
ticket = pickle.load(open(sys.argv[1], "rb"))
x = weft.attach(ticket)
assert x.shape == (4, 2), x.shape
assert float(x.sum()) == 8.0
if sys.argv[2] == "write":
    x += 1
else:
    assert not x.flags.writeable
"""


def stranger(path, what):
    return subprocess.run(
        [sys.executable, "-c", STRANGER, str(path), what],
        env=ranks.quiet_environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_a_ticket_lets_any_process_of_the_user_in_until_it_is_closed(alone, tmp_path):
    t = weft.full((8, 2), 1.0, like="numpy")
    before = len(os.listdir("/proc/self/fd"))
    with weft.share(t[::2]) as ticket:
        (tmp_path / "ticket").write_bytes(pickle.dumps(ticket))
        assert "(4, 2)" in repr(ticket)
        for _ in range(2):
            done = stranger(tmp_path / "ticket", "write")
            assert done.returncode == 0, done.stderr
            assert (t[::2] == 2).all() and (t[1::2] == 1).all()
            t[...] = 1
    done = stranger(tmp_path / "ticket", "write")
    assert "not shared any more" in done.stderr
    with weft.share(weft.region(t).readonly()[:4]) as ticket:
        (tmp_path / "ticket").write_bytes(pickle.dumps(ticket))
        done = stranger(tmp_path / "ticket", "read")
        assert done.returncode == 0, done.stderr
    end = time.monotonic() + SECONDS
    while len(os.listdir("/proc/self/fd")) > before + 1:  # the socket
        assert time.monotonic() < end
        gc.collect()  # the thread that answered the last one has yet to close what it used


def test_tickets_are_checked(alone, tmp_path):
    with pytest.raises(weft.InvalidError, match="cannot be shared"):
        weft.share(np.ones(3))
    with pytest.raises(TypeError, match=r"weft\.share"):
        weft.attach("ticket")
    t = weft.zeros((4, 2), "f4", like="numpy")
    ticket = weft.share(t)
    ipc = ticket._ipc
    for wrong in (
        ipc._replace(token=bytes(32)),
        ipc._replace(bytes=1 << 40),
        ipc._replace(offset=1 << 40),
        ipc._replace(bytes=0),
    ):
        with pytest.raises((weft.InvalidError, OSError)):
            weft.attach(weft.Shared(wrong))
    for wrong in (ipc._replace(start=1 << 20), ipc._replace(sizes=(1 << 20, 2))):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            weft.attach(weft.Shared(wrong))
    with pytest.raises(weft.PeerError, match="cannot be reached"):
        weft.attach(weft.Shared(ipc._replace(address=b"\0weft-share-nobody")))
    ticket.close()
    ticket.close()


def test_a_view_of_fewer_rows_can_be_shared(alone):
    t = weft.full((4, 2), 3.0, like="numpy", max_rows=100_000)
    found = weft.region(t)
    old = found.readonly()
    found.resize(100_000)
    new = found.readonly()
    for view in (old, new):
        with weft.share(view[1:]) as ticket:
            x = weft.attach(ticket)
        assert x.shape == view[1:].shape and (x[:3] == 3).all() and not x.flags.writeable


def test_one_who_says_nothing_does_not_hold_up_the_others(alone):
    with weft.share(weft.zeros(3, "f4", like="numpy")) as ticket, contextlib.ExitStack() as stack:
        for _ in range(3):
            silent = stack.enter_context(socket.socket(socket.AF_UNIX))
            silent.connect(ticket._ipc.address)
        assert weft.attach(ticket).shape == (3,)


def test_a_ticket_may_be_collected_at_any_moment(alone):
    ticket = weft.share(weft.zeros(3, "f4", like="numpy"))
    closed = threading.Event()

    def collect():
        with ticket._keeper._lock:  # as if in the middle of sharing
            ticket.close()
        closed.set()

    threading.Thread(target=collect, daemon=True).start()
    assert closed.wait(SECONDS)


def between_ranks():
    comm = weft.init().comm
    if comm.rank == 0:
        own = comm.subset([0])
        t = weft.full((6, 2), 3.0, comm=own, like="numpy")
        ticket = weft.share(t)
        comm.send(pickle.dumps(ticket), 1)
        comm.recv(bytearray(1), 1)
        assert (t == 4).all()
    else:
        text = bytearray(10_000)
        comm.recv(text, 0)
        x = weft.attach(pickle.loads(text))
        x += 1
        comm.send(b"!", 0)


def test_ranks_that_do_not_share_a_region_can_pass_it():
    ranks.run(2, between_ranks)


def fork_of_a_rank():
    comm = weft.init().comm
    t = weft.full((comm.size, 2), 1.0, like="numpy")
    found = weft.region(t)
    found.barrier()
    me = comm.rank  # in the child there is no communicator
    child = os.fork()
    if child == 0:
        try:
            t[me] = me + 5  # the memory is the child's, too
            assert weft.gather(t, [me]).tolist() == [[me + 5] * 2]
            with pytest.raises(weft.ClosedError):
                found.barrier()
            del found, t
            gc.collect()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found.barrier()
    assert t[:, 0].tolist() == [rank + 5 for rank in range(comm.size)]


def test_a_forked_child_reads_and_writes_but_is_no_rank():
    ranks.run(2, fork_of_a_rank)


def files_mapped():
    """Those of /dev/shm; what others have there is theirs."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[-1] for line in lines if "/dev/shm/" in line}


def test_nothing_is_left_in_the_file_system(alone):
    before = files_mapped()
    t = weft.zeros((1000, 100), "f4", like="numpy")
    with weft.share(t):
        assert files_mapped() <= before
