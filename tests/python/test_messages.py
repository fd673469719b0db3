# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks, from one of them or from whoever sends."""

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
            assert comm.recv(got, peer=1, tag=7) == (1, 7, count)
            np.testing.assert_array_equal(got, x + 1)
        else:
            got = np.zeros_like(x)
            assert comm.recv(got, 0) == (0, 0, count)
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
        assert comm.recv(x, 0).length == 2
        assert x.tolist() == [5, 6, 0, 0]
        with pytest.raises(weft.TruncatedError):
            comm.recv(x, 0)
        with pytest.raises(weft.InvalidError, match="3 bytes"):
            comm.recv(x, 0)
        assert comm.irecv(x[::2], 0).wait().length == 2
        assert x.tolist()[::2] == [7, 8]


def test_a_shorter_message_is_counted_and_a_longer_one_is_an_error():
    ranks.run(2, shorter_and_longer)


def both_ways():
    comm = weft.init().comm
    other = 1 - comm.rank
    sent = np.full(500_000, comm.rank, "f8")
    got = np.empty_like(sent)
    requests = [comm.irecv(got, other), comm.isend(sent, other)]
    assert requests[0].wait().length == len(got)
    assert requests[1].wait() is None
    assert (got == other).all()


def test_both_ranks_can_send_at_once_without_deadlock():
    ranks.run(2, both_ways)


def test_a_rank_can_send_to_itself(alone):
    request = alone.irecv(x := np.zeros(2), 0)
    alone.send(np.array([1.0, 2.0]), 0)
    assert request.wait(5).length == 2
    assert x.tolist() == [1.0, 2.0]


def from_anybody():
    comm = weft.init().comm
    if comm.rank == 0:
        seen = set()
        for _ in range(2 * (comm.size - 1)):
            x = np.zeros(8, "i4")
            message = comm.recv(x, weft.ANY_SOURCE, weft.ANY_TAG)
            assert isinstance(message, weft.Message)
            peer, tag, length = message
            assert (message.peer, message.tag, message.length) == (peer, tag, length)
            assert x[:length].tolist() == [peer * 100 + tag] * length and length == tag + 1
            seen.add((peer, tag))
        assert seen == {(r, tag) for r in range(1, comm.size) for tag in (r, r + 2)}
        request = comm.irecv(x, weft.ANY_SOURCE, 9)
        comm.barrier()
        assert request.wait() == (comm.size - 1, 9, 1)
        assert repr(request) == "<weft.Request recv, over>"
    else:
        for tag in (comm.rank, comm.rank + 2):
            comm.send(np.full(tag + 1, comm.rank * 100 + tag, "i4"), 0, tag)
        comm.barrier()
        if comm.rank == comm.size - 1:
            comm.send(np.zeros(1, "i4"), 0, 9)
    with pytest.raises(weft.InvalidError):
        comm.send(b"", weft.ANY_SOURCE)
    with pytest.raises(weft.InvalidError):
        comm.send(b"", 0, weft.ANY_TAG)
    comm.barrier()


@pytest.mark.parametrize("size", [2, 4])
def test_a_receive_can_take_what_anybody_sends_and_says_who_did(size):
    ranks.run(size, from_anybody)


def probes():
    comm = weft.init().comm
    if comm.rank == 0:
        assert comm.iprobe(1) is None
        comm.send(b"go", 1)
        message = comm.probe(weft.ANY_SOURCE, weft.ANY_TAG)
        assert message == (1, 6, 24)  # bytes: nobody said of what
        assert comm.probe(1, 6) == message == comm.iprobe(1, weft.ANY_TAG)
        assert comm.iprobe(1, 5) is None
        x = np.zeros(message.length // 8)
        assert comm.recv(x, message.peer, message.tag).length == 3
        assert x.tolist() == [1, 2, 3]
        assert comm.iprobe(weft.ANY_SOURCE, weft.ANY_TAG) is None
    else:
        comm.recv(bytearray(2), 0)
        comm.send(np.array([1.0, 2.0, 3.0]), 0, 6)
    with pytest.raises(weft.InvalidError):
        comm.iprobe(7)
    with pytest.raises(TypeError, match="peer"):
        comm.probe()
    comm.barrier()


def test_a_probe_tells_of_a_message_and_leaves_it_there():
    ranks.run(2, probes)


def around():
    comm = weft.init().comm
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for count in (0, 3, 100_000):
        x = np.full(count, comm.rank, "i4")
        out = np.full(count + 1, -1, "i4")
        assert comm.sendrecv(x, right, out, left) == (left, 0, count)
        assert (out[:count] == left).all() and out[count] == -1
        strided = np.zeros((count, 2), "i4")[:, 1]
        request = comm.isendrecv(x, right, strided, weft.ANY_SOURCE, tag=3, source_tag=3)
        assert request.wait() == (left, 3, count)
        assert (strided == left).all()
    other = comm.rank ^ 1
    if other < comm.size:
        out = bytearray(2)
        assert comm.sendrecv(b"%d" % comm.rank, other, out) == (other, 0, 1)
        assert out == b"%d\0" % other
    assert comm.sendrecv(b"me", comm.rank, out := bytearray(2), tag=1, source_tag=1).length == 2
    assert out == b"me"
    with pytest.raises(weft.TruncatedError):
        comm.sendrecv(b"long", comm.rank, bytearray(2))
    with pytest.raises(weft.InvalidError, match="read-only"):
        comm.sendrecv(b"x", comm.rank, b"y")
    with pytest.raises(TypeError, match="'out'"):
        comm.sendrecv(b"x", comm.rank)
    comm.barrier()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_can_send_and_receive_in_a_ring(size):
    ranks.run(size, around)


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
    with pytest.raises(weft.InvalidError, match="not one of sum"):
        alone.allreduce(x, "add")
    with pytest.raises(weft.InvalidError, match="factor"):
        alone.allreduce(x, "premul_sum")
    with pytest.raises(TypeError, match="op must be"):
        alone.allreduce(x, 3)
    with pytest.raises(weft.InvalidError, match="timeout"):
        alone.timeout = -1
    assert not alone.broken
