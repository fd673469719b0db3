# SPDX-License-Identifier: Apache-2.0
"""What `weft bench store` measures."""

from __future__ import annotations

from dataclasses import dataclass

from ..results import Case
from ..runner import Options

_GIB = 1 << 30

# weft is the store. The others work on a flat array of the same rows, which has no locks: a loop
# in C, weft_rows_gather, and torch's index_select(out=) and index_add_, one thread each.
SYSTEMS = ("weft", "gather", "loop", "torch")
READERS = SYSTEMS
WRITERS = ("weft", "loop", "torch")

LARGE = 1 * _GIB  # rows of a table that no cache holds
MILLION = 1_000_000
BATCH = 1000


@dataclass(frozen=True)
class Operation:
    """Calls on rows of this process's host, next to a flat array.

    keys:   of a call
    rows:   bytes of a row, in a full run and in a quick one
    number: of rows in the table; None: as many as LARGE holds
    """

    about: str
    systems: tuple[str, ...]
    rows: tuple[int, ...]
    quick_rows: tuple[int, ...]
    keys: int = BATCH
    number: int | None = None
    push: bool = False
    python: bool = False
    awaited: bool = False  # a key depends on the row of the one before

    def number_of(self, row: int, large: int) -> int:
        return large // row if self.number is None else self.number


_ROWS = (64, 256, 1024)
_FLOATS = tuple(4 * floats for floats in (16, 64, 128, 512))

LOCAL = {
    "pull": Operation(f"pull of {BATCH} keys", READERS, (*_ROWS, 2048), _ROWS),
    "push": Operation(f"push of {BATCH} keys", WRITERS, (*_ROWS, 2048), _ROWS, push=True),
    "pull-one": Operation("pull of 1 key", ("weft", "gather", "loop"), _ROWS, (64, 256), 1),
    "pull-one-awaited": Operation(
        "pull of 1 key, which the last row tells",
        ("weft", "loop"),
        _ROWS,
        (64,),
        1,
        awaited=True,
    ),
    "push-one": Operation("push of 1 key", ("weft", "loop"), _ROWS, (64, 256), 1, push=True),
    "pull-one-python": Operation(
        "pull of 1 key, from Python", ("weft", "torch"), _ROWS, (64, 256), 1, python=True
    ),
    "push-one-python": Operation(
        "push of 1 key, from Python", ("weft", "torch"), _ROWS, (64, 256), 1, push=True, python=True
    ),
    "pull-million": Operation(
        f"pull of {BATCH} keys out of 1 M", READERS, _FLOATS, _FLOATS, number=MILLION
    ),
    "push-million": Operation(
        f"push of {BATCH} keys out of 1 M", WRITERS, _FLOATS, _FLOATS, number=MILLION, push=True
    ),
}

# Two ranks of one host pull and push keys of one small set, or each of its own. A loop does the
# same to rows without locks, where additions may be lost: what lines cost that wander between
# caches.
HOT = "hot"
HOT_KEYS = 1000
HOT_ROW = 256
HOT_SYSTEMS = ("same", "disjoint", "loop-same", "loop-disjoint")


@dataclass(frozen=True)
class Between:
    """Calls of a host on keys that began on another one.

    adapm: what AdaPM took on a machine with 2 cores, in us, by bytes of a row
    """

    about: str
    keys: int
    adapm: dict[int, float]


HOSTS = "hosts"
HOST_ROWS = (64, 512)
BETWEEN = {
    "remote-pull-1": Between("pull, 1 key elsewhere", 1, {64: 175, 512: 177}),
    "remote-pull-1000": Between("pull, 1000 keys elsewhere", 1000, {64: 667, 512: 725}),
    "remote-push-1": Between("push, 1 key elsewhere", 1, {64: 176, 512: 172}),
    "remote-push-1000": Between("push, 1000 keys elsewhere", 1000, {64: 649, 512: 1136}),
    "intent-1": Between("from intent to here, 1 key", 1, {64: 1070, 512: 1050}),
    "intent-100": Between("from intent to here, 100 keys", 100, {64: 1080, 512: 1170}),
    "intent-1000": Between("from intent to here, 1000 keys", 1000, {64: 2360, 512: 4050}),
    "intent-10000": Between("from intent to here, 10000 keys", 10000, {64: 16200, 512: 31000}),
    "moved-pull-1": Between("pull, 1 key that moved here", 1, {64: 0.3, 512: 0.5}),
    "moved-pull-1000": Between("pull, 1000 that moved here", 1000, {64: 72, 512: 201}),
    "moved-push-1": Between("push, 1 key that moved here", 1, {64: 0.2, 512: 0.5}),
    "moved-push-1000": Between("push, 1000 that moved here", 1000, {64: 154, 512: 391}),
    "stream": Between("1000 fresh keys, pull and push", 1000, {64: 992, 512: 1815}),
    "stream-intent": Between("the same, intent 20 steps ahead", 1000, {64: 1348, 512: 2591}),
}
AHEAD = 20

# Between hosts that are namespaces: pulls beside messages of the transport and bare TCP for as many
# bytes, and training steps beside those of one host.
NETWORK = "network"
NET_ONE, NET_BATCH, NET_DEPTH, NET_STREAM = "net-1", "net-1000", "net-1000-8", "net-stream"
NET = {
    NET_ONE: "pull of 1 key",
    NET_BATCH: f"pull of {BATCH} keys",
    NET_DEPTH: f"pull of {BATCH} keys, 8 outstanding",
    NET_STREAM: f"step: pull {BATCH} keys, compute 1 ms, push; intent {AHEAD} steps ahead",
}
# "gathered": messages of the transport whose rows are copied together first, out of memory that is
# in no cache, as the store's are.
NET_SYSTEMS = ("weft", "transport", "gathered", "tcp", "one-host")
NET_ROWS = (64, 512)
ZIPF, ZIPF_KEYS, ZIPF_ROW, COMPUTE_US = 1.1, MILLION, 256, 1000.0

MEMORY = "memory"
NAMES = (*LOCAL, HOT, HOSTS, NETWORK, MEMORY)


def keys_of(op: str) -> int:
    """Keys of a call."""
    if op in NET:
        return 1 if op == NET_ONE else BATCH
    return HOT_KEYS if op == HOT else (LOCAL.get(op) or BETWEEN[op]).keys


def ops_of(options: Options) -> tuple[str, ...]:
    return options.ops or NAMES


def systems_of(options: Options, op: str) -> list[str]:
    return [name for name in LOCAL[op].systems if options.wants(name)]


def rows_of(options: Options, op: str) -> tuple[int, ...]:
    return options.sizes or (LOCAL[op].quick_rows if options.quick else LOCAL[op].rows)


def case_of(op: str, row: int) -> Case:
    ranks = 1 if op in LOCAL else 2
    return Case(op, row, ranks, ranks)
