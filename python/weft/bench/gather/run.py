# SPDX-License-Identifier: Apache-2.0
"""`weft bench gather`: rows of a large table, read, written and added to.

weft is measured against torch and against a copy of the same bytes.

One process measures at a time, with the table, ids and output that all systems share
(`rank`); they take turns, row size by row size and round by round. Two more processes read
one region, alone and at once. What a GPU does is in `gpu`, whose rows join these here.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product

from ..build import BuildError, find_library
from ..piped import Rank, RankError
from ..results import Block, Case
from ..runner import (
    Options,
    Outcome,
    available_memory,
    cores_here,
    interruptible,
    progress,
)
from . import gpu

_MIB, _GIB = 1 << 20, 1 << 30
SYSTEMS = ("weft", "torch", "embedding", "copy")
SIZES = (16, 20, 36, 64, 100, 128, 256, 500, 512, 1000, 1024, 2048, 4096)
QUICK_SIZES = (64, 256, 1024, 2048)
UPDATE_SIZES = (20, *QUICK_SIZES)  # no mark speaks of them, and the run is long enough
SHARED_SIZES = (64, 256, 1024)
# Rows of a call whose output fits into a cache, and bytes of one that does not.
FEW_ROWS = 4096
MUCH = 64 * _MIB
TABLE = 2 * _GIB  # the least that a mark may be judged by
LARGE_TABLE = 8 * _GIB
QUICK_SECONDS = 42.0
# From this load on threads wait for cores, most of all those that meet at a barrier.
BUSY = 1.0


@dataclass(frozen=True)
class Operation:
    """What is done with rows in which pages, and how much at a time."""

    about: str
    huge: bool = False
    much: bool = False
    call: str = "gather"

    @property
    def updates(self) -> bool:
        return self.call != "gather"


OPERATIONS = {
    "gather-4k": Operation(f"4 KiB pages, {FEW_ROWS} rows a call"),
    "gather-4k-much": Operation("4 KiB pages, 64 MiB a call", much=True),
    "gather-huge": Operation(f"huge pages, {FEW_ROWS} rows a call", huge=True),
    "gather-huge-much": Operation("huge pages, 64 MiB a call", huge=True, much=True),
    "scatter-4k": Operation(f"scatter, 4 KiB pages, {FEW_ROWS} rows a call", call="scatter"),
    "scatter-huge": Operation(
        f"scatter, huge pages, {FEW_ROWS} rows a call", huge=True, call="scatter"
    ),
    "scatter-add-4k": Operation(
        f"adding scatter, 4 KiB pages, {FEW_ROWS} rows a call", call="scatter_add"
    ),
    "scatter-add-huge": Operation(
        f"adding scatter, huge pages, {FEW_ROWS} rows a call", huge=True, call="scatter_add"
    ),
}
SHARED = "gather-shared"
NAMES = (*OPERATIONS, SHARED)


def rows_per_call(op: str, row: int) -> int:
    """How many rows of `row` bytes a call of `op` moves."""
    return MUCH // row if op in OPERATIONS and OPERATIONS[op].much else FEW_ROWS


_COMMAND = (sys.executable, "-m", "weft.bench.gather.rank")


class Runner:
    """Runs what was asked for and collects the blocks."""

    def __init__(self, options: Options, advance: Callable[..., None]):
        self.outcome = Outcome()
        self._options = options
        self._advance = advance
        self._cores = cores_here(options.cores)
        self._rounds = options.rounds or (5 if options.quick else 9)
        self._ms = options.block_ms or (15.0 if options.quick else 40.0)
        self._end = time.monotonic() + (QUICK_SECONDS if options.quick else float("inf"))
        self._table = table_bytes(available_memory(), options.quick)

    def run(self) -> None:
        library = self._options.library
        path = str(library[0] if library is not None else find_library()[0])
        ops = ops_of(self._options)
        size = f"{self._table / _GIB:.3g} GiB"
        self.outcome.notes.append(f"random ids (int64) into a table of {size}, f32 rows")
        load = os.getloadavg()[0]
        if load > BUSY:
            note = f"the load was {load:.1f} at the start: were others at work, no figure holds"
            self.outcome.notes.append(note)
        if SHARED in ops:
            self._guard("the shared region", lambda: self._shared(path))
        # Marks are judged by gathers, so they come first in the time that a quick run has.
        for updates, huge in product((False, True), (False, True)):
            here = [
                op
                for op in ops
                if op in OPERATIONS
                and (OPERATIONS[op].updates, OPERATIONS[op].huge) == (updates, huge)
            ]
            if here:
                what = f"{'scatter' if updates else 'gather'}, {'huge' if huge else '4 KiB'} pages"
                self._guard(what, partial(self._private, path, huge, here))

    def _guard(self, what: str, part: Callable[[], None]) -> None:
        if time.monotonic() > self._end:
            return  # a table for nothing takes as long as the rest
        try:
            part()
        except RankError as error:
            self.outcome.failed[what] = str(error)

    def _private(self, path: str, huge: bool, ops: list[str]) -> None:
        rank = Rank(_COMMAND)
        try:
            rank.ask("pin", cores=list(self._cores))
            rank.ask("library", path=path)
            updates = OPERATIONS[ops[0]].updates
            self._advance(f"{ops[0]}: filling {self._table / _GIB:.3g} GiB", 0)
            found = rank.ask("table", size=self._table, huge=huge, numbers=updates)["huge"]
            if huge and found < 0.9 * self._table:
                note = f"only {found / _GIB:.2f} GiB of the table are in huge pages"
                self.outcome.missing["huge pages"] = note
                return
            for op in ops:
                for threads in threads_of(self._options, len(self._cores)):
                    for row in self._options.sizes or sizes_of(self._options, op):
                        self._case(rank, Case(op, row, 1, threads))
        finally:
            rank.stop()

    def _case(self, rank: Rank, case: Case) -> None:
        """All rounds of one case, since ids and output are made anew for each."""
        if time.monotonic() > self._end:
            return
        count, call = rows_per_call(case.op, case.bytes), OPERATIONS[case.op].call
        answer = rank.ask("rows", row=case.bytes, count=count, threads=case.cores, call=call)
        wrong = answer["wrong"]
        if wrong:
            raise RankError(f"{', '.join(wrong)}: wrong result for rows of {case.bytes} B")
        for turn in range(self._rounds):
            for system in systems_of(self._options, case.op):
                block = rank.ask("block", system=system, threads=case.cores, ms=self._ms)
                self.outcome.blocks.append(Block(case, system, turn, "any", block["us"]))
                self._advance(case.op)

    def _shared(self, path: str) -> None:
        """Two processes read one region: the first alone, then both at once."""
        if len(self._cores) < 2:
            self.outcome.notes.append("the shared region needs 2 cores")
            return
        job = f"bench-gather-{secrets.token_hex(8)}"
        with ExitStack() as stack:
            pair = []
            for number in range(2):
                env = {"WEFT_RANK": str(number), "WEFT_RANKS": "2", "WEFT_JOB": job}
                pair.append(Rank(_COMMAND, env))
                stack.callback(pair[-1].stop)
            for number, rank in enumerate(pair):
                rank.ask("pin", cores=[self._cores[number]])
                rank.ask("library", path=path)
            self._advance(f"{SHARED}: filling {self._table / _GIB:.3g} GiB", 0)
            seed = secrets.randbits(30)
            for rank in pair:
                rank.tell("region", size=self._table, seed=seed)
            for rank in pair:
                rank.hear()
            for row in SHARED_SIZES:
                if time.monotonic() < self._end:
                    self._shared_case(pair, row)

    def _shared_case(self, pair: list[Rank], row: int) -> None:
        for rank in pair:
            if rank.ask("rows", row=row, count=FEW_ROWS, threads=1)["wrong"]:
                raise RankError(f"wrong result for rows of {row} B")
        for turn in range(self._rounds):
            for system in ("weft", "copy"):
                for ranks in (1, 2):
                    for rank in pair[:ranks]:
                        rank.tell("rate", system=system, ms=2 * self._ms)
                    per_s = sum(rank.hear()["per_s"] for rank in pair[:ranks])
                    case = Case(SHARED, row, ranks, ranks)
                    # As if one process made all the calls.
                    block = Block(case, system, turn, "any", 1e6 / per_s)
                    self.outcome.blocks.append(block)
                    self._advance(SHARED)


def ops_of(options: Options) -> tuple[str, ...]:
    """What was asked for, else all; a quick run has no time for another table in huge pages."""
    slow = {op for op, what in OPERATIONS.items() if options.quick and what.updates and what.huge}
    return options.ops or tuple(op for op in NAMES if op not in slow)


def systems_of(options: Options, op: str) -> list[str]:
    """Those that were asked for; a quick run leaves out what no mark speaks of."""
    without = {"embedding"} if options.quick or OPERATIONS[op].updates else set()
    return [system for system in SYSTEMS if options.wants(system) and system not in without]


def sizes_of(options: Options, op: str) -> tuple[int, ...]:
    if options.quick:
        return QUICK_SIZES
    return UPDATE_SIZES if OPERATIONS[op].updates else SIZES


def threads_of(options: Options, cores: int) -> tuple[int, ...]:
    """One thread per core; a full run has one thread alone, too."""
    return (cores,) if options.quick or cores == 1 else (cores, 1)


def table_bytes(available: int, quick: bool) -> int:
    """What a table may take: a part of what is free, in whole MiB."""
    wanted = TABLE if quick or available < 4 * LARGE_TABLE else LARGE_TABLE
    return min(wanted, available // 3 // _MIB * _MIB)


def _total(options: Options, cores: int) -> int:
    rounds = options.rounds or (5 if options.quick else 9)
    ops = ops_of(options)
    cases = sum(
        len(options.sizes or sizes_of(options, op)) * len(systems_of(options, op))
        for op in ops
        if op in OPERATIONS
    )
    private = cases * len(threads_of(options, cores))
    return rounds * (private + 4 * len(SHARED_SIZES) * (SHARED in ops))


def measure(options: Options) -> Outcome:
    """A whole run. The GPU's part has no operations to choose from: it is all or nothing."""
    if importlib.util.find_spec("torch") is None:
        return Outcome(missing=dict.fromkeys(("weft", "torch"), "torch is not installed"))
    with progress(_total(options, len(cores_here(options.cores)))) as advance:
        runner = Runner(options, advance)
        try:
            with interruptible(runner.outcome):
                runner.run()
        except BuildError as error:
            runner.outcome.missing["weft"] = str(error)
    if options.ops is None and not runner.outcome.interrupted:
        runner.outcome.ready = gpu.run(options.quick)
    return runner.outcome
