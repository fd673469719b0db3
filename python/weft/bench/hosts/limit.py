# SPDX-License-Identifier: Apache-2.0
"""How much a cable of the bed carries: iperf3 with one TCP connection."""

from __future__ import annotations

import json
import shutil
import subprocess
import time

from ..bed import Bed
from ..systems import Tools, find_compiler

_SECONDS = 1
_PATIENCE = 10.0


def find_iperf3() -> Tools:
    return find_compiler() if shutil.which("iperf3") else Tools(missing="iperf3 is not installed")


class Cable:
    """The cable of host 0, whose iperf3 is asked by host 1."""

    def __init__(self, bed: Bed):
        self._bed = bed
        null = subprocess.DEVNULL
        server = ["iperf3", "--server", "--bind", bed.address(0)]
        bed.popen(0, server, stdin=null, stdout=null)
        self._wait_for_server()

    def _wait_for_server(self) -> None:
        """A server that is not there yet refuses; asking it in vain costs some ms."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                self._ask("-n", "1")
                return
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _ask(self, *words: str) -> dict:
        command = ["iperf3", "--client", self._bed.name(0), "--json", *words]
        return json.loads(self._bed.run(1, command, timeout=_PATIENCE + _SECONDS))

    def bytes_per_second(self) -> float:
        """What the receiver got of a stream."""
        found = self._ask("-t", str(_SECONDS))
        return found["end"]["sum_received"]["bits_per_second"] / 8


def ring_us(size: int, hosts: int, rate: float) -> float:
    """The least time of an allreduce: each host sends and receives 2(n-1)/n of the bytes."""
    return 2 * (hosts - 1) / hosts * size / rate * 1e6
