# SPDX-License-Identifier: Apache-2.0
"""The rounds of `weft bench gemm` and `weft bench conv2d`.

Every system is a process of its own, because a BLAS library is chosen when a process starts. All of
them are started once for each number of threads; then they take turns, case by case and round by
round, while the others sleep.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ...blas import libraries
from ..build import BuildError, build
from ..piped import Rank, RankError
from ..results import Block, Case, case_name
from ..runner import Options, Outcome, cores_here, interruptible, progress
from ..systems import find_compiler
from .systems import DRIVER, LIMIT, TORCH, found, names, quick_names
from .work import Plan

QUICK_SECONDS = 40.0  # nothing is begun after that
START_SECONDS = 60.0
# A call that would take longer is left out: the reference BLAS needs minutes for large products.
LONGEST = {True: 0.25, False: 2.0}
TELLING = 1e7  # flops of a call from which on it says something about larger ones
BUSY = 1.0  # from this load on others are at work


class Runner:
    """Runs what was asked for and collects the blocks."""

    def __init__(self, plan: Plan, options: Options, advance: Callable[[str], None]):
        self.outcome = Outcome()
        self._plan = plan
        self._options = options
        self._advance = advance
        self._cores = cores_here(options.cores)
        self._rounds = options.rounds or (4 if options.quick else 9)
        self._ms = options.block_ms or (12.0 if options.quick else 40.0)
        self._end = time.monotonic() + (QUICK_SECONDS if options.quick else float("inf"))
        self._late = False
        self._left_out: dict[str, list[str]] = {}

    def run(self) -> None:
        load = os.getloadavg()[0]
        if load > BUSY:
            note = f"the load was {load:.1f} at the start: were others at work, no figure holds"
            self.outcome.notes.append(note)
        for threads in threads_of(len(self._cores)):
            if time.monotonic() < self._end:
                self._with_threads(threads)
        for name, cases in self._left_out.items():
            seconds = LONGEST[self._options.quick]
            note = f"{name} left out where a call takes more than {seconds:g} s: "
            self.outcome.notes.append(note + ", ".join(dict.fromkeys(cases)))
        if self._late:
            self.outcome.notes.append("the time of a quick run was up before all was measured")

    def _with_threads(self, threads: int) -> None:
        with ExitStack() as stack:
            ranks = self._started(stack, threads)
            speeds: dict[str, float] = {}
            for case in self._plan.cases(self._options, threads):
                if time.monotonic() > self._end:
                    self._late = True
                    return
                self._case(ranks, case, speeds)

    def _started(self, stack: ExitStack, threads: int) -> dict[str, Rank]:
        """The processes of all systems that can start. They import torch at the same time."""
        ranks: dict[str, Rank] = {}
        for name in systems_of(self._options):
            if name in self.outcome.missing or name in self.outcome.failed:
                continue
            words: dict = {"cores": list(self._cores[:threads]), "threads": threads}
            try:
                ranks[name] = self._start(name, threads, words)
            except (BuildError, libraries.Refused) as error:
                self.outcome.missing[name] = str(error)
                continue
            stack.callback(ranks[name].stop)
            ranks[name].tell("start", **words)
        for name, rank in list(ranks.items()):
            try:
                self._look(name, rank.hear(START_SECONDS))
            except RankError as error:
                self.outcome.missing[name] = str(error)
                del ranks[name]
        return ranks

    def _start(self, name: str, threads: int, words: dict) -> Rank:
        python = [sys.executable, "-P", "-m"]
        if name == LIMIT:
            words["path"] = str(_driver())
            return Rank([*python, "weft.bench.dense.limit"])
        env = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        if name != TORCH:
            env |= libraries.environment(found()[name], threads)
        return Rank([*python, "weft.bench.dense.rank"], env)

    def _look(self, name: str, said: dict) -> None:
        """A process that does not call the library it was started with takes no part."""
        if name == LIMIT:
            self._tell_system(name, "multiply-adds from registers, operands read once", {})
            return
        own = said["sgemm"] in (None, said["own"])
        about = {"torch": said["torch"]}
        if name == TORCH:
            where = "inside libtorch_cpu.so" if own else f"in {said['sgemm']}"
            self._tell_system(name, f"torch {said['torch']}, sgemm_ {where}", about)
            return
        library = found()[name]
        if own or library.file not in said["mapped"]:
            raise RankError("PyTorch still calls its own sgemm_")
        about |= {"library": library.file, "version": library.version or ""}
        self._tell_system(name, " ".join(filter(None, (library.version, library.file))), about)

    def _tell_system(self, name: str, text: str, about: dict) -> None:
        row = {"bench": self._plan.name, "case": "system", "system": name, "about": text, **about}
        if row not in self.outcome.ready:
            self.outcome.ready.append(row)

    def _case(self, ranks: dict[str, Rank], case: Case, speeds: dict[str, float]) -> None:
        """All rounds of one case: operands are made once for it."""
        paths = {name: self._prepare(ranks, name, case, speeds) for name in list(ranks)}
        for turn in range(self._rounds):
            for name, path in paths.items():
                if path is None or name not in ranks:
                    continue
                try:
                    us = ranks[name].ask("block", ms=self._ms)["us"]
                except RankError as error:
                    self._drop(ranks, name, case, error)
                    continue
                self.outcome.blocks.append(Block(case, name, turn, "any", us, path))
                flops = self._plan.work_of(case).flops
                if name != LIMIT and flops >= TELLING:
                    speeds[name] = max(flops / us, speeds.get(name, 0.0))
                self._advance(f"{case.op}, {case.cores} threads")

    def _prepare(
        self, ranks: dict[str, Rank], name: str, case: Case, speeds: dict[str, float]
    ) -> str | None:
        """Make and check the case's operands; the way it takes, or None to leave it out."""
        work = self._plan.work_of(case)
        chosen = self._plan.operations[case.op].systems
        if self._options.quick and chosen is not None and name not in chosen:
            return None
        # By the best rate that it has had so far.
        if work.flops / speeds.get(name, float("inf")) > LONGEST[self._options.quick] * 1e6:
            self._left_out.setdefault(name, []).append(case_name(case))
            return None
        words: dict = {"dtype": work.dtype}
        if name == LIMIT:
            words |= {"flops": work.flops, "bytes": work.bytes}
        else:
            words |= {"kind": work.kind, "shape": work.shape, "onednn": work.onednn}
        try:
            answer = ranks[name].ask("case", **words)
            if answer["wrong"]:
                raise RankError(f"wrong result: {answer['wrong']}")
        except RankError as error:
            self._drop(ranks, name, case, error)
            return None
        return answer["path"]

    def _drop(self, ranks: dict[str, Rank], name: str, case: Case, error: RankError) -> None:
        self.outcome.failed[name] = f"{case_name(case)}: {error}"
        ranks.pop(name).stop()


