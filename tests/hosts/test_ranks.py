# SPDX-License-Identifier: Apache-2.0
"""Ranks of one job on several hosts."""

import os
import signal
import socket

import host_ranks
import pytest
import weft


def where(greeting):
    print(greeting, os.environ["WEFT_RANK"], os.environ["WEFT_RANKS"], socket.gethostname())


@pytest.mark.bed(hosts=3)
def test_ranks_are_on_the_hosts_that_they_belong_to(bed):
    said = host_ranks.run(bed, where, "hello", each=[2, 1, 1])
    hosts = ["host0", "host0", "host1", "host2"]
    assert said == [f"hello {rank} 4 {host}\n" for rank, host in enumerate(hosts)]


def wait_for_ever():
    print("started", flush=True)
    signal.pause()


def test_a_rank_of_another_host_can_be_killed(bed):
    with host_ranks.Job(bed, wait_for_ever) as job:
        for rank in job.ranks:
            rank.line("started")
        job.kill(1)
        assert job[1].process.wait() == -signal.SIGKILL
        assert job[0].process.poll() is None


def share():
    world = weft.init()
    print(*(peer.shares_memory and peer.host == "host1" for peer in world.peers))
    weft.finalize()


def test_ranks_of_one_host_share_its_memory(bed):
    assert host_ranks.run(bed, share, each=[0, 3]) == ["True True True\n"] * 3
    assert bed.bytes(1) == (0, 0)
