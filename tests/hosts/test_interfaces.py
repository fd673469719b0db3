# SPDX-License-Identifier: Apache-2.0
"""Hosts with more than one network: weft takes those that lead to the other hosts.

A bridge of containers has one and the same address on every host, so that who takes it for a way
to the other host talks to itself.
"""

import host_ranks
import pytest
import test_jobs
import waiting

ADDRESS = "172.17.0.1/16"  # what Docker gives its bridge, on all hosts

transport = test_jobs.transport  # skips where two hosts cannot be one job


def ip(bed, host, *lines):
    for line in lines:
        bed.run(host, ["ip", *line.split()])


def until_up(bed, host, name):
    """Wait until the kernel has seen that a port of this bridge has a carrier."""
    show = ["ip", "link", "show", name]
    waiting.until(lambda: "LOWER_UP" in bed.run(host, show), f"{name} is up")


def add_containers(bed, host):
    """A bridge as Docker makes it, with the cable of one container that runs."""
    ip(
        *(bed, host, "link add docker0 type bridge", f"addr add {ADDRESS} dev docker0"),
        *("link add veth0 type veth peer name inside", "link set veth0 master docker0"),
        *("link set inside up", "link set veth0 up", "link set docker0 up"),
    )
    until_up(bed, host, "docker0")


def move_to_bridge(bed, host):
    """Have the cable in a bridge, as hosts of virtual machines do, with a way out through it."""
    address = bed.address(host)
    ip(
        *(bed, host, "link add br0 type bridge", "link set eth0 master br0"),
        *(f"addr del {address}/24 dev eth0", f"addr add {address}/24 dev br0"),
        *("link set br0 up", "route add default via 10.77.0.254"),
    )
    until_up(bed, host, "br0")


def chosen(bed, transport):
    """What each rank of a job says that it uses; the job has to go well."""
    env = test_jobs.environment(transport, WEFT_LOG="info", WEFT_TIMEOUT="20")
    said = host_ranks.run(bed, test_jobs.collectives, environment=env)
    lines = [line for text in said for line in text.splitlines() if " uses UCX " in line]
    assert len(lines) == len(bed)
    return {line.rpartition(" over ")[2] for line in lines}


@pytest.mark.bed(hosts=2)
def test_a_bridge_of_containers_is_no_way_to_other_hosts(bed, transport):
    for host in range(len(bed)):
        add_containers(bed, host)
    assert chosen(bed, transport) == {"tcp/eth0"}


@pytest.mark.bed(hosts=2)
def test_a_bridge_that_leads_away_is_taken_and_one_of_containers_is_not(bed, transport):
    for host in range(len(bed)):
        add_containers(bed, host)
        move_to_bridge(bed, host)
    assert chosen(bed, transport) == {"tcp/br0"}