def _driver() -> Path:
    tools = find_compiler()
    if tools.compiler is None:
        raise BuildError(tools.missing or "no C compiler found")
    return build(DRIVER, tools.compiler)


def threads_of(cores: int) -> tuple[int, ...]:
    """One thread for each core, and one alone."""
    return (cores,) if cores == 1 else (cores, 1)


def systems_of(options: Options) -> list[str]:
    """Those that were asked for. A quick run that was asked for all has the best of each kind."""
    everyone = options.families is None or set(names()) <= options.families
    return [
        name
        for name in (quick_names() if options.quick and everyone else names())
        if options.wants(name)
    ]


def _total(plan: Plan, options: Options) -> int:
    rounds = options.rounds or (4 if options.quick else 9)
    cores = len(cores_here(options.cores))
    cases = sum(len(plan.cases(options, threads)) for threads in threads_of(cores))
    return rounds * cases * len(systems_of(options))


def measure(plan: Plan, options: Options) -> Outcome:
    """A whole run."""
    if importlib.util.find_spec("torch") is None:
        return Outcome(missing={TORCH: "torch is not installed"})
    with progress(_total(plan, options)) as advance:
        runner = Runner(plan, options, advance)
        with interruptible(runner.outcome):
            runner.run()
    return runner.outcome
