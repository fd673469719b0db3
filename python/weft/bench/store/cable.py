# SPDX-License-Identifier: Apache-2.0
"""A long cable between two hosts of a bed, where the kernel has no netem to make one."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from ..bed import Bed, Unavailable
from ..build import Driver, build, cache_folder
from ..systems import find_compiler

DRIVER = Driver("cable", ("cable.c",), ("-O2", "-pthread"))
# Enough for a connection over it not to be what bounds the rate.
_BUFFERS = "4096 1000000 67108864"


def folder() -> str:
    """What a bed must make `visible`, for its switch to find the program."""
    return str(cache_folder())


@contextmanager
def long_cable(bed: Bed, delay_ms: float, megabytes: float) -> Iterator[None]:
    """Hosts 0 and 1 have one of such a round trip and rate in place of the bridge."""
    tools = find_compiler()
    if tools.compiler is None:
        raise Unavailable(tools.missing)
    program = build(DRIVER, tools.compiler)
    for host in (0, 1):
        bed.from_switch(functools.partial(_unplug, host))
        for name in ("tcp_rmem", "tcp_wmem"):
            bed.run(host, ["sysctl", "-qw", f"net.ipv4.{name}={_BUFFERS}"])
    words = [str(program), "port0", "port1", str(delay_ms), str(megabytes)]
    process = bed.popen_in_switch(words, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise Unavailable(f"{program} ended with status {process.wait()}")
        yield
    finally:
        process.kill()
        process.wait()


def _unplug(host: int) -> None:
    subprocess.run(["ip", "link", "set", f"port{host}", "nomaster"], check=True)
