# SPDX-License-Identifier: Apache-2.0
"""What each algorithm between hosts takes: `python -m weft.bench.hosts.algorithms`.

Hosts that are namespaces; a job of all their ranks for each way to do it, all there at once and
measured in turns, so that what the machine does meanwhile is the same for all. The choice of
src/coll/hosts/shape.c is compared with the others.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from ...cli.common import positive
from ..bed import MOST_HOSTS, SHARED_CORES, Bed, Unavailable
from ..bed_ranks import bed_ranks
from ..piped import RankError, Ranks, serve

# Ways beside what is chosen: an algorithm between hosts, or messages between all ranks.
_WAYS = {
    "allreduce": ("doubling", "halving", "ring", "message"),
    "broadcast": ("binomial", "double_tree", "message"),
    "reduce": ("binomial", "double_tree", "message"),
    "reduce_scatter": ("halving", "ring", "message"),
    "allgather": ("doubling", "bruck", "ring", "message"),
}
_SIZES = (1 << 10, 64 << 10, 1 << 20, 16 << 20)  # of a rank's data, or of all blocks
_COMMAND = (sys.executable, "-m", "weft.bench.hosts.algorithms", "--rank")


class AlgorithmRank:
    """Answers commands; the methods that begin with `do_` are the commands."""

    def __init__(self, at_work: Callable[[], None] = lambda: None) -> None:
        self._at_work = at_work

    def do_join(self) -> dict:
        import weft

        self._comm = weft.init().comm
        self._comm.barrier()
        return {}

    def do_leave(self) -> dict:
        import weft

        weft.finalize()
        return {}

    def do_measure(self, operation: str, size: int, calls: int) -> dict:
        """Microseconds of a call."""
        comm = self._comm
        one: Any = np.ones(size // 4, "f4")
        block: Any = np.ones(max(1, size // 4 // comm.size), "f4")
        blocks: Any = np.ones(len(block) * comm.size, "f4")
        do = {
            "allreduce": lambda: comm.allreduce(one),
            "broadcast": lambda: comm.broadcast(one),
            "reduce": lambda: comm.reduce(one),
            "reduce_scatter": lambda: comm.reduce_scatter(blocks, block),
            "allgather": lambda: comm.allgather(block, blocks),
        }[operation]
        do()
        comm.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            do()
            self._at_work()
        comm.barrier()
        return {"us": 1e6 * (time.perf_counter() - begin) / calls}


def _environment(operation: str, way: str, crowded: bool) -> dict[str, str]:
    env = {"WEFT_TRANSPORTS": "self,shm,ucx", **(SHARED_CORES if crowded else {})}
    if way == "message":
        env["WEFT_ENGINE"] = "message"
    elif way != "chosen":
        env["WEFT_ALGORITHM"] = f"{operation}={way}"
    return env


def _rows(bed: Bed, operation: str, options: argparse.Namespace) -> None:
    ways = ("chosen", *_WAYS[operation])
    hosts = [host for host in range(len(bed)) for _ in range(options.each)]
    crowded = len(hosts) > len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        jobs: dict[str, Ranks] = {}
        for way in ways:
            env = _environment(operation, way, crowded)
            jobs[way] = stack.enter_context(bed_ranks(bed, _COMMAND, hosts, **env))
            jobs[way].all("join")
        for size in options.sizes:
            calls = max(3, min(200, (4 << 20) // size))
            found: dict[str, list[float]] = {way: [] for way in ways}
            words = {"operation": operation, "size": size, "calls": calls}
            for _ in range(options.rounds):
                for way, job in jobs.items():
                    found[way].append(max(said["us"] for said in job.all("measure", **words)))
            _print(operation, size, found)
        for job in jobs.values():
            job.all("leave")


def _print(operation: str, size: int, found: dict[str, list[float]]) -> None:
    middle = {way: statistics.median(times) for way, times in found.items()}
    least = min(middle.values())
    cells = [f"{way} {us:.0f} ({us / least:.2f})" for way, us in middle.items()]
    print(f"{operation:15} {size:9} B  {'  '.join(cells)}", flush=True)


def _hosts(text: str) -> int:
    if positive(text) > MOST_HOSTS:
        raise argparse.ArgumentTypeError(f"goes from 1 to {MOST_HOSTS}")
    return int(text)


def _bytes(text: str) -> int:
    if positive(text) < 4:
        raise argparse.ArgumentTypeError("must be at least 4, one element")
    return int(text)


def _rate(text: str) -> str:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?[kmgt]?bit", text):
        raise argparse.ArgumentTypeError(f"{text} is no rate such as 1gbit")
    return text


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m weft.bench.hosts.algorithms")
    parser.add_argument("--hosts", type=_hosts, default=4)
    parser.add_argument("--each", type=positive, default=2, help="ranks on a host")
    parser.add_argument("--rate", type=_rate, help="of a cable, such as 1gbit; no limit without it")
    parser.add_argument("--ops", nargs="+", choices=_WAYS, default=list(_WAYS))
    parser.add_argument("--sizes", type=_bytes, nargs="+", default=_SIZES, help="bytes")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.rank:
        return serve(AlgorithmRank)
    print("microseconds of a call, median; in brackets, over the best way of the row")
    try:
        with Bed(options.hosts, rate=options.rate) as bed:
            for operation in options.ops:
                _rows(bed, operation, options)
    except Unavailable as error:
        print(f"no hosts can be made here: {error}", file=sys.stderr)
        return 1
    except RankError as error:
        print(f"a rank failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
