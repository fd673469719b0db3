# SPDX-License-Identifier: Apache-2.0
"""One of two ranks on two hosts: rows of a region that the other has, and messages.

    rows_rank.py ROUNDS ROW IDS SECONDS

Rank 0 reads rows of rank 1, beside messages of as many bytes in each round. Then both do nothing
for so many SECONDS, and say which share of a core they took. Rank 0 says the times in us.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

_ROWS = 1 << 16  # of each rank
_CALLS = 8  # large ones, in each round
_SMALL_CALLS = 50
_AHEAD = 4  # messages on their way


def _time(once: Callable[[int], Any], calls: int) -> float:
    """The median of so many calls after a first, in us."""
    once(0)
    us = []
    for number in range(calls):
        start = time.perf_counter_ns()
        once(number)
        us.append((time.perf_counter_ns() - start) / 1000)
    return statistics.median(us)


class Messages:
    """What the transport does with so many bytes: a stream to rank 0, and there and back."""

    def __init__(self, comm: Any, size: int):
        self._comm, self._size = comm, size
        self._large: list[Any] = [np.zeros(size, "u1") for _ in range(_AHEAD)]
        self._small: Any = np.zeros(8, "u1")

    def stream(self, calls: int) -> float:
        """The time of one message in a stream of them, in us."""
        comm = self._comm
        start = (comm.irecv if comm.rank == 0 else comm.isend, 1 - comm.rank)
        comm.barrier()
        begin = time.perf_counter_ns()
        requests: list[Any] = []
        for number in range(calls):
            if len(requests) == _AHEAD:
                requests.pop(0).wait()
            requests.append(start[0](self._large[number % _AHEAD], start[1]))
        for request in requests:
            request.wait()
        return (time.perf_counter_ns() - begin) / 1000 / calls

    def round_trip(self, calls: int) -> float:
        comm, small = self._comm, self._small

        def once(_number: int) -> None:
            for sender in (0, 1):
                (comm.send if comm.rank == sender else comm.recv)(small, 1 - comm.rank)

        return _time(once, calls)


def _rows(comm: Any, table: Any, ids: np.ndarray, calls: int) -> float:
    """The time to read rows, while the other waits in a barrier."""
    import weft

    us = 0.0
    comm.barrier()
    if comm.rank == 0:
        out = np.empty((ids.shape[1], table.shape[1]), "f4")
        us = _time(lambda number: weft.gather(table, ids[number], out), calls)
        weft.gather(table, ids[-1], out)
        assert (out[:, 0] == ids[-1]).all(), "wrong rows"
    comm.barrier()
    return us


def _turn(comm: Any, table: Any, messages: Messages, number: int, calls: int) -> list[float]:
    draw = np.random.default_rng()
    many, one = (draw.integers(_ROWS, 2 * _ROWS, (calls, n)) for n in (number, 1))
    return [
        messages.stream(_CALLS),
        _rows(comm, table, many[:_CALLS], _CALLS),
        messages.round_trip(_SMALL_CALLS),
        _rows(comm, table, one, calls),
    ]


def _idle(seconds: float) -> float:
    """The share of a core that this process takes while its program sleeps."""
    time.sleep(0.2)
    cpu, start = time.process_time(), time.monotonic()
    time.sleep(seconds)
    return (time.process_time() - cpu) / (time.monotonic() - start)


def main() -> int:
    rounds, row, number, seconds = (float(word) for word in sys.argv[1:])
    import weft

    try:
        comm = weft.init().comm
    except weft.Error as error:
        print(error, file=sys.stderr)
        return 1
    table = weft.table((2 * _ROWS, int(row) // 4), "f4", like="numpy", reach="distributed")
    table.local[:, 0] = np.arange(comm.rank * _ROWS, (comm.rank + 1) * _ROWS)
    messages = Messages(comm, int(row * number))
    turns = [_turn(comm, table, messages, int(number), _SMALL_CALLS) for _ in range(int(rounds))]
    comm.barrier()
    print(json.dumps({"turns": turns, "idle": _idle(seconds)}))
    comm.barrier()
    return 0


if __name__ == "__main__":
    sys.exit(main())
