# SPDX-License-Identifier: Apache-2.0
"""Requests: waiting, timeouts, callbacks, signals, and other threads meanwhile."""

import gc
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
import ranks
import waiting
import weft


def overlapping():
    comm = weft.init().comm
    small = [np.full(3, i + comm.rank, "i4") for i in range(20)]
    large = np.full(400_001, 1.0)
    requests = [comm.iallreduce(x) for x in small]
    requests.append(comm.iallreduce(large, "max"))
    requests += [comm.ibroadcast(np.zeros(4), 1), comm.ibarrier()]
    assert requests[-1].wait() is None
    assert all(request.wait() is not None for request in requests[:-1])
    assert all(request.done and request.test() for request in requests)
    for i, x in enumerate(small):
        assert x.tolist() == [comm.size * i + sum(range(comm.size))] * 3
    out = np.empty(4)
    assert comm.iallreduce(np.ones(4), out=out).wait() is out
    assert out.tolist() == [comm.size] * 4


def test_many_operations_can_be_under_way_at_once():
    ranks.run(3, overlapping)


def bounded_wait():
    comm = weft.init().comm
    x = np.zeros(1)
    if comm.rank == 0:
        request = comm.irecv(x, 1)
        with pytest.raises(TimeoutError, match="goes on") as caught:
            request.wait(0.05)
        assert isinstance(caught.value, weft.TimeoutError)
        assert not request.done and not request.test()
        comm.send(x, 1)
        assert request.wait(timeout=60).length == 1
        assert not comm.broken
    else:
        comm.recv(x, 0)
        comm.send(x, 0)


def test_a_wait_that_runs_out_leaves_the_operation_going():
    ranks.run(2, bounded_wait)


def standing():
    comm = weft.init(timeout=0.05).comm
    if comm.rank == 0:
        request = comm.irecv(bytearray(1), 1)
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            assert not request.test() and not request.done
        comm.timeout = 60
        comm.send(b"x", 1)
        assert request.wait().length == 1
    else:
        comm.timeout = 60
        comm.recv(bytearray(1), 0)
        comm.send(b"x", 0)


def test_a_receive_that_is_only_asked_for_has_no_deadline():
    ranks.run(2, standing)


class Alarm(Exception):
    pass


def interrupted():
    comm = weft.init().comm

    def ring(*unused):
        raise Alarm

    if comm.rank == 0:
        signal.signal(signal.SIGALRM, ring)
        request = comm.irecv(bytearray(1), 1)
        with pytest.raises(Alarm):
            request.wait()
        comm.send(b"x", 1)
        assert request.wait().length == 1
    else:
        waiting.until_waits_in(comm.world, 0, "receive")
        os.kill(comm.world.peers[0].pid, signal.SIGALRM)
        comm.recv(bytearray(1), 0)
        comm.send(b"x", 0)


def test_a_signal_handler_can_raise_out_of_a_wait():
    ranks.run(2, interrupted)


