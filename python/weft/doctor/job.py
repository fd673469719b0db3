# SPDX-License-Identifier: Apache-2.0
"""The job: who is in it, who shares memory with whom, and how fast each pair is."""

import array
import dataclasses
import sys
import threading
import time

import weft
from weft import _core
from weft.doctor import Fact, Page, library

SECONDS = 1.0  # for the whole self test
PATIENCE = 5.0  # seconds without the others before it says so
MOST_RANKS = 16  # of them each two are tested
LARGE = 1 << 20


@dataclasses.dataclass
class Matrix:
    """A number for each pair of ranks; 0 where it was not measured."""

    title: str
    size: int
    values: list[float]

    def lines(self) -> list[str]:
        cells = [[f"{v:.3g}" if v else "-" for v in self.row(r)] for r in range(self.size)]
        width = max(len(cell) for row in cells for cell in row) + 2
        head = "      " + "".join(f"{rank:>{width}}" for rank in range(self.size))
        rows = [
            f"{rank:>6}" + "".join(f"{c:>{width}}" for c in row) for rank, row in enumerate(cells)
        ]
        return [self.title, head, *rows]

    def row(self, rank: int) -> list[float]:
        return self.values[rank * self.size : (rank + 1) * self.size]


def page() -> Page | None:
    """Join the job and test it; None when this process is alone. Collective."""
    launcher, _ = _core.launcher()
    if launcher == "alone":
        return None
    waiting = threading.Timer(PATIENCE, _say_waiting)
    waiting.daemon = True
    waiting.start()
    try:
        world = weft.init()
    except weft.Error as error:
        remedy = f"the job cannot start: {error}"
        if isinstance(error, weft.TimeoutError):
            remedy += "; start all ranks at once, each with its number, in a job of one name"
        return Page("job", [Fact("launcher", launcher, remedy=remedy)])
    finally:
        waiting.cancel()
    try:
        facts = [Fact("launcher", launcher), *_ranks(world)]
        facts += [
            Fact(m.title, "\n".join(m.lines()), [m.row(r) for r in range(m.size)])
            for m in measure(world.comm)
        ]
    except weft.Error as error:
        facts = [Fact("self test", "failed", remedy=f"ranks cannot talk: {error}")]
    return Page("job", facts)


def _say_waiting() -> None:
    limit = library.settings()["WEFT_BOOT_TIMEOUT"][0]
    _, rank = _core.launcher()
    text = f"weft doctor: rank {rank} waits for the others, {limit} at most (WEFT_BOOT_TIMEOUT)"
    print(text, file=sys.stderr, flush=True)


def _ranks(world: weft.World) -> list[Fact]:
    nodes: dict[int, list[weft.Peer]] = {}
    for peer in world.peers:
        nodes.setdefault(peer.node, []).append(peer)
    where = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    facts = [Fact("ranks", f"{world.size} on {where}", world.size)]
    for node, peers in sorted(nodes.items()):
        ranks = [peer.rank for peer in peers]
        text = f"{peers[0].host}: ranks {', '.join(map(str, ranks))} share memory"
        facts.append(Fact(f"node {node}", text, {"host": peers[0].host, "ranks": ranks}))
    return facts


def measure(comm: weft.Comm) -> list[Matrix]:
    """Latency and bandwidth of each pair, one pair at a time. Collective."""
    size = min(comm.size, MOST_RANKS)
    pairs = [(a, b) for a in range(size) for b in range(a + 1, size)]
    latency = array.array("d", bytes(8 * size * size))
    bandwidth = array.array("d", bytes(8 * size * size))
    seconds = SECONDS / max(1, 2 * len(pairs))
    for a, b in pairs:
        comm.barrier()
        if comm.rank in (a, b):
            peer = b if comm.rank == a else a
            small = _round_trip(comm, peer, comm.rank == a, 8, seconds)
            large = _round_trip(comm, peer, comm.rank == a, LARGE, seconds)
            if comm.rank == a:
                for at in (a * size + b, b * size + a):
                    latency[at] = small / 2 * 1e6
                    bandwidth[at] = 2 * LARGE / large / 1e9
    comm.allreduce(latency)
    comm.allreduce(bandwidth)
    return [
        Matrix("latency of 8 bytes, microseconds", size, latency.tolist()),
        Matrix("bandwidth of 1 MiB messages, GB/s", size, bandwidth.tolist()),
    ]


def _round_trip(comm: weft.Comm, peer: int, leads: bool, size: int, seconds: float) -> float:
    """Seconds for one message there and back, the best of at least one batch.

    The leader says before each batch how many rounds it has; none is the end.
    """
    data, rounds, best = bytearray(b"w" * size), array.array("q", [1]), float("inf")
    end = time.perf_counter() + seconds
    while True:
        if leads:
            over = best < float("inf") and time.perf_counter() > end
            rounds[0] = 0 if over else rounds[0]
            comm.send(rounds, peer)
        else:
            comm.recv(rounds, peer)
        if rounds[0] == 0:
            return best
        start = time.perf_counter()
        for _ in range(rounds[0]):
            if leads:
                comm.send(data, peer)
                comm.recv(data, peer)
            else:
                comm.recv(data, peer)
                comm.send(data, peer)
        took = time.perf_counter() - start
        best = min(best, took / rounds[0])
        if took < seconds / 8:
            rounds[0] *= 2
