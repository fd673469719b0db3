# SPDX-License-Identifier: Apache-2.0
"""`weft bench torch`: weft against gloo through torch.distributed, on the same tensors.

weft takes part in two ways: with tensors in ordinary memory, and in the arena ("weft-shared").
Beside them there are a backend that does nothing, which shows what torch itself costs, the C
driver, which shows what the library costs without torch, and the bound: the bytes that must move
over the copy bandwidth of all cores that take part.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..collectives.systems import LIMIT, WEFT
from ..in_turn import CheckedInTurn
from ..results import Case
from ..runner import Options, Outcome, Setup, cores_here, run_setups
from ..systems import FREE_GLOO_LINE, GLOO_LINE, WEFT_LINE, Line, System, python_family
from .operations import MOVING, NAMES_IN_C, OPERATIONS, block_bytes

_MIB = 1 << 20
SMALL = _MIB  # up to here torch's own share of the time is of interest

_WEFT, _GLOO, _NOOP = (
    python_family(f"torch-{backend}", "torch.rank", backend) for backend in ("weft", "gloo", "noop")
)
# The two floors are for the all_reduce of f32, and torch's own for sizes where it shows.
SYSTEMS = (
    System("weft", _WEFT, about='init_process_group("weft")', line=WEFT_LINE),
    # For what DDP, FSDP2 and movement gain by it; small tensors are in ordinary memory anyway.
    System(
        "weft-shared",
        _WEFT,
        env={"BENCH_SHARE": "1"},
        about="the same, tensors in the arena",
        line=Line("weft, shared tensors", "#d55e00", "s", "--", linewidth=2.0, zorder=3),
    ),
    System("gloo", _GLOO, about='init_process_group("gloo")', line=GLOO_LINE),
    # On one core its threads have to take turns; on a busy machine this serves them better.
    System(
        "gloo-free",
        _GLOO,
        env={"BENCH_FREE": "1"},
        about="the same, not pinned",
        line=FREE_GLOO_LINE,
    ),
    System(
        "noop",
        _NOOP,
        about="torch's own backend that does nothing",
        only_op="all_reduce",
        at_most=SMALL,
        checked=False,
        line=Line("a backend that does nothing", "black", linestyle=":"),
    ),
    System(
        "core",
        WEFT,
        about="the same call from C",
        only_op="all_reduce",
        asked="allreduce",
        line=Line("weft from C", "#e69f00", "v"),
    ),
    System(
        "limit",
        LIMIT,
        about="bytes that must move over the cores' copy bandwidth",
        lacks=frozenset(op for op in OPERATIONS if op not in MOVING),
        checked=False,
        line=Line("bound", "black", linestyle="--", linewidth=1.2),
    ),
)
NAMES = tuple(system.name for system in SYSTEMS)
GLOOS = ("gloo", "gloo-free")
# T4c: a crowd that has cores to spare.
MANY_RANKS, MANY_CORES = 8, 16
HEADS = 8  # of the transformer in `models`
MANY_CASES = (("all_reduce", 4), ("all_reduce", 64 << 10))


def _sizes(op: str, options: Options) -> tuple[int, ...]:
    operation = OPERATIONS[op]
    if options.sizes is not None and operation.sizes != (0,):
        return options.sizes
    return operation.quick_sizes if options.quick else operation.sizes


def _setup(ranks: int, cores: Sequence[int], options: Options, wanted: Sequence[tuple]) -> Setup:
    some = tuple(cores[:ranks])
    cases = tuple(
        Case(op, size, ranks, len(some)) for op, size in wanted if can_be_divided(op, ranks)
    )
    chosen = tuple(system for system in SYSTEMS if options.wants(system.name))
    return Setup(ranks, some, cases, chosen)


def plan(options: Options, cores: Sequence[int]) -> list[Setup]:
    """The setups of a run. Without --ranks: a pair, and 8 ranks where there are 16 cores."""
    ops = options.ops or tuple(OPERATIONS)
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
    """Does `system` have something to say about this case?"""
    return system.has(case.op) and case.bytes <= system.at_most


class TorchRunner(CheckedInTurn):
    """The same rounds with other systems, names and floors."""

    operations = OPERATIONS

    def _words(self, system: System, case: Case) -> str:
        if system.family is not LIMIT:
            return f"{system.asked or case.op} {case.bytes} {system.pages}"
        block = block_bytes(case.op, case.bytes, case.ranks)
        return f"{NAMES_IN_C[case.op]} {block} {system.pages}"

    def _takes(self, system: System, case: Case) -> bool:
        return takes_case(system, case)


def measure(options: Options) -> Outcome:
    """A whole run. To be called from the main thread."""
    return run_setups(TorchRunner(options, SYSTEMS), plan(options, cores_here(options.cores)))
