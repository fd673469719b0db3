# SPDX-License-Identifier: Apache-2.0
"""What packets alone cost: the same ones, through one core that adds and checks nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..bed import Bed
from ..build import Driver
from ..systems import Family, find_compiler

BARE = Family("bare", Driver("reflect", ("reflect.c",)), find_compiler, ranks=False)
_HEAD = 64  # bytes of a packet's head
_WINDOW = 512 << 10  # bytes under way, or
_SLOTS = 256  # packets, as in src/agg/switch_client.c
_POLL = 50  # us that whoever has a core of its own looks before it sleeps
_SECONDS = 0.5
_PATIENCE = 20.0


def bare_us(bed: Bed, program: Path, payload: int, packets: int, cores: Sequence[int]) -> float:
    """The time that each host needs to send so many packets and have as many back.

    The first core is the switch's; hosts share the others.
    """
    window = min(_SLOTS, _WINDOW // payload)
    hosts = len(bed)
    own = cores[1:] or cores
    poll = _POLL if len(own) >= hosts else 0
    sizes = [str(_HEAD + payload), str(window)]
    server = bed.popen_in_switch(
        [*_pinned(cores[0]), program, "serve", *sizes, str(_POLL), str(hosts)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        calls = str(max(5, int(_SECONDS / (packets * (_HEAD + payload) / 1e9))))
        where = [bed.switch_address, port, str(packets), calls]
        send = [str(program), "send", *sizes, str(poll)]
        senders = [
            bed.popen(
                host,
                [*_pinned(own[host % len(own)]), *send, str(host), *where],
                stdout=subprocess.PIPE,
                text=True,
            )
            for host in range(hosts)
        ]
        return max(float(sender.communicate(timeout=_PATIENCE)[0]) for sender in senders)
    finally:
        server.kill()
        server.communicate()


def _pinned(core: int) -> list[str]:
    return ["taskset", "-c", str(core)]
