# SPDX-License-Identifier: Apache-2.0
"""`weft bench torch`: weft against gloo through torch.distributed, on the same tensors.

The rounds are those of `collectives`. Beside the two there are a backend that does nothing, which
shows what torch itself costs, and the C driver, which shows what the library costs without torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from .build import BuildError, build
from .collectives import Options, Outcome, Runner, Setup, cores_here, run_setups
from .job import Job, Program
from .marks import MIN_PAIRS
from .operations import TORCH_OPERATIONS
from .results import Case
from .systems import System, find_tools

_MIB = 1 << 20
LARGE = 16 * _MIB
SMALL = _MIB  # up to here torch's own share of the time is of interest

SYSTEMS = (
    System("weft", "torch-weft", about='init_process_group("weft")'),
    System("gloo", "torch-gloo", about='init_process_group("gloo")'),
    # On one core its threads have to take turns; on a busy machine this serves them better.
    System("gloo-free", "torch-gloo", env={"BENCH_FREE": "1"}, about="the same, not pinned"),
    System("noop", "torch-noop", about="torch's own backend that does nothing"),
    System("core", "weft", about="the same call from C"),
)
NAMES = tuple(system.name for system in SYSTEMS)
GLOOS = ("gloo", "gloo-free")
# T4c: a crowd that has cores to spare.
MANY_RANKS, MANY_CORES = 8, 16
HEADS = 8  # of the transformer in torch_models
MANY_CASES = (("all_reduce", 4), ("all_reduce", 64 << 10))


def _sizes(op: str, options: Options) -> tuple[int, ...]:
    operation = TORCH_OPERATIONS[op]
    if options.sizes is not None and operation.sizes != (0,):
        return options.sizes
    return operation.quick_sizes if options.quick else operation.sizes


def _setup(ranks: int, cores: Sequence[int], options: Options, wanted: Sequence[tuple]) -> Setup:
    some = tuple(cores[:ranks])
    cases = tuple(
        Case(op, size, ranks, len(some)) for op, size in wanted if can_be_divided(op, ranks)
    )
    chosen = tuple(system for system in SYSTEMS if system.name in options.families)
    return Setup(ranks, some, cases, chosen)


def plan(options: Options, cores: Sequence[int]) -> list[Setup]:
    """The setups of a run. Without --ranks: a pair, and 8 ranks where there are 16 cores."""
    ops = options.ops or tuple(TORCH_OPERATIONS)
    everything = [(op, size) for op in ops for size in _sizes(op, options)]
    setups = [_setup(ranks, cores, options, everything) for ranks in options.ranks or (2,)]
    if options.ranks is None and len(cores) >= MANY_CORES:
        some = [case for case in MANY_CASES if case[0] in ops]
        setups.append(_setup(MANY_RANKS, cores, options, some))
    return setups


def can_be_divided(op: str, ranks: int) -> bool:
    """A rank has whole heads of the transformer."""
    return not op.startswith("llm") or HEADS % ranks == 0


def takes_case(system: System, case: Case) -> bool:
    """The two floors are for the all_reduce of f32, and torch's own for sizes where it shows."""
    if system.name == "noop":
        return case.op == "all_reduce" and case.bytes <= SMALL
    return system.name != "core" or case.op == "all_reduce"


def takes_turn(case: Case, turn: int) -> bool:
    """Large tensors take seconds: they sit out most of the later rounds."""
    return case.bytes < LARGE or turn < MIN_PAIRS or turn % 3 == 0


class TorchRunner(Runner):
    """The same rounds with other systems, names and floors."""

    def __init__(self, options: Options):
        super().__init__(options)
        self._checked: set[tuple[System, Case]] = set()

    def prepare(self) -> None:
        """The ranks are Python; only the page they meet on and the C driver are compiled."""
        for system in SYSTEMS:
            if system.name not in self._options.families:
                continue
            tools = find_tools(system.family)
            if tools.missing is not None:
                self.outcome.missing[system.name] = tools.missing
                continue
            kind = "gloo" if system.imports_torch else system.family
            try:
                path = build(kind, tools, self._options.library)
            except BuildError as error:
                self.outcome.missing[system.name] = str(error)
                continue
            self._programs[system.family] = Program(tools, path)

    def _words(self, system: System, case: Case) -> str:
        op = "allreduce" if system.name == "core" else case.op
        return f"{op} {case.bytes} {system.pages}"

    def _takes(self, system: System, case: Case) -> bool:
        return takes_case(system, case)

    def _takes_turn(self, case: Case, turn: int) -> bool:
        return takes_turn(case, turn)

    def _check(
        self, setup: Setup, systems: list[System], jobs: dict[str, Job], cases: list[Case]
    ) -> None:
        """Each case is checked when its first turn comes: a quick run cannot wait for all."""
        self._checked.clear()

    def _block(self, system: System, jobs: dict[str, Job], case: Case, turn: int) -> None:
        """Nothing is timed whose result is wrong; what does nothing has no result."""
        if system.name != "noop" and (system, case) not in self._checked:
            self._checked.add((system, case))
            self._ask(jobs, system, "check", case)
        super()._block(system, jobs, case, turn)


def measure(options: Options) -> Outcome:
    """A whole run. To be called from the main thread."""
    return run_setups(TorchRunner(options), plan(options, cores_here(options.cores)))
