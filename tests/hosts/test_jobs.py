# SPDX-License-Identifier: Apache-2.0
"""Jobs of weft on several hosts: right results, the bytes that they cost, and what can go wrong."""

import contextlib
import functools
import json
import os
import signal
import socket
import sys
import time

import host_ranks
import numpy as np
import pytest
import waiting
import weft
import weft.cli
from weft.bench.bed import Bed

MIB = 1 << 20
HOST_TIMEOUT = 3  # seconds after which a host that is not heard is given up
HEARTBEAT = 0.5  # seconds; the default of WEFT_HEARTBEAT
TRANSPORTS = ("ucx",)
TCP_RTO_MAX_MS = 44  # of linux/tcp.h; the longest pause before TCP sends again


def environment(transport, **more):
    return {"WEFT_TRANSPORTS": f"self,shm,{transport}", **more}


def join():
    world = weft.init()
    world.comm.barrier()
    weft.finalize()


@functools.cache
def unsupported(transport):
    """Why two hosts cannot be one job by this transport, in weft's own words; None if they can."""
    with Bed(hosts=2) as bed, host_ranks.Job(bed, join, environment=environment(transport)) as job:
        try:
            job.finish()
        except AssertionError as error:
            lines = [line for line in str(error).splitlines() if line.startswith("weft.")]
            last = lines[-1] if lines else str(error)
            # Whatever else is wrong is for the tests to show.
            lacks = ("not supported", "Unsupported", f"libweft_{transport}", "unknown transport")
            return last if any(word in last for word in lacks) else None


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    if (why := unsupported(request.param)) is not None:
        pytest.skip(f"no job on several hosts by {request.param}: {why}")
    return request.param


def collectives():
    """Whole numbers, so that every order of additions gives the same."""
    comm = weft.init().comm
    rank, size = comm.rank, comm.size
    for count in (0, 1, 1000, 300_001):
        x = np.arange(count, dtype="f4") % 1000 + rank
        whole = np.arange(count, dtype="f4") % 1000
        total = size * whole + size * (size - 1) / 2
        np.testing.assert_array_equal(comm.allreduce(x, out=np.empty_like(x)), total)
        y = x.copy() if rank == size - 1 else np.full(count, -1, "f4")
        comm.broadcast(y, root=size - 1)
        np.testing.assert_array_equal(y, whole + size - 1)
        all_ = comm.allgather(x, np.empty(size * count, "f4"))
        np.testing.assert_array_equal(all_.reshape(size, count), whole + np.c_[0:size])
        mine = comm.reduce_scatter(np.tile(x, size), np.empty(count, "f4"))
        np.testing.assert_array_equal(mine, total)
        others = np.arange(size)
        blocks = np.full(size * count, -1)
        comm.alltoall(np.repeat(100 * rank + others, count), blocks)
        np.testing.assert_array_equal(blocks, np.repeat(100 * others + rank, count))
    comm.barrier()


@pytest.mark.bed(hosts=3)
@pytest.mark.parametrize("each", [1, 2, [1, 3, 1], [0, 2, 3]], ids=str)
def test_collectives_are_right_on_any_number_of_ranks_of_each_host(bed, transport, each):
    host_ranks.run(bed, collectives, each=each, environment=environment(transport))


def nodes():
    world = weft.init()
    print(*(f"{peer.host}:{peer.node}:{int(peer.shares_memory)}" for peer in world.peers))
    world.comm.barrier()


def test_ranks_of_one_host_are_a_node(bed, transport):
    said = host_ranks.run(bed, nodes, each=2, environment=environment(transport))
    here, there = "host0:0:1 host0:0:1", "host1:1:0 host1:1:0"
    assert said[0].splitlines()[0] == f"{here} {there}"
    assert said[3].splitlines()[0] == "host0:0:0 host0:0:0 host1:1:1 host1:1:1"


@pytest.mark.bed(hosts=3)
def test_the_interface_that_leads_to_other_hosts_is_told_once(bed, transport):
    env = environment(transport, WEFT_LOG="info")
    for text in host_ranks.run(bed, collectives, environment=env):
        (line,) = [line for line in text.splitlines() if " uses UCX " in line]
        assert line.endswith(" over tcp/eth0")


