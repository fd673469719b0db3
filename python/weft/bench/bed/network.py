# SPDX-License-Identifier: Apache-2.0
"""The network of a bed: a bridge, and a cable from it to each host.

The bridge is in a namespace of its own, the switch, so the machine's own network has nothing of it.
Host 2 has the end `eth0` of its cable, the switch the end `port2`.

    host0 eth0 ---- port0 \
    host1 eth0 ---- port1  > bridge, in the switch
    host2 eth0 ---- port2 /

What runs in the switch itself, at `SWITCH_ADDRESS`, has the cables of all hosts.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

BRIDGE = "bridge"
SWITCH_ADDRESS = "10.77.0.254"
# A burst holds the largest packet that a host hands down, which is cut into frames later.
_BURST = "128kb"
_QUEUE = "10ms"  # what the switch and the hosts keep for a slow cable before they drop packets


class NetworkError(Exception):
    """A command of iproute2 failed; the text says which and why."""


def address(host: int) -> str:
    return f"10.77.0.{host + 1}"


def name(host: int) -> str:
    return f"host{host}"


def names_file(hosts: int) -> str:
    """What /etc/hosts says on all of them."""
    lines = ["127.0.0.1 localhost", *(f"{address(i)} {name(i)}" for i in range(hosts))]
    return "\n".join(lines) + "\n"


def enter(pid: int, *kinds: str) -> list[str]:
    """The beginning of a command that runs in namespaces of the process `pid`."""
    return ["nsenter", "--target", str(pid), *(f"--{kind}" for kind in kinds), "--"]


def _batch(pid: int, program: str, lines: Sequence[str]) -> None:
    """Lines for `ip`, `tc` or `bridge`, in the network of the process `pid`."""
    done = subprocess.run(
        [*enter(pid, "net"), program, "-batch", "-"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().replace("\n", "; ")
        raise NetworkError(f"{program}: {said}")


def _limits(device: str, rate: str | None, delay: str | None) -> list[str]:
    lines = []
    if rate is not None:
        queue = f"tbf rate {rate} burst {_BURST} latency {_QUEUE}"
        lines.append(f"qdisc add dev {device} root handle 1: {queue}")
    if delay is not None:
        where = "root" if rate is None else "parent 1:1"
        lines.append(f"qdisc add dev {device} {where} handle 2: netem limit 100000 delay {delay}")
    return lines


def connect(
    switch: int, hosts: Sequence[int], rate: str | None, delay: str | None, mtu: int
) -> None:
    """Connect the hosts, named by their first processes, with the process `switch`."""
    lines = [f"link add {BRIDGE} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"]
    lines.append(f"link set {BRIDGE} mtu {mtu} up")
    for number, pid in enumerate(hosts):
        peer = f"peer name eth0 mtu {mtu} netns {pid}"
        lines.append(f"link add port{number} mtu {mtu} type veth {peer}")
        lines.append(f"link set port{number} master {BRIDGE} up")
    _batch(switch, "ip", lines)
    for number, pid in enumerate(hosts):
        up = ["link set lo up", f"addr add {address(number)}/24 dev eth0", "link set eth0 up"]
        _batch(pid, "ip", up)
        if limits := _limits("eth0", rate, delay):
            _batch(pid, "tc", limits)
    if rate is not None or delay is not None:
        ports = [f"port{number}" for number in range(len(hosts))]
        _batch(switch, "tc", [line for port in ports for line in _limits(port, rate, delay)])


def address_switch(switch: int) -> None:
    """Give the switch an address of its own."""
    _batch(switch, "ip", ["link set lo up", f"addr add {SWITCH_ADDRESS}/24 dev {BRIDGE}"])


def forward(switch: int, host: int, on: bool) -> None:
    """Let the bridge drop what comes from or goes to a host. The host notices nothing."""
    state = "forwarding" if on else "disabled"
    _batch(switch, "bridge", [f"link set dev port{host} state {state}"])


def carrier(switch: int, host: int, on: bool) -> None:
    """Take the signal from a cable. The host sees that its interface has no carrier."""
    _batch(switch, "ip", [f"link set port{host} {'up' if on else 'down'}"])


def _losing(share: float) -> str:
    """A classic BPF program that drops this share of what it sees, at random; needs no compiler.

    load a random number; at or above the limit: pass (TC_ACT_UNSPEC), else: drop (TC_ACT_SHOT)
    """
    limit = round(share * 0xFFFFFFFF)
    random = 0xFFFFF038  # SKF_AD_OFF + SKF_AD_RANDOM of linux/filter.h
    program = ((0x20, 0, 0, random), (0x35, 0, 1, limit), (6, 0, 0, 0xFFFFFFFF), (6, 0, 0, 2))
    return ",".join([str(len(program)), *(" ".join(map(str, line)) for line in program)])


def lose(switch: int, host: int, share: float, before: bool) -> None:
    """Have a cable lose packets, each way; `before`: it did until now."""
    port = f"port{host}"
    lines = [f"qdisc del dev {port} clsact"] if before else []
    if share > 0:
        lines.append(f"qdisc add dev {port} clsact")
        what = f'protocol all prio 1 bpf direct-action bytecode "{_losing(share)}"'
        lines += [f"filter add dev {port} {way} {what}" for way in ("ingress", "egress")]
    _batch(switch, "tc", lines)


def remove(switch: int, host: int) -> None:
    """Remove a cable, with both of its ends."""
    _batch(switch, "ip", [f"link del port{host}"])