def callbacks():
    comm = weft.init().comm
    called = []
    done = threading.Event()
    x = np.ones(3)
    request = comm.iallreduce(x)
    request.add_done_callback(called.append)
    request.add_done_callback(lambda r: done.set())
    assert done.wait(60)  # the progress thread or this one's next call ends it
    assert called == [request]
    assert x.tolist() == [comm.size] * 3
    request.add_done_callback(called.append)
    assert called == [request, request]

    problems = []
    sys.unraisablehook = problems.append
    request = comm.ibarrier()
    request.add_done_callback(lambda r: 1 // 0)
    request.wait()
    while not problems:  # the library's thread may be the one that calls
        request.test()
    assert isinstance(problems[0].exc_value, ZeroDivisionError)
    request.add_done_callback(lambda r: done.clear())
    assert not done.is_set()
    with pytest.raises(TypeError, match="callable"):
        request.add_done_callback(None)
    strided = np.ones((3, 2))[:, 0]
    seen = []
    request = comm.iallreduce(strided)
    request.add_done_callback(lambda r: seen.append(strided.tolist()))
    request.wait()
    while not seen:
        request.test()
    assert seen == [[comm.size] * 3]  # the result is in place before the call


def test_callbacks_are_called_once_it_is_over_and_their_errors_go_nowhere():
    ranks.run(2, callbacks)


def called_inside():
    comm = weft.init().comm
    other, main, over, used = comm.dup(), threading.get_ident(), threading.Event(), []

    def called(request):
        # On the library's own thread, if that was first; then `comm` is in use by the caller.
        free = comm if threading.get_ident() == main else other
        try:
            free.isend(np.ones(1), comm.rank, 7)
            used.append(free)
        finally:
            over.set()

    problems = []
    sys.unraisablehook = problems.append
    got = np.zeros(1)
    request = comm.iallreduce(np.ones(300_000))
    request.add_done_callback(called)
    comm.allreduce(np.ones(1))  # behind it, so the callback comes in the middle
    over.wait()
    assert not problems
    used[0].recv(got, comm.rank, 7)
    assert got[0] == 1


def test_a_callback_may_use_the_communicator_whose_call_it_came_in():
    ranks.run(2, called_inside)


def dropped():
    comm = weft.init().comm
    for round_number in range(30):
        x = np.full(100_000, float(comm.rank))
        comm.iallreduce(x)  # nobody keeps the request, or the array
        del x
        if round_number % 10 == 0:
            gc.collect()
    comm.barrier()
    assert comm.allreduce(np.ones(1))[0] == comm.size


def test_a_dropped_request_keeps_its_array_until_it_is_over():
    ranks.run(2, dropped)


def other_threads_run():
    comm = weft.init().comm
    other = comm.dup()
    token = np.zeros(1)
    if comm.rank == 0:

        def echo():
            for _ in range(200):
                other.recv(token, 1)
                other.send(token, 1)

        thread = threading.Thread(target=echo)
        thread.start()
        comm.recv(np.zeros(1), 1)  # ends only if the thread gets to run
        thread.join()
    else:
        for _ in range(200):
            other.send(token, 0)
            other.recv(token, 0)
        comm.send(np.zeros(1), 0)


def test_other_threads_run_while_one_waits():
    ranks.run(2, other_threads_run)


def one_thread_at_a_time():
    world = weft.init()
    comm = world.comm
    if comm.rank == 0:
        inside = comm.dup()
        thread = threading.Thread(target=inside.recv, args=(bytearray(1), 1))
        thread.start()
        while " in receive" not in world.dump().splitlines()[0]:
            pass  # until the thread has arrived; who comes second is refused
        with pytest.raises(weft.InvalidError, match="another thread"):
            inside.send(b"", 0, 99)
        with pytest.raises(weft.InvalidError, match="can be closed when"):
            inside.close()
        with pytest.raises(weft.InvalidError, match="threads are inside"):
            world.close()
        comm.send(b"x", 1)
        thread.join()
        inside.close()
    else:
        inside = comm.dup()
        comm.recv(bytearray(1), 0)
        inside.send(b"x", 0)
    weft.finalize()


def test_a_communicator_in_use_refuses_other_threads_and_cannot_be_closed():
    ranks.run(2, one_thread_at_a_time)


def pending_at_the_end():
    comm = weft.init().comm
    mine = comm.dup()
    request = mine.irecv(bytearray(4), 1 - comm.rank)
    comm.barrier()
    weft.finalize()
    with pytest.raises(weft.ClosedError):
        request.wait()
    with pytest.raises(weft.ClosedError):
        mine.barrier()
    weft.finalize()


def test_what_is_pending_when_the_world_closes_ends_with_an_error():
    ranks.run(2, pending_at_the_end)


def test_objects_say_what_they_are(alone):
    world = weft.world()
    assert repr(world) == "<weft.World rank 0 of 1>"
    assert repr(alone) == "<weft.Comm rank 0 of 1>"
    request = alone.irecv(bytearray(1), 0)
    assert repr(request) == "<weft.Request recv, under way>"
    alone.send(b"x", 0)
    assert repr(request) == "<weft.Request recv, over>"
    request.wait()
    pending = alone.irecv(bytearray(1), 0)
    doomed = alone.dup()
    failed = doomed.irecv(bytearray(1), 0)
    doomed.abort("why not")
    while repr(failed) == "<weft.Request recv, under way>":
        time.sleep(0.001)  # another thread is driving, and will see it
    assert repr(failed) == "<weft.Request recv, failed>"
    weft.finalize()
    assert repr(world) == "<weft.World closed>"
    assert repr(pending) == "<weft.Request recv, closed>"
    for name in ("rank", "size", "members", "broken", "timeout"):
        with pytest.raises(weft.ClosedError, match="closed"):
            getattr(alone, name)
    assert alone.closed and alone.world is world and world.closed
