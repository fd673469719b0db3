# SPDX-License-Identifier: Apache-2.0
"""Connections of strangers to the ports that ranks listen on: the job does not notice them."""

import pathlib
import re
import subprocess
import sys

import test_jobs

transport = test_jobs.transport  # skips where two hosts cannot be one job

LISTENS = "0A"  # TCP_LISTEN of linux/tcp_states.h, as /proc/net/tcp has it
EACH = 8  # connections of every kind to every port

# Connections that stay until this program is killed. UCX's own begin with eight bytes, then a
# request in a head of five bytes.
STRANGER = f"""
import os, socket, struct, sys, time
host, *ports = sys.argv[1:]
begins = struct.pack("<Q", 0xCAFEBABE12345678)
kinds = [os.urandom(1 << 16), b"GET / HTTP/1.0\\r\\n\\r\\n", b"", begins[:4], begins]
kinds.append(begins + struct.pack("<BI", 31, 16)[:3])
held = []
for port in map(int, ports):
    for kind in kinds * {EACH}:
        held.append(socket.create_connection((host, port), 10))
        try:
            held[-1].sendall(kind)
        except OSError:
            pass  # it was closed before all had gone
time.sleep(1)
closed = 0
for each in held:
    each.setblocking(False)
    try:
        closed += each.recv(1) == b""
    except BlockingIOError:
        pass
    except OSError:
        closed += 1
print("held", len(held), "closed", closed, flush=True)
time.sleep(3600)
"""


def ports(pid):
    """The ports on which the host of a process listens for TCP."""
    lines = pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    places = [line.split()[1] for line in lines if line.split()[3] == LISTENS]
    return [int(place.partition(":")[2], 16) for place in places]


def test_strangers_at_the_ports_of_ranks_disturb_no_job(bed, transport):
    """Noise, another protocol, silence, and handshakes of UCX that stop half way."""
    end = bed.shared / "end"
    with test_jobs.started(bed, test_jobs.reduce_until, transport, str(end), each=2) as job:
        open_ports = ports(job[0].process.pid)
        assert len(open_ports) >= 2  # of each rank one, at least
        command = [sys.executable, "-c", STRANGER, bed.name(0), *map(str, open_ports)]
        with bed.popen(1, command, stdout=subprocess.PIPE, text=True) as stranger:
            held, closed = map(int, re.findall(r"\d+", stranger.stdout.readline()))
            end.touch()
            job.finish()
            stranger.kill()
    # What is not UCX's protocol is turned away, and handshakes are waited for.
    assert held == 6 * EACH * len(open_ports)
    assert closed == 2 * EACH * len(open_ports)