@pytest.mark.bed(hosts=4)
def test_jobs_that_are_left_at_once_end_well(bed, transport):
    """Some are still connecting then."""
    for _ in range(4):
        host_ranks.run(bed, join, each=2, environment=environment(transport))


def allreduce(count, times):
    comm = weft.init().comm
    x = np.ones(count, "f4")
    for _ in range(times):
        x[:] = 1
        assert (comm.allreduce(x) == comm.size).all()


def told_of(group, late, operation, timeout):
    """What ranks are told of rank `late`, which does not call; None on that one."""
    group.timeout = timeout
    begun = time.monotonic()
    try:
        if group.rank != late:
            request = getattr(group, operation)(np.ones(1000))
            if operation == "iallreduce":
                request.wait()
    except weft.TimeoutError as error:
        return f"{time.monotonic() - begun - timeout:.2f} {error}"
    return None


def meet_or_tell(late):
    """Rank `late` comes after the deadline of the others.

    Where another is taken for it, since that one got no core for so long, the time was too short.
    """
    comm = weft.init().comm
    comm.barrier()
    for operation in ("allreduce", "iallreduce"):
        for timeout in (1.0, 4.0, 16.0):
            group = comm.dup()  # kept until all are told: to close it is to tell, too
            text = told_of(group, late, operation, timeout)
            right = comm.rank != 0 or (text is not None and f"rank {late} " in text)
            if comm.allreduce(np.array([float(right)]))[0] == comm.size:
                break
        if text is not None:
            print(text, flush=True)
        comm.barrier()


@pytest.mark.bed(hosts=2)
@pytest.mark.parametrize("each", [1, 2])
def test_a_rank_that_does_not_come_is_named_when_the_deadline_passes(bed, transport, each):
    """Heartbeats, which go on meanwhile, do not put it off for half an hour."""
    said = host_ranks.run(bed, meet_or_tell, each, each=each, environment=environment(transport))
    told = [text.splitlines() for text in said]
    assert [len(lines) for lines in told] == [
        0 if rank == each else 2 for rank in range(len(bed) * each)
    ]
    # Not at once: the machine may be busy. The other bound is WEFT_TIMEOUT, half an hour.
    assert all(float(line.split()[0]) < 20 for lines in told for line in lines), told
    assert all(f"rank {each} " in line for line in told[0]), told


def long_messages(mib):
    """Each takes longer than the deadline."""
    comm = weft.init().comm
    x = np.full(mib * MIB, comm.rank, "u1")
    y = np.full_like(x, 9)
    comm.barrier()
    comm.timeout = 2.0
    begun = time.monotonic()
    if comm.rank == 0:
        comm.send(x, 1)
        comm.isend(x, 1).wait()
    else:
        comm.recv(y, 0)
        assert time.monotonic() - begun > comm.timeout
        assert not y.any()
        y[:] = 1
        comm.irecv(y, 0).wait()
        assert not y.any()
    comm.broadcast(x, root=1)
    assert x.all()
    comm.iallreduce(x).wait()
    assert (x == 2).all()


@pytest.mark.bed(hosts=2, rate="50mbit")
def test_a_message_that_moves_is_not_late(bed, transport):
    host_ranks.run(bed, long_messages, 16, environment=environment(transport))


@pytest.mark.parametrize("each", [1, 2])
@pytest.mark.parametrize("hosts", [2, 3, 4])
def test_an_allreduce_sends_what_a_ring_of_hosts_has_to_and_no_more(hosts, each, transport):
    count, times = 4 * MIB, 2
    with Bed(hosts) as bed:
        env = environment(transport)
        host_ranks.run(bed, allreduce, count, times, each=each, environment=env)
        least = 2 * (hosts - 1) / hosts * 4 * count * times
        for host in range(hosts):
            for moved in bed.bytes(host):
                assert least < moved < 1.05 * least, f"{moved / least:.2f} of what is needed"


