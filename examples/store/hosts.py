# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of an application on hosts that are made of this machine.

As root each host is a set of namespaces with a network of its own, and what crosses its cable is
counted by the kernel. Elsewhere hosts are pretended: ranks with different WEFT_NODE share no memory
and send each other messages, but there is no cable.
"""

import contextlib
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import threading
import time

from weft.bench.bed import Bed, Unavailable, missing

PATIENCE = 5.0  # seconds that ranks may take to end after one has failed
HERE = pathlib.Path(__file__).resolve().parent
CABLE = "STORE_EXAMPLE_CABLE"  # names the interface whose bytes a host counts
# Hosts of one machine do not know that they share its cores, and none has a name server.
SHARED = {
    "OMP_NUM_THREADS": "1",
    "WEFT_SPIN": "0us",
    "WEFT_YIELD": "0us",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


class Pretended:
    """What `Bed` is, without namespaces."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.started = []

    def launch(self, command, *, ranks, env, **more):
        job = {"WEFT_JOB": secrets.token_hex(8), "WEFT_RANKS": str(self.hosts * ranks)}
        places = [(rank, f"host{rank // ranks}") for rank in range(self.hosts * ranks)]
        for rank, node in places:
            place = {"WEFT_RANK": str(rank), "WEFT_NODE": node}
            everything = {**os.environ, **env, **job, **place}
            self.started.append(subprocess.Popen(command, env=everything, **more))
        return self.started

    def close(self):
        """End the ranks that are still there, as hosts do that are switched off."""
        for rank in self.started:
            rank.kill()
            rank.wait()


def kind(pretend=False):
    """Of the hosts that can be made here, in words."""
    why = "that was asked for" if pretend else missing()
    return "namespaces" if why is None else f"pretended: {why}"


def make(hosts, rate, pretend=False):
    """Hosts, and what their ranks have to know."""
    if pretend or missing() is not None:
        return Pretended(hosts), SHARED
    try:
        return Bed(hosts, rate=rate, visible=[HERE]), {**SHARED, CABLE: "eth0"}
    except (Unavailable, ValueError) as error:
        sys.exit(f"no {hosts} hosts: {error}")


def _ended(number, code):
    """How a rank ended, in words."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return f"rank {number} {how}"


def _end_together(started):
    """Say at once which rank has failed; end what is left some time after it.

    Ranks that know each other are told at once, and end by themselves. Those that have not met yet
    would wait for it for minutes.
    """
    while not any(rank.poll() for rank in started):
        if all(rank.poll() == 0 for rank in started):
            return
        time.sleep(0.1)
    for number, rank in enumerate(started):
        if rank.poll():
            print(_ended(number, rank.poll()), file=sys.stderr, flush=True)
    end = time.monotonic() + PATIENCE
    for rank in started:
        try:
            rank.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()


def run(command, hosts, ranks, rate, pretend=False):
    """Run a command as `ranks` ranks on each host; the lines that rank 0 prints."""
    bed, environment = make(hosts, rate, pretend)
    with contextlib.closing(bed):
        started = bed.launch(
            [sys.executable, *command],
            ranks=ranks,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=_end_together, args=(started,), daemon=True).start()
        yield from started[0].stdout
        for rank in started:
            rank.stdout.close()
        failed = [number for number, rank in enumerate(started) if rank.wait() != 0]
    if failed:
        sys.exit(f"failed: rank {', '.join(map(str, failed))}")
