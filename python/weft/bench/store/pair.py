# SPDX-License-Identifier: Apache-2.0
"""What two processes with one store measure: on one host, and on two that are pretended.

A host is what WEFT_NODE says it is, so that messages go between two processes of one machine.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ..piped import Rank, Ranks
from ..results import Block
from .cases import AHEAD, BATCH, BETWEEN, HOT, HOT_KEYS, HOT_ROW, HOT_SYSTEMS, MEMORY, case_of

COMMAND = (sys.executable, "-m", "weft.bench.store.host_rank")
Add = Callable[[Block], None]
_HOT_NUMBER = 1 << 16  # keys of the store
_MS = 1000.0
# Memory that a process frees goes back at once, so that its own comings and goings do not count.
_FRUGAL = {
    "PYTHONMALLOC": "malloc",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TOP_PAD_": "0",
}
_FIRST = 10_000  # keys at most that move before memory is measured: messages have their room then


@contextmanager
def pair(path: str, hosts: bool, **more: str) -> Iterator[Ranks]:
    """Two ranks on one host, or on two; `more` goes to their environment."""
    job = f"bench-store-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        ranks = []
        for number in range(2):
            env = {"WEFT_RANK": str(number), "WEFT_RANKS": "2", "WEFT_JOB": job, **more}
            if hosts:
                env["WEFT_NODE"] = f"host{number}"
            ranks.append(Rank(COMMAND, env))
            stack.callback(ranks[-1].stop)
        both = Ranks(ranks)
        both.all("open", path=path)
        yield both


def hot(path: str, cores: Sequence[int], rounds: int, ms: float, add: Add) -> None:
    """Both ranks use the same keys, and then each its own."""
    with pair(path, hosts=False) as both:
        for core, rank in zip(cores, both.ranks, strict=False):
            rank.ask("pin", core=core)
        both.all("make", number=_HOT_NUMBER, row=HOT_ROW, flat=True)
        for turn in range(rounds):
            for system in HOT_SYSTEMS:
                who = "loop" if system.startswith("loop") else "weft"
                for number, rank in enumerate(both.ranks):
                    first = HOT_KEYS * number if system.endswith("disjoint") else 0
                    rank.tell("hot", system=who, first=first, number=HOT_KEYS, keys=HOT_KEYS, ms=ms)
                us = max(rank.hear()["us"] for rank in both.ranks)
                add(Block(case_of(HOT, HOT_ROW), system, turn, "any", us))


@dataclass(frozen=True)
class HostsPlan:
    """How much is asked for between hosts."""

    rounds: int
    ms: float
    steps: int
    rows: tuple[int, ...]

    @property
    def number(self) -> int:
        """Keys: each round brings some that were elsewhere, where half of them begin."""
        once = self.steps * BATCH + sum(what.keys for what in BETWEEN.values())
        return 2 * (self.rounds + 1) * once


def hosts(path: str, plan: HostsPlan, add: Add) -> dict[int, float]:
    """Blocks of all cases; the share of keys that intents had brought in time, by row."""
    local: dict[int, list[float]] = {row: [] for row in plan.rows}
    with pair(path, hosts=True) as both:
        for row in plan.rows:
            both.all("make", number=plan.number, row=row)
            both.all("begin")
            for turn in range(plan.rounds):
                for op, us in _turn(both, plan, local[row]):
                    add(Block(case_of(op, row), "weft", turn, "any", us))
    return {row: sum(shares) / len(shares) for row, shares in local.items()}


def _turn(both: Ranks, plan: HostsPlan, local: list[float]) -> Iterator[tuple[str, float]]:
    for op, what in BETWEEN.items():
        kind, _, rest = op.partition("-")
        if kind == "intent":
            yield op, both.one("intent", keys=what.keys)["us"]
        elif kind == "stream":
            found = both.one("stream", steps=plan.steps, keys=BATCH, ahead=AHEAD if rest else 0)
            if rest:
                local.append(found["local"])
            yield op, found["us"]
        else:
            push = rest.startswith("push")
            yield op, both.one(kind, push=push, keys=what.keys, ms=plan.ms)["us"]


@dataclass(frozen=True)
class Footprint:
    """Bytes beside the payload, and shares of a core of the busier host while nothing happens."""

    home: float  # of a key on its home
    moved: float  # of one that moved here
    absent: float  # of one that is elsewhere
    copy: float  # of one that is copied here; its payload is there twice
    idle: float
    idle_with_copies: float
    row: int


def footprint(path: str, number: int, row: int, seconds: float) -> Footprint:
    """Made from what the two processes take before and after each step.

    A host has memory for all its slots from the beginning, those for keys that may come included:
    two stores that differ in their number tell what a slot takes. A key is in the directory of
    both hosts. Processes keep some memory for messages, however many keys move: it is there before.
    """
    few = number // 8
    first = min(_FIRST, few // 8)
    with pair(path, hosts=True, **_FRUGAL) as both:

        def taken() -> float:
            return sum(answer["bytes"] for answer in both.all("memory"))

        def idle() -> float:
            return max(answer["share"] for answer in both.all("idle", seconds=seconds))

        def make(keys: int, cache: int) -> float:
            both.all("make", number=keys, row=row, cache=cache)
            bytes_taken = taken()
            both.all("begin", keep=first + few // 8)
            return bytes_taken

        make(64, few)  # what is needed once
        # What does not depend on the number of keys is in the small store, too.
        small, more, made = make(64, few), make(64, 3 * few), make(number, few)
        slot = (more - small) / (2 * 2 * few)
        entry = ((made - small) / (number - 64) - slot) / 2
        resting = idle()
        both.one("move", keys=first)
        before = taken()
        both.one("move", keys=few // 8)
        moved = (taken() - before) / (few // 8)
        before, copies = taken(), _copies(both, few // 4)
        copied = (taken() - before) / copies
        beside = slot - row
        return Footprint(
            home=beside + entry,
            moved=beside + entry + moved,
            absent=entry,
            copy=2 * beside + entry + copied,
            idle=resting,
            idle_with_copies=idle(),
            row=row,
        )


def _copies(both: Ranks, few: int) -> int:
    """Both hosts want the same keys: how many copies there are then."""
    both.all("want", first=0, keys=few, step=1)
    return max(1, sum(answer["copies"] for answer in both.all("want", first=0, keys=0, step=1)))


def footprint_rows(found: Footprint) -> list[dict]:
    """In the shape of the other rows."""
    values = {
        "key at home": (found.home, "B"),
        "key that moved in": (found.moved, "B"),
        "absent key": (found.absent, "B"),
        "copy": (found.copy, "B"),
        "idle": (100 * found.idle, "% of a core"),
        "idle with copies": (100 * found.idle_with_copies, "% of a core"),
    }
    return [
        {
            "bench": "store",
            "case": f"{MEMORY}: {name}",
            "system": "weft",
            "ranks": 2,
            "bytes": found.row,
            "value": value,
            "unit": unit,
            "low": value,
            "high": value,
        }
        for name, (value, unit) in values.items()
    ]


def footprint_notes(found: Footprint) -> list[str]:
    """For people."""
    return [
        f"beside a payload of {found.row} B a key takes {found.home:.1f} B at home, "
        f"{found.moved:.1f} B where it moved to, {found.absent:.1f} B where it is not; "
        f"a copy {found.copy:.1f} B beside two payloads (AdaPM: 170, 170, 13, 650)",
        f"an idle host takes {found.idle:.2%} of a core, with copies "
        f"{found.idle_with_copies:.2%} (AdaPM: 27 %)",
    ]