def call(operation, count, times):
    comm = weft.init().comm
    x = np.ones(count, "f4")
    all_ = np.ones(comm.size * count, "f4")
    for _ in range(times):
        if operation in ("broadcast", "reduce"):
            getattr(comm, operation)(x, root=1)
        elif operation == "allgather":
            comm.allgather(x, all_)
        elif operation == "reduce_scatter":
            comm.reduce_scatter(all_, x)
        else:
            comm.alltoall(all_, np.empty_like(all_))
    comm.barrier()


# What crosses the cable of a host, in parts of one rank, with two ranks on each of two hosts.
PARTS = {"broadcast": 1, "reduce": 1, "allgather": 4, "reduce_scatter": 4, "alltoall": 8}


@pytest.mark.parametrize("operation", PARTS)
def test_other_operations_send_what_they_have_to_and_no_more(bed, transport, operation):
    count, times = MIB, 2
    env = environment(transport)
    host_ranks.run(bed, call, operation, count, times, each=2, environment=env)
    least = PARTS[operation] * 4 * count * times
    for host in range(len(bed)):
        moved = sum(bed.bytes(host))
        # Frames and acknowledgements are 7 % where the cable takes no larger packets.
        assert least < moved < 1.1 * least, f"{moved / least:.2f} of what is needed"


def until_told(end, camps):
    """Reduce until that fails, say when and why, and go on with the ranks of one's own camp.

    Stay until there is the file `end`: whoever leaves at once may be the first that others hear of.
    """
    comm = weft.init().comm
    print("started", flush=True)
    try:
        while True:
            assert comm.allreduce(np.ones(1000))[0] == comm.size
    except weft.Error as error:
        print("told", type(error).__name__, time.monotonic(), error, flush=True)
    (camp,) = (camp for camp in camps if comm.rank in camp)
    rest = comm.shrink([rank for rank in range(comm.size) if rank not in camp])
    for count in (1, 100_000):
        x = np.arange(count) + comm.rank
        np.testing.assert_array_equal(
            rest.allreduce(x), len(camp) * np.arange(count) + sum(camp), strict=True
        )
    print("went on", rest.size, flush=True)
    while not os.path.exists(end):
        time.sleep(0.01)


def told(rank):
    """When a rank was told, by the clock that hosts of a bed have in common, and of what."""
    when, text = rank.line("told PeerError").split(maxsplit=1)
    return float(when), text


def see_camps_go_on(job, camps):
    for camp in camps:
        for number in camp:
            assert job[number].line("went on") == str(len(camp))


def deadline(ranks):
    """Seconds from a cut within which all are told, and before which nobody may be.

    The last heartbeat may be as old as one takes to come after another. One is looked for as often,
    and of hosts that were cut off together the last ones are named an eighth of the time later.
    """
    most = HOST_TIMEOUT * 9 / 8 + 2 * HEARTBEAT
    return HOST_TIMEOUT - 2 * HEARTBEAT, waiting.bound(most, ranks, times=1.3)


def started(bed, body, transport, *args, each=1, **settings):
    settings = {f"WEFT_{name}": str(value) for name, value in settings.items()}
    env = environment(transport, **settings)
    job = host_ranks.Job(bed, body, *args, each=each, environment=env)
    for rank in job.ranks:
        rank.line("started")
    return job


@pytest.mark.bed(hosts=3)
@pytest.mark.parametrize("victim", [0, 2, 3])
def test_a_killed_process_of_another_host_is_named_by_all_others(bed, transport, victim):
    """Within a second; then they go on without it."""
    end, others = bed.shared / "end", [rank for rank in range(6) if rank != victim]
    with started(bed, until_told, transport, str(end), [others], each=2) as job:
        killed = time.monotonic()
        job.kill(victim)
        for number in others:
            when, text = told(job[number])
            assert f"rank {victim} " in text
            assert f"host{victim // 2}" in text
            assert when - killed < waiting.bound(1.0, 6)
        see_camps_go_on(job, [others])
        end.touch()
        job.finish({victim: -signal.SIGKILL})


