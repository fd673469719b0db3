# SPDX-License-Identifier: Apache-2.0
"""send and recv between two ranks."""

import numpy as np
import pytest
import ranks
import weft


def every_size():
    comm = weft.init().comm
    for count in (0, 1, 100, 20_000, 2_000_000):
        x = np.arange(count, dtype="i4")
        if comm.rank == 0:
            comm.send(x, 1)
            got = np.zeros_like(x)
            assert comm.recv(got, peer=1, tag=7) == count
            np.testing.assert_array_equal(got, x + 1)
        else:
            got = np.zeros_like(x)
            assert comm.recv(got, 0) == count
            comm.send(got + 1, peer=0, tag=7)


def test_messages_of_every_size_arrive_whole():
    ranks.run(2, every_size)


def by_tag():
    comm = weft.init().comm
    if comm.rank == 0:
        for tag in (3, 1, 2, 1):
            comm.send(np.array([tag]), 1, tag)
    else:
        got = np.zeros(1, "i8")
        for tag in (1, 1, 2, 3):
            comm.recv(got, 0, tag)
            assert got[0] == tag


def test_tags_pick_the_message():
    ranks.run(2, by_tag)


def shorter_and_longer():
    comm = weft.init().comm
    if comm.rank == 0:
        comm.send(np.array([5, 6]), 1)
        comm.send(np.arange(9), 1)
        comm.send(b"odd", 1)
        comm.send(np.array([7, 8]), 1)
    else:
        x = np.zeros(4, "i8")
        assert comm.recv(x, 0) == 2
        assert x.tolist() == [5, 6, 0, 0]
        with pytest.raises(weft.TruncatedError):
            comm.recv(x, 0)
        with pytest.raises(weft.InvalidError, match="3 bytes"):
            comm.recv(x, 0)
        assert comm.irecv(x[::2], 0).wait() == 2
        assert x.tolist()[::2] == [7, 8]


def test_a_shorter_message_is_counted_and_a_longer_one_is_an_error():
    ranks.run(2, shorter_and_longer)


def both_ways():
    comm = weft.init().comm
    other = 1 - comm.rank
    sent = np.full(500_000, comm.rank, "f8")
    got = np.empty_like(sent)
    requests = [comm.irecv(got, other), comm.isend(sent, other)]
    assert requests[0].wait() == len(got)
    assert requests[1].wait() is None
    assert (got == other).all()


def test_both_ranks_can_send_at_once_without_deadlock():
    ranks.run(2, both_ways)


def test_a_rank_can_send_to_itself(alone):
    request = alone.irecv(x := np.zeros(2), 0)
    alone.send(np.array([1.0, 2.0]), 0)
    assert request.wait(5) == 2
    assert x.tolist() == [1.0, 2.0]


def test_bad_arguments_are_named(alone):
    x = np.zeros(2)
    with pytest.raises(TypeError, match="peer"):
        alone.send(x)
    with pytest.raises(TypeError, match="'colour'"):
        alone.send(x, 0, colour=1)
    with pytest.raises(TypeError, match="twice"):
        alone.send(x, 0, x=x)
    with pytest.raises(TypeError, match="whole number"):
        alone.send(x, "one")
    with pytest.raises(weft.InvalidError, match="tag"):
        alone.send(x, 0, -1)
    with pytest.raises(weft.InvalidError):
        alone.send(x, 5)
    with pytest.raises(weft.InvalidError):
        alone.broadcast(x, root=5)
    with pytest.raises(weft.InvalidError, match="none of sum"):
        alone.allreduce(x, "add")
    with pytest.raises(weft.InvalidError, match="factor"):
        alone.allreduce(x, "premul_sum")
    with pytest.raises(TypeError, match="op must be"):
        alone.allreduce(x, 3)
    with pytest.raises(weft.InvalidError, match="timeout"):
        alone.timeout = -1
    assert not alone.broken
