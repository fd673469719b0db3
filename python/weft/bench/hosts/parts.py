# SPDX-License-Identifier: Apache-2.0
"""What is measured of weft alone: joining a job, its connections, and rows of another host."""

from __future__ import annotations

import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..bed import Bed
from ..results import Block, Case
from ..runner import Options, Outcome

START = "start"
ROWS, ONE_ROW, IDLE = "rows", "one_row", "idle"
OPERATIONS = (START, ROWS, ONE_ROW, IDLE)
SYSTEMS = {
    "python": "64 processes that join no job",
    "messages": "messages of weft, for as many bytes or there and back",
}
START_HOSTS, START_EACH = 8, 8
ROW, IDS = 512, 4096
IDLE_GOAL = 0.01
# Rounds of rows and seconds of doing nothing, in full runs and in quick ones.
_ROW_ROUNDS = {False: (9, 5.0), True: (5, 1.0)}
_STARTS = 3
_PATIENCE = 120.0
_HERE = Path(__file__).parent


class PartError(Exception):
    """A process failed; the text is the last that it said."""


def start_case(cores: int) -> Case:
    return Case(START, 0, START_HOSTS * START_EACH, cores)


def rows_case(cores: int) -> Case:
    return Case(ROWS, ROW * IDS, 2, cores)


def one_row_case(cores: int) -> Case:
    return Case(ONE_ROW, ROW, 2, cores)


def _telling(text: str) -> str:
    """The line that says what failed: some libraries print where, at length, below it."""
    lines = [line for line in text.splitlines() if any(map(str.isalpha, line))]
    failures = [line for line in lines if re.search("error|assert|fail", line, re.IGNORECASE)]
    return next(iter([*failures, *lines[-1:]]), "").strip()


def _said(child: subprocess.Popen, seconds: float) -> dict:
    """The last line that a rank printed; the last that it complained of if it failed."""
    try:
        out, problem = child.communicate(timeout=max(seconds, 0.1))
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise PartError(f"did not end within {_PATIENCE:.0f} s") from None
    if child.returncode != 0:
        raise PartError(_telling(problem) or f"ended with {child.returncode}")
    return json.loads(out.splitlines()[-1])


