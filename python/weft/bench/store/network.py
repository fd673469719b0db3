# SPDX-License-Identifier: Apache-2.0
"""Two hosts that are namespaces: the store between them, beside what their network does by itself.

Nothing of it can go through shared memory, and the bytes on the cable are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..bed import SHARED_CORES, Bed
from ..bed_ranks import bed_ranks
from ..piped import Ranks
from ..results import Block
from .cases import (
    AHEAD,
    BATCH,
    COMPUTE_US,
    NET_BATCH,
    NET_DEPTH,
    NET_ONE,
    NET_STREAM,
    ZIPF,
    ZIPF_KEYS,
    ZIPF_ROW,
    case_of,
)
from .pair import COMMAND

Add = Callable[[Block], None]
_TRANSPORTS = "self,shm,ucx"
_KEY = 8  # bytes
_KEYS = 200_000  # of the store that is pulled from
_STEADY = 5  # blocks of keys wanted for good
_MANY_CORES = 4


@dataclass(frozen=True)
class Plan:
    """How much is asked for."""

    rounds: int
    rows: tuple[int, ...]
    times: int  # round trips of one key in a turn; batches are a twentieth
    steps: int  # of the stream
    seconds: float  # of doing nothing


@dataclass
class Found:
    """Where blocks go; and what is no time: shares, and bytes through the cable of a host."""

    add: Add
    local: list[float] = field(default_factory=list)
    bytes: dict[str, float] = field(default_factory=dict)


@contextmanager
def _job(
    bed: Bed, path: str, hosts: Sequence[int], cores: Sequence[int], **more: str
) -> Iterator[Ranks]:
    """One rank on each of these hosts, each on a core of its own; they meet in a directory."""
    env = {"WEFT_TRANSPORTS": _TRANSPORTS, **more}
    with bed_ranks(bed, COMMAND, hosts, **env) as job:
        for host, rank in zip(hosts, job.ranks, strict=True):
            if host < len(cores):  # before it opens: its threads stay there, too
                rank.ask("pin", core=cores[host])
        job.all("open", path=path)
        yield job


def measure(path: str, plan: Plan, cores: Sequence[int], add: Add) -> Found:
    """Blocks of all cases between two hosts.

    Threads of a host that answer others have its core, too, unless there are many. Who wakes a
    thread of the other host on this machine may put it on its own core, where it stays for
    milliseconds while the other one is idle: hence a core for each.
    """
    more = SHARED_CORES if len(cores) < _MANY_CORES else {}
    pinned = cores if len(cores) in (2, 3) else ()
    # The driver is a file of the cache folder, which may lie where hosts have their own.
    with Bed(2, visible=[path.rpartition("/")[0]]) as bed:
        found = Found(add)
        with _job(bed, path, (0, 1), pinned, **more) as both:
            for row in plan.rows:
                _pulls(bed, both, plan, row, found)
            _quiet(bed, both, plan, found)
            with _job(bed, path, (0,), pinned, **more) as alone:
                _streams(bed, both, alone, plan, found)
        return found


def _pulls(bed: Bed, both: Ranks, plan: Plan, row: int, found: Found) -> None:
    """Pulls of one key and of many, and as many bytes by messages and by TCP."""
    both.all("make", number=_KEYS, row=row)
    both.all("begin")
    both.all("tcp", address=bed.address(1))
    few, many = max(3, plan.times // 20), BATCH * row
    for turn in range(plan.rounds):

        def block(op: str, system: str, us: float, turn: int = turn) -> None:
            found.add(Block(case_of(op, row), system, turn, "any", us))

        def network(what: str, *words: int) -> float:
            return both.all("network", what=what, words=words)[0]["us"]

        block(NET_ONE, "transport", network("ping", _KEY, row, plan.times))
        block(NET_ONE, "tcp", network("tcp", _KEY, row, plan.times))
        block(NET_ONE, "weft", _pull(both, plan, 1))
        block(NET_BATCH, "tcp", network("tcp", BATCH * _KEY, many, few))
        block(NET_BATCH, "weft", _pull(both, plan, BATCH))
        block(NET_DEPTH, "transport", network("flow", many, few, 8))
        block(NET_DEPTH, "gathered", network("cold", BATCH, few, 8))
        before = bed.bytes(1)[0]
        words = (BATCH, few, 8)
        block(NET_DEPTH, "weft", both.one("network", what="outstanding", words=words)["us"])
        sent = (bed.bytes(1)[0] - before) / (few * many)
        found.bytes[f"for each byte of rows of {row} B, {BATCH} keys a call"] = sent
    both.all("tcp", address="")


def _pull(both: Ranks, plan: Plan, keys: int) -> float:
    return both.one("remote", push=False, keys=keys, ms=plan.times / 5)["us"]


def _quiet(bed: Bed, both: Ranks, plan: Plan, found: Found) -> None:
    """Bytes a second while nothing happens, and while copies stay as they are."""

    def rate(name: str) -> None:
        before = sum(bed.bytes(0))
        both.all("idle", seconds=plan.seconds)
        found.bytes[name] = (sum(bed.bytes(0)) - before) / plan.seconds

    rate("a second, idle")
    both.all("want", first=0, keys=_STEADY * BATCH, step=1)
    both.all("want", first=0, keys=0, step=1)
    rate(f"a second, with {_STEADY * BATCH} keys that both hosts want and nobody changes")


def _streams(bed: Bed, both: Ranks, alone: Ranks, plan: Plan, found: Found) -> None:
    """Training steps on two hosts, and on one."""
    for job in (both, alone):
        job.all("make", number=ZIPF_KEYS, row=ZIPF_ROW)
        job.all("zipf", number=ZIPF_KEYS, exponent=ZIPF, steps=plan.steps, keys=BATCH)
    words = {"keys": BATCH, "ahead": AHEAD, "compute_us": COMPUTE_US}
    case = case_of(NET_STREAM, ZIPF_ROW)
    for turn in range(plan.rounds):
        before = sum(bed.bytes(0))
        answers = both.all("train", **words)
        found.bytes["a step"] = (sum(bed.bytes(0)) - before) / plan.steps
        found.local.append(min(answer["local"] for answer in answers))
        found.add(Block(case, "weft", turn, "any", max(answer["us"] for answer in answers)))
        found.add(Block(case, "one-host", turn, "any", alone.all("train", **words)[0]["us"]))


def notes(found: Found) -> list[str]:
    """For people."""
    told = [f"a host sends or receives {n:.3g} bytes {what}" for what, n in found.bytes.items()]
    if found.local:
        low, high = min(found.local), max(found.local)
        told.append(f"{low:.1%} to {high:.1%} of accesses of a stream with intents were local")
    return told


def rows(found: Found) -> list[dict]:
    """In the shape of the other rows."""
    values = {f"bytes {what}": (n, "B") for what, n in found.bytes.items()}
    if found.local:
        values["local accesses of a stream"] = (100 * min(found.local), "%")
    return [
        {
            "bench": "store",
            "case": f"{NET_STREAM}: {name}" if unit == "%" else name,
            "system": "weft",
            "ranks": 2,
            "bytes": 0,
            "value": value,
            "unit": unit,
            "low": value,
            "high": value,
        }
        for name, (value, unit) in values.items()
    ]
