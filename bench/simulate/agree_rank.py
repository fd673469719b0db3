# SPDX-License-Identifier: Apache-2.0
"""One rank of a job that is measured, for agree.py.

    agree_rank.py CASES SECONDS

CASES is JSON: [[operation, bytes], ...]. Rank 0 prints what messages cost, and the time of a call
of each case, as one line of JSON. Every figure is the least of several blocks of calls.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

_BLOCKS = 15
_AHEAD = 4  # messages of a stream that are on their way
_LARGE = 256 << 10
_SMALL = 8


def _elapsed(comm: Any, once: Callable[[], Any], calls: int) -> float:
    """Seconds of a call, on the rank where it takes longest."""
    comm.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        once()
    spent = np.array([(time.perf_counter() - start) / calls], "f8")
    return float(comm.allreduce(spent, "max")[0])


def _least(comm: Any, once: Callable[[], Any], seconds: float) -> tuple[float, int]:
    """The least of blocks that take about `seconds` together, and the calls of a block."""
    first = _elapsed(comm, once, 2)
    calls = int(np.clip(seconds / _BLOCKS / max(first, 1e-6), 1, 500))
    blocks = int(np.clip(seconds / (calls * max(first, 1e-6)), 3, _BLOCKS))
    return min(_elapsed(comm, once, calls) for _ in range(blocks)), calls


def _round_trip(comm: Any, size: int) -> Callable[[], None]:
    data: Any = np.zeros(size, "u1")

    def once() -> None:
        for sender in (0, 1):
            if comm.rank < 2:
                (comm.send if comm.rank == sender else comm.recv)(data, 1 - comm.rank)

    return once


def _circle(comm: Any) -> Callable[[], None]:
    """A message from each rank to the next, all the way round."""
    data: Any = np.zeros(_SMALL, "u1")
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size

    def once() -> None:
        if comm.rank == 0:
            comm.send(data, after)
        comm.recv(data, before)
        if comm.rank != 0:
            comm.send(data, after)

    return once


def _stream(comm: Any, size: int, count: int) -> Callable[[], None]:
    """`count` messages from rank 0 to rank 1."""
    data: list[Any] = [np.zeros(size, "u1") for _ in range(_AHEAD)]

    def once() -> None:
        requests: list[Any] = []
        if comm.rank > 1:
            return
        start = comm.isend if comm.rank == 0 else comm.irecv
        for number in range(count):
            if len(requests) == _AHEAD:
                requests.pop(0).wait()
            requests.append(start(data[number % _AHEAD], 1 - comm.rank))
        for request in requests:
            request.wait()

    return once


def _messages(comm: Any, seconds: float) -> dict[str, float]:
    """What a message costs between ranks 0 and 1, of different hosts, in seconds."""
    pair = comm.split(0 if comm.rank < 2 else 1)
    barrier = _least(pair, pair.barrier, seconds)[0] if comm.rank < 2 else 0.0
    return {
        "barrier": barrier,
        "round_trip": _least(comm, _round_trip(comm, _SMALL), seconds)[0],
        "hop": _least(comm, _circle(comm), seconds)[0] / comm.size,
        "small": _least(comm, _stream(comm, _SMALL, 200), seconds)[0] / 200,
        "large": _least(comm, _stream(comm, _LARGE, 16), seconds)[0] / 16,
        "large_bytes": _LARGE,
    }


def _case(comm: Any, op: str, size: int) -> Callable[[], Any]:
    data: Any = np.zeros(max(size // 4, 1), "f4")
    if op == "allgather":
        out = np.empty((comm.size, *data.shape), "f4")
        return lambda: comm.allgather(data, out=out)
    if op == "allreduce":
        into = np.empty_like(data)
        return lambda: comm.allreduce(data, out=into)
    if op == "broadcast":
        return lambda: comm.broadcast(data, root=0)
    return comm.barrier


def main() -> int:
    import weft

    cases, seconds = json.loads(sys.argv[1]), float(sys.argv[2])
    comm = weft.init().comm
    found: dict[str, Any] = {"messages": _messages(comm, seconds), "cases": []}
    for op, size in cases:
        spent, calls = _least(comm, _case(comm, op, size), seconds)
        found["cases"].append({"op": op, "bytes": size, "seconds": spent, "calls": calls})
    comm.barrier()
    if comm.rank == 0:
        print(json.dumps(found))
    weft.finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
