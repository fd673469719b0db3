# SPDX-License-Identifier: Apache-2.0
"""How much a cable of the bed carries: iperf3 with one stream."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from typing import Any

from ..bed import Bed
from ..systems import Tools, find_compiler

_SECONDS = 1
_PATIENCE = 10.0


def find_iperf3() -> Tools:
    return find_compiler() if shutil.which("iperf3") else Tools(missing="iperf3 is not installed")


class Cable:
    """An iperf3 that serves on host 0, or in the switch, and one on another host that asks it.

    cores: of the client and of the server; None: any
    """

    def __init__(
        self,
        bed: Bed,
        client: int = 1,
        *,
        in_switch: bool = False,
        cores: tuple[int, int] | None = None,
    ):
        self._bed, self._client = bed, client
        self._pinned = [] if cores is None else ["--affinity", f"{cores[0]},{cores[1]}"]
        null = subprocess.DEVNULL
        pipes: dict[str, Any] = {"stdin": null, "stdout": null}
        if in_switch:
            bed.popen_in_switch(["iperf3", "--server"], **pipes)
            self._server = bed.switch_address
        else:
            self._server = bed.name(0)
            bed.popen(0, ["iperf3", "--server", "--bind", bed.address(0)], **pipes)
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
        command = ["iperf3", "--client", self._server, "--json", *self._pinned, *words]
        return json.loads(self._bed.run(self._client, command, timeout=_PATIENCE + _SECONDS))

    def bytes_per_second(self, *words: str) -> float:
        """What the receiver got of a stream that these options of iperf3 describe."""
        found = self._ask("-t", str(_SECONDS), *words)["end"]
        rate = found["sum_received"]["bits_per_second"] / 8
        # Of datagrams some releases tell what was sent, and the share of it that was lost.
        lost = found.get("sum", {}).get("lost_percent")
        told = found["sum_received"]["bytes"] < found["sum_sent"]["bytes"]
        return rate if lost is None or told else rate * (1 - lost / 100)


def ring_us(size: int, hosts: int, rate: float) -> float:
    """The least time of an allreduce: each host sends and receives 2(n-1)/n of the bytes."""
    return 2 * (hosts - 1) / hosts * size / rate * 1e6
