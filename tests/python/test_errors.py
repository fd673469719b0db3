# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one for each status, and what a broken communicator does."""

import builtins

import numpy as np
import pytest
import ranks
import weft


def test_every_exception_is_a_weft_error_and_what_python_calls_the_same():
    same = {
        weft.InvalidError: (-1, ValueError),
        weft.NoMemError: (-2, MemoryError),
        weft.SystemError: (-3, OSError),
        weft.TimeoutError: (-4, builtins.TimeoutError),
        weft.PeerError: (-5, ConnectionError),
        weft.MismatchError: (-6, RuntimeError),
        weft.UnsupportedError: (-7, NotImplementedError),
        weft.ClosedError: (-8, RuntimeError),
        weft.ProtocolError: (-9, RuntimeError),
        weft.DeniedError: (-10, PermissionError),
        weft.TruncatedError: (-11, RuntimeError),
        weft.AbortedError: (-12, RuntimeError),
    }
    for kind, (status, builtin) in same.items():
        assert issubclass(kind, (weft.Error, builtin)) and issubclass(kind, RuntimeError)
        assert (kind.status, kind.__module__) == (status, "weft")
        assert str(kind("why")) == "why"
    assert set(weft.Error.__subclasses__()) == set(same)


def test_operations_are_compared_by_what_they_do():
    assert weft.SUM.name == "sum" and weft.SUM != weft.MAX
    assert weft.premul_sum(2) == weft.premul_sum(2.0) != weft.premul_sum(3)
    assert weft.premul_sum(0.5).factor == 0.5
    assert len({weft.SUM, weft.SUM, weft.premul_sum(2), weft.premul_sum(2)}) == 2
    assert repr(weft.premul_sum(0.5)) == "<weft.Op premul_sum(0.5)>"


def mismatched():
    comm = weft.init().comm
    with pytest.raises(weft.MismatchError) as caught:
        comm.allreduce(np.ones(3 + comm.rank, "f4"))
    text = str(caught.value)
    assert "3 f32" in text and "4 f32" in text and "rank 0" in text and "rank 1" in text
    assert comm.broken
    with pytest.raises(weft.MismatchError):
        comm.barrier()


def test_different_calls_are_an_error_that_shows_both():
    ranks.run(2, mismatched)


def late():
    comm = weft.init().comm
    slow = comm.dup()
    if comm.rank == 0:
        slow.timeout = 0.2
        assert slow.timeout == pytest.approx(0.2)
        with pytest.raises(weft.TimeoutError, match="rank 1"):
            slow.barrier()
        assert slow.broken and not comm.broken
    comm.barrier()
    with pytest.raises(weft.TimeoutError):
        slow.barrier()
    slow.timeout = None


def test_a_rank_that_does_not_come_is_named_when_the_deadline_passes():
    ranks.run(2, late)


def aborted():
    comm = weft.init().comm
    doomed = comm.dup()
    if comm.rank == 0:
        comm.recv(bytearray(1), 1)
        doomed.abort("the disk is full")
    else:
        request = doomed.ibarrier()
        comm.send(b"x", 0)
        with pytest.raises(weft.AbortedError, match="the disk is full"):
            request.wait()
        assert request.done
    with pytest.raises(weft.AbortedError, match="the disk is full"):
        doomed.allreduce(np.ones(1))
    comm.barrier()


def test_abort_fails_what_is_pending_and_later_on_all_ranks():
    ranks.run(2, aborted)


def test_before_init_and_after_finalize_there_is_no_world():
    for call in (weft.world, weft.rank, weft.size, weft.dump):
        with pytest.raises(weft.ClosedError, match="init"):
            call()
    world = weft.init("alone")
    comm = world.comm
    weft.finalize()
    assert world.closed and comm.closed and repr(comm) == "<weft.Comm closed>"
    for use in (lambda: world.rank, lambda: comm.size, comm.barrier, comm.dup, world.dump):
        with pytest.raises(weft.ClosedError):
            use()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"boot": "nowhere"}, weft.InvalidError, "'alone'"),
        ({"boot": "alone", "comm": object()}, weft.InvalidError, "one of"),
        ({"rank": 0, "size": 1}, weft.InvalidError, "require a store"),
        ({"store": object(), "rank": 0}, weft.InvalidError, "both rank and size"),
        ({"store": object(), "rank": 3, "size": 2}, weft.InvalidError, "rank 3 is out of range"),
        ({"boot": "alone", "timeout": 0}, weft.InvalidError, "greater than 0"),
        ({"boot": "alone", "no_such_setting": 1}, weft.InvalidError, "NO_SUCH_SETTING"),
        ({"boot": "alone", "shm_eager": "two words"}, weft.InvalidError, "spaces"),
        ({"boot": object()}, AttributeError, "rank"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_init_refuses_what_it_cannot_use(arguments, error, text):
    with pytest.raises(error, match=text):
        weft.init(**arguments)


def test_settings_given_in_code_are_used():
    try:
        assert weft.init("alone", timeout=7, shm_eager="4K").comm.timeout == pytest.approx(7)
    finally:
        weft.finalize()
