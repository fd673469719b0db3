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

# By the name of the job: the rank taken, and how often this process was in the job. One
# that ends may form again, and must not be taken for that of before; all ranks count alike.
_seats: dict[str, tuple[int, socket.socket]] = {}
_formed: dict[str, int] = {}


def join() -> World:
    """Join the job: that of the launcher, else that of DMLC_NUM_SERVER, else alone."""
    size = os.environ.get("DMLC_NUM_SERVER")
    if _job._world is not None or size is None or _core.launcher()[0] != "alone":
        return _job.init()
    if not size.isdecimal() or int(size) < 1:
        raise InvalidError(f"DMLC_NUM_SERVER is {size!r}; it must be the number of servers")
    if int(size) == 1:
        return _job.init("alone")
    uri, port = (os.environ.get(f"DMLC_PS_ROOT_{word}", "") for word in ("URI", "PORT"))
    name = f"adapm:{os.getuid()}:{uri}:{port}"
    if name not in _seats:
        _seats[name] = _take_seat(name, int(size))
    _formed[name] = _formed.get(name, 0) + 1
    return _job.init(_boot.Named(f"{name}#{_formed[name]}", _seats[name][0], int(size)))


def _take_seat(name: str, size: int) -> tuple[int, socket.socket]:
    for rank in range(size):
        seat = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            seat.bind(f"\0weft-{name}-{rank}")
        except OSError:
            seat.close()
            continue
        return rank, seat
    raise InvalidError(
        f"all {size} ranks of DMLC_NUM_SERVER are taken on this host: another job has the same "
        "DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT, or more servers were started"
    )


def _forget_in_child() -> None:
    for _, seat in _seats.values():
        seat.close()
    _seats.clear()
    _formed.clear()


os.register_at_fork(after_in_child=_forget_in_child)
