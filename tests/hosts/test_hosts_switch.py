# SPDX-License-Identifier: Apache-2.0
"""Aggregation in the network between hosts: chosen where it pays, right, and back after a death."""

import contextlib
import os
import pathlib
import subprocess
import time

import host_ranks
import numpy as np
import pytest
import switches
import test_jobs
import waiting
import weft
from weft._switch import PROGRAM
from weft.bench.bed import Bed, Unavailable

COUNT, TIMES = 1 << 20, 2

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="weft-switch is not in the package")
transport = test_jobs.transport  # skips where two hosts cannot be one job


@contextlib.contextmanager
def switch_in(bed, *options):
    """A weft-switch where the cables of all hosts end: its process, page and address."""
    key = bed.shared / "switch-key"
    if not key.exists():
        switches.make_key(key)
    command = [PROGRAM, "--key", key, "--http", f"{bed.switch_address}:8080", *options]
    process = bed.popen_in_switch(command, stdout=subprocess.PIPE, text=True)
    port = switches.read_port(process)
    try:
        yield {"WEFT_SWITCH": f"{bed.switch_address}:{port}", "WEFT_SWITCH_KEY": str(key)}, process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def settings(place):
    return {**test_jobs.environment("ucx"), **place}


def count_chunks(count, times, address):
    test_jobs.allreduce(count, times)
    comm = weft.world().comm
    comm.barrier()
    if comm.rank == 0:
        print("chunks", switches.chunks_at(f"http://{address}:8080/"), flush=True)
    comm.barrier()


def counted(hosts, each):
    """The chunks that the switch reduces, and the bytes through the cable of each host.

    Again where ranks got no core for so long that they gave the switch up.
    """
    for _ in range(3):
        with Bed(hosts) as bed, switch_in(bed) as (place, _):
            work = (count_chunks, COUNT, TIMES, bed.switch_address)
            said = host_ranks.run(bed, *work, each=each, environment=settings(place))
            moved = [bytes_ for host in range(hosts) for bytes_ in bed.bytes(host)]
        if not any("goes on without its switch" in text for text in said):
            break
    (chunks,) = (line.split()[1] for line in said[0].splitlines() if line.startswith("chunks"))
    return float(chunks), moved


@pytest.mark.parametrize(("hosts", "each"), [(3, 1), (4, 1), (3, 2), (3, [1, 3, 2])], ids=str)
def test_each_host_sends_and_receives_every_element_once(transport, hosts, each):
    chunks, moved = counted(hosts, each)
    # A packet of 1088 bytes has 256 floats and the exponents of their 4 blocks.
    assert chunks == COUNT // 256 * TIMES
    # Less than a ring of three hosts would move, with room for packets that are sent again.
    assert all(4 * COUNT * TIMES < bytes_ < 2 * 4 * COUNT * TIMES for bytes_ in moved), moved


@pytest.mark.parametrize("each", [1, 2], ids=str)
def test_on_two_hosts_it_is_not_chosen(transport, each):
    chunks, _ = counted(2, each)
    assert chunks == 0


@pytest.mark.bed(hosts=3)
def test_results_are_right_with_loss(bed, transport):
    with switch_in(bed, "--inject", "loss=0.01,reorder=0.01,seed=3") as (place, _):
        host_ranks.run(bed, test_jobs.collectives, environment=settings(place))


def sums_under_loss(loses, page):
    """Begin when the cables lose packets; all goes through the switch then, too."""
    comm = weft.init().comm
    comm.allreduce(np.ones(1000, "f4"))
    print("joined", flush=True)
    while not os.path.exists(loses):
        time.sleep(0.01)
    before = switches.chunks_at(page) if comm.rank == 0 else 0
    for dtype in ("i8", "f4", "f8"):
        for count in (1, 1000, 300_001):
            x = (np.arange(count) % 1000 + comm.rank).astype(dtype)
            total = comm.size * (np.arange(count) % 1000) + comm.size * (comm.size - 1) // 2
            np.testing.assert_array_equal(comm.allreduce(x), total)
    if comm.rank == 0:
        assert switches.chunks_at(page) - before >= 300_001 * (8 + 4 + 8) // 1088


@pytest.mark.bed(hosts=3)
@pytest.mark.parametrize("share", [0.01, 0.05])
def test_results_are_right_on_cables_that_lose_packets(bed, transport, share):
    """As the kernel loses them: what was merged for it goes as one."""
    loses = bed.shared / "loses"
    work = (sums_under_loss, str(loses), f"http://{bed.switch_address}:8080/")
    with contextlib.ExitStack() as stack:
        place, _ = stack.enter_context(switch_in(bed))
        job = stack.enter_context(host_ranks.Job(bed, *work, environment=settings(place)))
        for rank in job.ranks:
            rank.line("joined")
        try:
            for host in range(3):
                bed.lose(host, share)
        except Unavailable as error:
            pytest.skip(str(error))
        loses.touch()
        job.finish()


def do_nothing(count):
    test_jobs.allreduce(count, 3)
    weft.world().comm.barrier()
    time.sleep(0.2)  # what was asked to happen soon after the call is over by then
    used = time.process_time()
    time.sleep(1.0)
    print("used", time.process_time() - used, flush=True)
    weft.world().comm.barrier()


@pytest.mark.bed(hosts=3)
def test_ranks_that_do_nothing_use_no_processor(bed, transport):
    with switch_in(bed, "--inject", "repeat=0.5,seed=3") as (place, _):
        said = host_ranks.run(bed, do_nothing, COUNT, environment=settings(place))
    for text in said:
        # Threads that wait for each other in vain would use all of a core.
        assert float(text.split()[1]) < 0.3


def go_on(file, address):
    """Call until calls go through the switch again; rank 0 tells when it has begun."""
    comm = weft.init().comm
    goes_on, i = np.ones(1, "i4"), 0
    x = np.empty(300_000, "f4")
    while goes_on[0]:
        x[:] = comm.rank + i % 10
        comm.allreduce(x)
        assert (x == comm.size * (i % 10) + comm.size * (comm.size - 1) / 2).all()
        i += 1
        if i == 3 and comm.rank == 0:
            pathlib.Path(file).touch()
        if pathlib.Path(f"{file}-again").exists() and comm.rank == 0:
            goes_on[0] = switches.chunks_at(f"http://{address}:8080/") == 0
        comm.broadcast(goes_on)
    comm.barrier()


@pytest.mark.bed(hosts=3)
def test_the_switch_dies_and_comes_back_in_the_middle_of_a_job(bed, transport):
    begun = bed.shared / "begun"
    with contextlib.ExitStack() as stack:
        place, switch = stack.enter_context(switch_in(bed))
        environment = {**settings(place), "WEFT_LOG": "error"}
        work = (go_on, str(begun), bed.switch_address)
        job = stack.enter_context(host_ranks.Job(bed, *work, environment=environment))
        waiting.until(begun.exists, "the job has begun")
        switch.kill()
        switch.wait()
        time.sleep(0.5)
        stack.enter_context(switch_in(bed))
        (bed.shared / "begun-again").touch()
        job.finish()
