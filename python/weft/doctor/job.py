# SPDX-License-Identifier: Apache-2.0
"""The job: who is in it, who shares memory, what leads to the others, how fast each pair is."""

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
MOST_NODES = 64  # of them it is told what leads from one to the other
LARGE = 1 << 20


@dataclasses.dataclass
class Matrix:
    """A number for each pair of these ranks; 0 where it was not measured."""

    title: str
    ranks: list[int]
    values: list[float]

    def lines(self) -> list[str]:
        cells = [[f"{v:.3g}" if v else "-" for v in row] for row in self.rows()]
        width = max(len(cell) for row in cells for cell in row) + 2
        width = max(width, len(str(self.ranks[-1])) + 2)
        head = "      " + "".join(f"{rank:>{width}}" for rank in self.ranks)
        rows = [
            f"{rank:>6}" + "".join(f"{c:>{width}}" for c in row)
            for rank, row in zip(self.ranks, cells, strict=True)
        ]
        return [self.title, head, *rows]

    def rows(self) -> list[list[float]]:
        size = len(self.ranks)
        return [self.values[at : at + size] for at in range(0, size * size, size)]


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
        facts = [Fact("launcher", launcher), *_ranks(world), _arena(world), *_ways(world)]
        facts += [
            Fact(m.title, "\n".join(m.lines()), m.rows())
            for m in measure(world.comm, tested(world.peers))
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


def _arena(world: weft.World) -> Fact:
    """Can tensors of this rank be read by the others where they lie?"""
    room = world.arena.room
    if room == 0:
        text = "none: large tensors cannot be shared (WEFT_ARENA)"
    else:
        text = f"{room / (1 << 30):.1f} GiB for tensors that other ranks read where they lie"
    return Fact("arena", text, room)


def _ways(world: weft.World) -> list[Fact]:
    """Which transport leads from node to node, as their first ranks see it. Collective."""
    peers = world.peers
    firsts: dict[int, int] = {}
    for peer in peers:
        firsts.setdefault(peer.node, peer.rank)
    size = min(len(firsts), MOST_NODES)
    if size == 1:
        return []
    names = list(_core.transports())
    known = array.array("q", bytes(8 * size * size))
    for a in range(size):
        if firsts[a] == world.rank:
            for b in range(size):
                known[a * size + b] = names.index(peers[firsts[b]].transport)
    world.comm.allreduce(known)
    ways: dict[str, list[tuple[int, int]]] = {}
    for a in range(size):
        for b in range(a + 1, size):
            ways.setdefault(names[known[a * size + b]], []).append((a, b))
    return [
        Fact(f"by {name}", "all nodes" if len(ways) == 1 else _pairs_text(pairs), pairs)
        for name, pairs in ways.items()
    ]


def _pairs_text(pairs: list[tuple[int, int]], most: int = 8) -> str:
    text = ", ".join(f"{a}-{b}" for a, b in pairs[:most])
    more = f" and {len(pairs) - most} more" if len(pairs) > most else ""
    return f"between nodes {text}{more}"


def tested(peers: list[weft.Peer]) -> list[int]:
    """The ranks of which each two are tested: of a large job some of as many nodes as can be."""
    seen: dict[int, int] = {}
    order = []
    for peer in peers:
        seen[peer.node] = seen.get(peer.node, -1) + 1
        order.append((seen[peer.node], peer.rank))
    return sorted(rank for _, rank in sorted(order)[:MOST_RANKS])


def measure(comm: weft.Comm, ranks: list[int]) -> list[Matrix]:
    """Latency and bandwidth of each pair of `ranks`, one pair at a time. Collective."""
    size = len(ranks)
    pairs = [(a, b) for a in range(size) for b in range(a + 1, size)]
    latency = array.array("d", bytes(8 * size * size))
    bandwidth = array.array("d", bytes(8 * size * size))
    seconds = SECONDS / max(1, 2 * len(pairs))
    for a, b in pairs:
        comm.barrier()
        if comm.rank in (ranks[a], ranks[b]):
            leads = comm.rank == ranks[a]
            peer = ranks[b] if leads else ranks[a]
            small = _round_trip(comm, peer, leads, 8, seconds)
            large = _round_trip(comm, peer, leads, LARGE, seconds)
            if leads:
                for at in (a * size + b, b * size + a):
                    latency[at] = small / 2 * 1e6
                    bandwidth[at] = 2 * LARGE / large / 1e9
    comm.allreduce(latency)
    comm.allreduce(bandwidth)
    return [
        Matrix("latency of 8 bytes, microseconds", ranks, latency.tolist()),
        Matrix("bandwidth of 1 MiB messages, GB/s", ranks, bandwidth.tolist()),
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