def _ranks(bed: Bed, program: str, *words: object, each: int = 1) -> list[dict]:
    """Run a program of this folder on all hosts; what each rank says at its end."""
    with tempfile.TemporaryDirectory(prefix="boot-", dir=bed.shared) as folder:
        command = [sys.executable, "-P", str(_HERE / program), *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        children = bed.launch(command, ranks=each, env={"WEFT_BOOT_DIR": folder}, **pipes)
        end = time.monotonic() + _PATIENCE
        try:
            return [_said(child, end - time.monotonic()) for child in children]
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
                    child.communicate()


@dataclass(frozen=True)
class Counts:
    """Of a job: operations on its table, and the connections of the rank that has most.

    `few` and `many` are operations of the rank in the middle, of jobs of 8 and of 64 ranks. `quiet`
    is `ring` without the lowest rank of each host, which has heartbeats to send.
    """

    few: float
    many: float
    ring: int
    quiet: int
    collective: int


def _start(bed: Bed, rounds: int, cores: int) -> Iterator[Block]:
    """Processes that join a job and leave it, and those that do not, in turns."""
    for turn in range(rounds):
        for system in ("python", "weft"):
            begin = time.monotonic()
            _ranks(bed, "start_rank.py", system, each=START_EACH)
            us = (time.monotonic() - begin) * 1e6
            yield Block(start_case(cores), system, turn, "any", us)


def _count(bed: Bed) -> Counts:
    few, many = (
        [found["operations"] for found in _ranks(bed, "start_rank.py", "table", each=each)]
        for each in (1, START_EACH)
    )
    found = _ranks(bed, "start_rank.py", "endpoints", each=START_EACH)
    return Counts(
        few=statistics.median(few),
        many=statistics.median(many),
        ring=max(each["ring"] for each in found),
        quiet=max(each["ring"] for each in found if each["rank"] % START_EACH != 0),
        collective=max(each["collective"] for each in found),
    )


def _rows(bed: Bed, rounds: int, seconds: float, cores: int) -> tuple[list[Block], float]:
    """Blocks of each round, and the share of a core that an idle rank takes."""
    found = _ranks(bed, "rows_rank.py", rounds, ROW, IDS, seconds)
    cases = {ROWS: rows_case(cores), ONE_ROW: one_row_case(cores)}
    blocks = [
        Block(cases[op], system, turn, "any", us)
        for turn, times in enumerate(found[0]["turns"])
        for (op, system), us in zip(_TIMED, times, strict=True)
    ]
    return blocks, max(each["idle"] for each in found)


_TIMED = ((ROWS, "messages"), (ROWS, "weft"), (ONE_ROW, "messages"), (ONE_ROW, "weft"))


def measure_rows(options: Options, cores: int, outcome: Outcome) -> None:
    """Add what is said of rows on two hosts, and of those that do nothing."""
    if not options.wants("weft") or not {ROWS, ONE_ROW, IDLE} & {*(options.ops or OPERATIONS)}:
        return
    rounds, seconds = _ROW_ROUNDS[options.quick]
    idle = None
    try:
        with Bed(2) as bed:
            blocks, idle = _rows(bed, options.rounds or rounds, seconds, cores)
            outcome.blocks += blocks
    except PartError as error:
        outcome.failed["weft, rows of 2 hosts"] = f"weft cannot run here: {error}"
    outcome.ready += _told([Fact("idle", "share of a core, idle", 2, idle, IDLE_GOAL)])


def measure_start(options: Options, cores: int, outcome: Outcome) -> None:
    """Add what is said of joining a job of many ranks, for which a quick run has no time."""
    if not options.wants("weft") or START not in (options.ops or OPERATIONS):
        return
    counts = None
    if options.quick and options.ops is None:
        outcome.notes.append("64 ranks on 8 hosts: left to a full run")
    else:
        try:
            with Bed(START_HOSTS) as bed:
                outcome.blocks += _start(bed, options.rounds or _STARTS, cores)
                counts = _count(bed)
        except PartError as error:
            outcome.failed["weft, start on 8 hosts"] = f"weft cannot run here: {error}"
    outcome.ready += _told(_facts(counts))


@dataclass(frozen=True)
class Fact:
    """A number that is no time, and what it may be at most; None: not measured."""

    mark: str
    case: str
    ranks: int
    value: float | None
    goal: float


def _facts(counts: Counts | None) -> list[Fact]:
    ranks = START_HOSTS * START_EACH
    growth = None if counts is None else counts.many / counts.few
    ring, quiet, collective = (
        (None, None, None) if counts is None else (counts.ring, counts.quiet, counts.collective)
    )
    most = 2 * math.log2(START_HOSTS) + 2
    return [
        Fact("H3 counts", "table operations a rank, 64 ranks / 8", ranks, growth, 1.0),
        Fact("H3 counts", "connections of a ring", ranks, ring, 4.0),
        Fact("H3 counts", "connections of a ring, not the lowest of a host", ranks, quiet, 4.0),
        Fact("H3 counts", "connections of a collective", ranks, collective, most),
    ]


def _told(facts: Sequence[Fact]) -> list[dict]:
    """The row of each, and the mark with the one that is furthest from its goal."""
    worst = max(facts, key=lambda f: -1.0 if f.value is None else f.value / f.goal)
    return [*(_value(fact) for fact in facts if fact.value is not None), _mark(worst)]


def _value(fact: Fact) -> dict:
    values = dict.fromkeys(("value", "low", "high"), fact.value)
    who = {"bench": "hosts", "case": fact.case, "system": "weft", "ranks": fact.ranks}
    return {**who, "bytes": 0, "unit": "", **values}


def _mark(fact: Fact) -> dict:
    return {
        "mark": fact.mark,
        "ratio": fact.value,
        "goal": fact.goal,
        "direction": "<=",
        "met": None if fact.value is None else fact.value <= fact.goal,
        "placement": "any",
        "case": fact.case,
        "ranks": fact.ranks,
        "against": "nothing",
        "reason": "not measured" if fact.value is None else "",
    }