@pytest.mark.bed(hosts=3)
@pytest.mark.parametrize("host", [0, 2])
def test_a_host_that_is_switched_off_is_named_by_all_others(bed, transport, host):
    """Within the deadline; then they go on without it."""
    end, settings = bed.shared / "end", {"HOST_TIMEOUT": HOST_TIMEOUT}
    others = [rank for rank in range(6) if rank // 2 != host]
    with started(bed, until_told, transport, str(end), [others], each=2, **settings) as job:
        before = time.monotonic()
        bed.kill(host)
        after = time.monotonic()
        least, most = deadline(6)
        for number in others:
            when, text = told(job[number])
            assert f"host{host}" in text
            assert when - before > least
            assert when - after < most
        see_camps_go_on(job, [others])
        end.touch()
        job.finish({2 * host: -signal.SIGKILL, 2 * host + 1: -signal.SIGKILL})


@pytest.mark.bed(hosts=3)
@pytest.mark.parametrize("seen", [False, True])
def test_a_host_whose_cable_is_cut_is_given_up_by_the_others_and_they_by_it(bed, transport, seen):
    """Within the deadline; then each side goes on without the other."""
    end, settings = bed.shared / "end", {"HOST_TIMEOUT": HOST_TIMEOUT}
    camps = [[0, 1, 4, 5], [2, 3]]
    with started(bed, until_told, transport, str(end), camps, each=2, **settings) as job:
        before = time.monotonic()
        bed.cut(1, seen=seen)
        after = time.monotonic()
        least, most = deadline(6)
        for number in range(6):
            when, text = told(job[number])
            assert number in camps[1] or "host1" in text
            assert when - before > least
            assert when - after < most
        see_camps_go_on(job, camps)
        end.touch()
        job.finish()


def reduce_until(end):
    """Reduce until there is the file `end`, and tell how often; ranks agree on when it is over."""
    comm = weft.init().comm
    comm.barrier()
    print("started", flush=True)
    over, count = 0.0, 0
    while not over:
        mine = float(comm.rank == 0 and os.path.exists(end))
        found = comm.allreduce(np.array([mine, 1.0, float(count)]))
        over = found[0]
        assert found[1] == comm.size
        assert found[2] == comm.size * count
        count += 1
    print("ended", count, flush=True)


@pytest.mark.bed(hosts=3)
@pytest.mark.parametrize("seen", [False, True])
def test_a_cable_that_is_cut_and_mended_in_time_loses_nothing(bed, transport, seen):
    end = bed.shared / "end"
    with started(bed, reduce_until, transport, str(end), HOST_TIMEOUT=60) as job:
        bed.cut(1, seen=seen)
        # Nothing comes through, so what is sent is sent again.
        before = bed.packets(0)[0]
        waiting.until(lambda: bed.packets(0)[0] > before + 1, "packets are sent again")
        bed.mend(1)
        end.touch()
        job.finish()


def move_for(seconds):
    """Large data, nothing but that, for so long: all of it comes and is right."""
    comm = weft.init().comm
    rank, size = comm.rank, comm.size
    bytes_, numbers = np.arange(16 * MIB, dtype="u4").astype("u1"), np.arange(MIB) % 1000
    came, over, count, end = np.empty_like(bytes_), 0, 0, time.monotonic() + seconds
    while not over:
        receiving = comm.irecv(came, (rank - 1) % size)
        sending = comm.isend(bytes_ + np.uint8(rank + count), (rank + 1) % size)
        for step in range(3):
            x = (numbers + rank + count + step).astype("f4")  # 4 MiB of whole numbers
            total = size * (numbers + count + step) + size * (size - 1) // 2
            np.testing.assert_array_equal(comm.allreduce(x), total)
        sending.wait()
        receiving.wait()
        np.testing.assert_array_equal(came, bytes_ + np.uint8((rank - 1) % size + count))
        count += 1
        over = comm.allreduce(np.array([int(rank == 0 and time.monotonic() > end)]))[0]
        if count == 1:
            print("started", flush=True)  # all connections are there


@pytest.mark.bed(hosts=3, rate="1gbit")
def test_large_data_under_way_is_right_after_a_cable_was_cut_and_mended(bed, transport):
    with started(bed, move_for, transport, 3.0, HOST_TIMEOUT=60) as job:
        bed.cut(1)
        before = bed.packets(0)[0]
        waiting.until(lambda: bed.packets(0)[0] > before + 1, "packets are sent again")
        moved = bed.bytes(1)[1]
        bed.mend(1)
        waiting.until(lambda: bed.bytes(1)[1] > moved + 16 * MIB, "the rest comes")
        job.finish()


def bounds_pauses():
    """Can TCP's pauses be bounded here? Since Linux 6.15."""
    with socket.socket() as any_, contextlib.suppress(OSError):
        any_.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, 1000)
        return True
    return False


