# SPDX-License-Identifier: Apache-2.0
"""The run of `weft bench store`: who measures what, and in which order.

One process has a store and a flat array of the same rows, and all systems take turns in it, round
by round.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable

from ..bed import Unavailable
from ..build import BuildError, Driver, build, find_library
from ..piped import Rank, RankError
from ..results import Block
from ..runner import (
    Options,
    Outcome,
    available_memory,
    cores_here,
    interruptible,
    progress,
)
from ..systems import find_compiler
from . import marks, network, pair
from .cases import (
    HOST_ROWS,
    HOSTS,
    HOT,
    LARGE,
    LOCAL,
    MEMORY,
    NET_ROWS,
    NETWORK,
    case_of,
    ops_of,
    rows_of,
    systems_of,
)

# When a quick run begins nothing more, and when it has no more tables on one host.
QUICK_SECONDS = 34.0
QUICK_LOCAL_SECONDS = 18.0
QUICK_NETWORK_SECONDS = 26.0  # when hosts that are namespaces are not begun any more
COMMAND = (sys.executable, "-m", "weft.bench.store.rank")
DRIVER = Driver(
    "store",
    ("store.c", "store_hosts.c", "store_net.c"),
    ("-O3", "-march=native", "-shared", "-fPIC"),
    libweft=True,
)
# Of full runs and of quick ones: steps of a stream; keys, and seconds of doing nothing.
STEPS = (60, 20)
FOOTPRINT = ((1 << 22, 3.0), (1 << 20, 0.7))
# Rounds, round trips, steps of a stream and seconds of doing nothing.
NETWORK_PLAN = ((9, 2000, 400, 3.0), (3, 400, 100, 0.7))
BUSY = 1.0  # from this load on others are at work


class Runner:
    """Runs what was asked for and collects the blocks."""

    def __init__(self, options: Options, path: str, advance: Callable[[str], None]):
        self.outcome = Outcome()
        self._options = options
        self._path = path
        self._advance = advance
        self._cores = cores_here(options.cores)
        self._rounds = options.rounds or (5 if options.quick else 9)
        self._ms = options.block_ms or (10.0 if options.quick else 40.0)
        self._start = time.monotonic()
        # A table is there twice, and once more as a weft.Store.
        self._large = min(LARGE, available_memory() // 8)

    def run(self) -> None:
        load = os.getloadavg()[0]
        if load > BUSY:
            note = f"the load was {load:.1f} at the start: were others at work, no figure holds"
            self.outcome.notes.append(note)
        if self._large < LARGE:
            note = f"memory was short: tables of {self._large >> 20} MiB"
            self.outcome.notes.append(note)
        ops = ops_of(self._options)
        if HOT in ops:
            self._guard("hot keys", self._hot)
        self._guard("rows of this host", self._local)
        if HOSTS in ops and not self._late(QUICK_SECONDS):
            self._guard("two hosts", self._hosts)
        shares: list[float] = []
        if NETWORK in ops and not self._late(QUICK_NETWORK_SECONDS):
            self._guard("two hosts that are namespaces", lambda: self._network(shares))
        self.outcome.ready.append(marks.local_row(shares))
        if MEMORY in ops and not self._late(QUICK_SECONDS):
            self._guard("memory", self._memory)
        else:
            self.outcome.ready.append(marks.footprint_row(None))

    def _add(self, block: Block) -> None:
        self.outcome.blocks.append(block)
        self._advance(block.case.op)

    def _hot(self) -> None:
        pair.hot(self._path, self._cores, self._rounds, 2 * self._ms, self._add)

    def _hosts(self) -> None:
        quick = self._options.quick
        plan = pair.HostsPlan(
            rounds=min(3, self._rounds) if quick else self._rounds,
            ms=self._ms,
            steps=STEPS[quick],
            rows=self._options.sizes or (HOST_ROWS[:1] if quick else HOST_ROWS),
        )
        for row, share in pair.hosts(self._path, plan, self._add).items():
            note = f"{share:.0%} of fresh keys were here in time, rows of {row} B"
            self.outcome.notes.append(f"with intent {pair.AHEAD} steps ahead {note}")

    def _network(self, shares: list[float]) -> None:
        quick = self._options.quick
        rounds, times, steps, seconds = NETWORK_PLAN[quick]
        plan = network.Plan(
            rounds=min(rounds, self._options.rounds or rounds),
            rows=self._options.sizes or (NET_ROWS[1:] if quick else NET_ROWS),
            times=times,
            steps=steps,
            seconds=seconds,
        )
        try:
            found = network.measure(self._path, plan, self._cores, self._add)
        except Unavailable as error:
            self.outcome.notes.append(f"no hosts that are namespaces: {error}")
            return
        shares += found.local
        self.outcome.ready += network.rows(found)
        self.outcome.notes += network.notes(found)

    def _memory(self) -> None:
        number, seconds = FOOTPRINT[self._options.quick]
        found = pair.footprint(self._path, number, 64, seconds)
        self.outcome.ready += [*pair.footprint_rows(found), marks.footprint_row(found)]
        self.outcome.notes += pair.footprint_notes(found)

    def _guard(self, what: str, part: Callable[[], None]) -> None:
        try:
            part()
        except RankError as error:
            self.outcome.failed[what] = str(error)

    def _late(self, seconds: float) -> bool:
        """Has a quick run taken so long?"""
        return self._options.quick and time.monotonic() > self._start + seconds

    def _local(self) -> None:
        """Table by table, and in each all operations on it."""
        tables: dict[tuple[int, int], list[str]] = {}
        for op in ops_of(self._options):
            for row in rows_of(self._options, op) if op in LOCAL else ():
                number = LOCAL[op].number_of(row, self._large)
                tables.setdefault((number, row), []).append(op)
        if not tables:
            return
        rank = Rank(COMMAND)
        try:
            rank.ask("pin", cores=list(self._cores[:1]))
            rank.ask("open", path=self._path)
            # The smallest first: a quick run comes as far as it can.
            for (number, row), ops in sorted(tables.items(), key=lambda t: t[0][0] * t[0][1]):
                if not self._late(QUICK_LOCAL_SECONDS):
                    self._table(rank, number, row, ops)
        finally:
            rank.stop()

    def _table(self, rank: Rank, number: int, row: int, ops: list[str]) -> None:
        rank.ask("table", number=number, row=row)
        if any(LOCAL[op].python for op in ops):
            rank.ask("python_store")
        for turn in range(self._rounds):
            for op in ops:
                for system in systems_of(self._options, op):
                    self._block(rank, op, row, system, turn)

    def _block(self, rank: Rank, op: str, row: int, system: str, turn: int) -> None:
        what = LOCAL[op]
        words = {"system": system, "push": what.push, "keys": what.keys, "ms": self._ms}
        if what.awaited:
            words["awaited"] = True
        found = rank.ask("python_block" if what.python else "block", **words)
        self._add(Block(case_of(op, row), system, turn, "any", found["us"]))


def _total(options: Options) -> int:
    rounds = options.rounds or (5 if options.quick else 9)
    local = [op for op in ops_of(options) if op in LOCAL]
    return rounds * sum(len(rows_of(options, op)) * len(systems_of(options, op)) for op in local)


def measure(options: Options) -> Outcome:
    """A whole run."""
    if importlib.util.find_spec("torch") is None:
        return Outcome(missing=dict.fromkeys(("weft", "torch"), "torch is not installed"))
    tools = find_compiler()
    if tools.compiler is None:
        return Outcome(missing={"weft": tools.missing or "no C compiler found"})
    try:
        library = options.library or find_library()
        path = str(build(DRIVER, tools.compiler, library))
    except BuildError as error:
        return Outcome(missing={"weft": str(error)})
    with progress(_total(options)) as advance:
        runner = Runner(options, path, advance)
        with interruptible(runner.outcome):
            runner.run()
    return runner.outcome
