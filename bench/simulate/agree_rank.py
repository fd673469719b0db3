# SPDX-License-Identifier: Apache-2.0
"""One rank of a job that is measured, for agree.py.

    agree_rank.py CASES SECONDS EACH

CASES is JSON: [[operation, bytes], ...]; EACH is the number of ranks of a host. Rank 0 prints what
messages cost, and the time of a call of each case, as one line of JSON. Every figure is the least
of several blocks of calls. Where ranks outnumber cores each is kept on one: where the kernel chose,
a barrier of four ranks on two cores took up to 1.8 times as long in one job as in another.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

_BLOCKS = 15
_AHEAD = 4  # messages of a stream that are on their way
_LARGE = 256 << 10
_SMALL = 8
_LONGER = 2 << 10  # more than a packet carries
_CIRCLE = 3  # ranks; in a longer one they would fall asleep between two messages


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


def _round_trip(pair: Any, size: int) -> Callable[[], None]:
    data: Any = np.zeros(size, "u1")

    def once() -> None:
        for sender in (0, 1):
            if pair.size == 2:
                (pair.send if pair.rank == sender else pair.recv)(data, 1 - pair.rank)

    return once


def _circle(few: Any) -> Callable[[], None]:
    """A message from each rank to the next, all the way round."""
    data: Any = np.zeros(_SMALL, "u1")
    before, after = (few.rank - 1) % few.size, (few.rank + 1) % few.size

    def once() -> None:
        if few.size != _CIRCLE:
            return
        if few.rank == 0:
            few.send(data, after)
        few.recv(data, before)
        if few.rank != 0:
            few.send(data, after)

    return once


def _stream(pair: Any, size: int, count: int) -> Callable[[], None]:
    """`count` messages from rank 0 to rank 1."""
    data: list[Any] = [np.zeros(size, "u1") for _ in range(_AHEAD)]

    def once() -> None:
        requests: list[Any] = []
        if pair.size != 2:
            return
        start = pair.isend if pair.rank == 0 else pair.irecv
        for number in range(count):
            if len(requests) == _AHEAD:
                requests.pop(0).wait()
            requests.append(start(data[number % _AHEAD], 1 - pair.rank))
        for request in requests:
            request.wait()

    return once


def _trips(
    comm: Any, pairs: list[Any], firsts: list[int], cores: int, seconds: float
) -> dict[str, float]:
    """A round trip between hosts side by side; and what a message takes of the cores.

    `firsts` are the first ranks of hosts, which take part. What a message takes is known where
    they have all cores busy that they are on. It is the least over partners at distances 1, 2,
    4...: ranks that share a core with their partners look least often when nothing has come.
    """
    work: dict[int, list[float]] = {_SMALL: [], _LONGER: []}
    trips = {}
    hosts, used = len(firsts), len({rank % cores for rank in firsts})
    for bit, pair in enumerate(pairs):
        at_once = sum(host < host ^ 1 << bit < hosts for host in range(hosts))
        for size, found in work.items():
            trips[bit, size] = _least(comm, _round_trip(pair, size), seconds)[0]
            found.append(trips[bit, size] / 2 * min(1.0, used / at_once))
    return {
        "round_trip": trips[0, _SMALL],
        "work": min(work[_SMALL]),
        "longer": min(work[_LONGER]) - min(work[_SMALL]),
        "longer_bytes": _LONGER,
    }


def _messages(comm: Any, each: int, cores: int, seconds: float) -> dict[str, float]:
    """What a message costs between two ranks of different hosts, in seconds.

    All hosts do the same in pairs, or in threes, at once: hosts that are made of one machine slow
    each other down. Of each host the first rank takes part.
    """
    host, first = comm.rank // each, comm.rank % each == 0
    alone = comm.size + comm.rank
    hosts = comm.size // each
    bits = (hosts - 1).bit_length() if comm.size > cores else 1
    pairs = [comm.split(min(host, host ^ 1 << bit) if first else alone) for bit in range(bits)]
    pair = pairs[0]
    few = comm.split(host // _CIRCLE if first else alone)
    return {
        "barrier": _least(comm, pair.barrier, seconds)[0],
        **_trips(comm, pairs, [*range(0, comm.size, each)], cores, seconds),
        "hop": _least(comm, _circle(few), seconds)[0] / _CIRCLE if hosts >= _CIRCLE else 0.0,
        "small": _least(comm, _stream(pair, _SMALL, 200), seconds)[0] / 200,
        "large": _least(comm, _stream(pair, _LARGE, 16), seconds)[0] / 16,
        "large_bytes": _LARGE,
        "cores": cores,
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


def _stay() -> int:
    """Keep this process and its threads to come on one core, if ranks outnumber the cores.

    Returns how many there are.
    """
    cores = sorted(os.sched_getaffinity(0))
    if int(os.environ["WORLD_SIZE"]) > len(cores):
        os.sched_setaffinity(0, {cores[int(os.environ["RANK"]) % len(cores)]})
    return len(cores)


def main() -> int:
    cores = _stay()
    import weft

    cases, seconds, each = json.loads(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    comm = weft.init().comm
    found: dict[str, Any] = {"messages": _messages(comm, each, cores, seconds), "cases": []}
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