@pytest.mark.skipif(not bounds_pauses(), reason="TCP has no TCP_RTO_MAX_MS here")
def test_a_cable_may_be_cut_for_most_of_the_timeout(bed, transport):
    """By itself TCP sends again 6.2 s after the cut, and then 12.6 s after it: too late.

    Here it pauses for 1.5 s at most, so the others hear from the host 3 s before they give it up.
    """
    end = bed.shared / "end"
    with started(bed, reduce_until, transport, str(end), HOST_TIMEOUT=12) as job:
        bed.cut(1)
        time.sleep(7)
        bed.mend(1)
        end.touch()
        job.finish()


def wait_in_barrier():
    comm = weft.init().comm
    print("started", flush=True)
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    comm.barrier()


def test_a_stopped_process_of_another_host_is_waited_for(bed, transport):
    env = environment(transport, WEFT_HOST_TIMEOUT="2")
    with host_ranks.Job(bed, wait_in_barrier, environment=env) as job:
        for rank in job.ranks:
            rank.line("started")
        stopped = job[1].process
        waiting.until(lambda: state(stopped.pid) == "T", "the rank is stopped")
        stopped.send_signal(signal.SIGCONT)
        job.finish()


def wait_in_allreduce(end):
    """Stay until there is the file `end`: whoever leaves at once may be the first heard of."""
    comm = weft.init().comm
    comm.barrier()
    comm.timeout = 4
    print("started", flush=True)
    try:
        while True:
            comm.allreduce(np.ones(1))
    except weft.Error as error:
        print("told", type(error).__name__, error, flush=True)
    while not os.path.exists(end):
        time.sleep(0.01)


@pytest.mark.bed(hosts=3)
def test_a_stopped_process_is_named_when_the_timeout_passes(bed, transport):
    """Others ask the host of a stopped rank for signs of life, and it answers."""
    end = bed.shared / "end"
    settings = {"HOST_TIMEOUT": HOST_TIMEOUT}
    work = (wait_in_allreduce, transport, str(end))
    with started(bed, *work, each=[1, 1, 3], **settings) as job:
        job.kill(2, signal.SIGSTOP)
        for number in (0, 1, 3, 4):
            assert "rank 2 " in job[number].line("told TimeoutError", seconds=60)
        end.touch()


def do_nothing(seconds):
    """Say what share of a core that takes, with everything that the library does by itself."""
    comm = weft.init().comm
    assert comm.allreduce(np.ones(1000))[0] == comm.size
    comm.barrier()
    time.sleep(0.5)  # what follows a call is over by then
    used = time.process_time()
    time.sleep(seconds)
    print(f"used {(time.process_time() - used) / seconds}\n", end="", flush=True)  # in one piece
    comm.barrier()


def test_an_idle_job_uses_less_than_a_hundredth_of_a_core(bed, transport):
    said = host_ranks.run(bed, do_nothing, 3.0, each=2, environment=environment(transport))
    for text in said:
        assert float(text.split()[1]) < 0.01


def doctor():
    sys.exit(weft.cli.main(["doctor", "--json"]))


def test_the_doctor_lists_pairs_of_ranks_across_hosts(bed, transport):
    said = host_ranks.run(bed, doctor, each=[2, 1], environment=environment(transport))
    report = json.loads(said[0])["job"]
    hosts = [report[f"node {node}"]["host"] for node in (0, 1)]
    assert hosts == ["host0", "host1"]
    assert report[f"by {transport}"] == [[0, 1]]
    for title in ("latency of 8 bytes, microseconds", "bandwidth of 1 MiB messages, GB/s"):
        for a in range(3):
            for b in range(3):
                assert (report[title][a][b] > 0) == (a != b)


def state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
