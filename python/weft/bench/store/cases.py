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

    def number_of(self, row: int, large: int) -> int:
        return large // row if self.number is None else self.number


_ROWS = (64, 256, 1024)
_FLOATS = tuple(4 * floats for floats in (16, 64, 128, 512))

LOCAL = {
    "pull": Operation(f"pull of {BATCH} keys", READERS, (*_ROWS, 2048), _ROWS),
    "push": Operation(f"push of {BATCH} keys", WRITERS, (*_ROWS, 2048), _ROWS, push=True),
    "pull-one": Operation("pull of 1 key", ("weft", "gather", "loop"), _ROWS, (64, 256), 1),
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
NAMES = tuple(LOCAL)


def ops_of(options: Options) -> tuple[str, ...]:
    return options.ops or NAMES


def systems_of(options: Options, op: str) -> list[str]:
    return [name for name in LOCAL[op].systems if options.wants(name)]


def rows_of(options: Options, op: str) -> tuple[int, ...]:
    return options.sizes or (LOCAL[op].quick_rows if options.quick else LOCAL[op].rows)


def case_of(op: str, row: int) -> Case:
    return Case(op, row, 1, 1)
