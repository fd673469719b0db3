# SPDX-License-Identifier: Apache-2.0
"""Ranks for processes that are told no more than how many they are.

AdaPM's launchers start DMLC_NUM_SERVER processes with one DMLC_PS_ROOT_URI and
DMLC_PS_ROOT_PORT, under which a scheduler would give them ranks. Here each takes the
first rank of this host that nobody has: the address of a socket that it holds as long
as it lives.
"""

import os
import socket

from weft import _boot, _core, _job
from weft._core import InvalidError, World

_seats: list[socket.socket] = []  # held as long as the process lives


def join() -> World:
    """Join the job: that of the launcher, else that of DMLC_NUM_SERVER, else alone."""
    size = os.environ.get("DMLC_NUM_SERVER")
    joined = _job._world
    if joined is not None or size is None or _core.launcher()[0] != "alone":
        return _job.init()
    if not size.isdecimal() or int(size) < 1:
        raise InvalidError(f"DMLC_NUM_SERVER is {size!r}; it must be the number of servers")
    if int(size) == 1:
        return _job.init("alone")
    uri, port = (os.environ.get(f"DMLC_PS_ROOT_{word}", "") for word in ("URI", "PORT"))
    name = f"adapm:{os.getuid()}:{uri}:{port}"
    return _job.init(_boot.Named(name, _take_seat(name, int(size)), int(size)))


def _take_seat(name: str, size: int) -> int:
    for rank in range(size):
        seat = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            seat.bind(f"\0weft-{name}-{rank}")
        except OSError:
            seat.close()
            continue
        _seats.append(seat)
        return rank
    raise InvalidError(
        f"all {size} ranks of DMLC_NUM_SERVER are taken on this host: another job has the same "
        "DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT, or more servers were started"
    )
