# SPDX-License-Identifier: Apache-2.0
"""A process of a job of many ranks, which says a line about itself when it is done.

start_rank.py python       joins nothing
start_rank.py weft         joins the job and leaves it
start_rank.py table        the same, and counts its operations on the table
start_rank.py endpoints    counts its connections to other hosts, after messages to the
                           neighbours and after collectives
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

_ESTABLISHED = "01"
_HEARTBEATS = 1.0  # seconds in which all hosts have sent some
_SIZES = (1, 1 << 14, 1 << 18)  # floats: what is sent at once, in pieces, and by all


class Table:
    """A table in a directory that counts what it is asked for."""

    def __init__(self, folder: str) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._folder = Path(folder)
        self._asked: set[tuple[str, str]] = set()

    @property
    def operations(self) -> int:
        return len(self._asked)

    def set(self, key: str, value: bytes) -> None:
        self._asked.add(("set", key))
        unfinished = self._file(f"{key}.{self.rank}")
        unfinished.write_bytes(value)
        unfinished.rename(self._file(key))

    def get(self, key: str, timeout: float) -> bytes:
        self._asked.add(("get", key))
        end = time.monotonic() + timeout
        while True:
            try:
                return self._file(key).read_bytes()
            except FileNotFoundError:
                if time.monotonic() > end:
                    raise TimeoutError(f"{key} is not set") from None
                time.sleep(0.002)

    def _file(self, key: str) -> Path:
        return self._folder / key.encode().hex()[-200:]


def connections() -> int:
    """The TCP connections of this process to other hosts."""
    mine = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            mine.add(os.readlink(f"/proc/self/fd/{entry}"))
        except OSError:
            continue
    count = 0
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        here, there = (word.partition(":")[0] for word in words[1:3])
        open_ = words[3] == _ESTABLISHED and f"socket:[{words[9]}]" in mine
        count += open_ and here != there
    return count


def _ring(comm: Any) -> None:
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    for size in _SIZES:
        x: Any = np.full(size, comm.rank, "f4")
        y: Any = np.empty(size, "f4")
        comm.sendrecv(x, right, y, left)
        assert (y == left).all()


def _lap(comm: Any) -> None:
    """Pass a token round the ring: when it is back, all have begun this lap."""
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    token: Any = np.zeros(1, "u1")
    if comm.rank > 0:
        comm.recv(token, left)
    comm.send(token, right)
    if comm.rank == 0:
        comm.recv(token, left)


def _collectives(comm: Any) -> None:
    for size in _SIZES:
        x: Any = np.ones(size, "f4")
        assert (comm.allreduce(x) == comm.size).all()
        comm.broadcast(x, root=0)
    comm.barrier()


def main() -> int:
    mode = sys.argv[1]
    said: dict[str, Any] = {"rank": int(os.environ["RANK"])}
    if mode != "python":
        import weft

        table = Table(os.environ["WEFT_BOOT_DIR"]) if mode == "table" else None
        try:
            comm = weft.init(boot=table).comm
        except weft.Error as error:
            print(error, file=sys.stderr)
            return 1
        if table is not None:
            said["operations"] = table.operations
        if mode == "endpoints":
            _ring(comm)
            time.sleep(_HEARTBEATS)
            said["ring"] = connections()
            # All have counted before anybody's collectives open connections; a barrier
            # would open some itself.
            _lap(comm)
            _lap(comm)
            _collectives(comm)
            said["collective"] = connections()
            comm.barrier()
        weft.finalize()
    print(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
