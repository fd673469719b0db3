# SPDX-License-Identifier: Apache-2.0
"""`weft bench mpi`: communication with gradients, against mpi4py and torch.distributed.nn on gloo.

Two floors take part: torch's own `clone`, a node of the
autograd graph in C++ that communicates nothing, and weft's own allreduce without torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..collectives.systems import WEFT
from ..in_turn import CheckedInTurn
from ..results import Case
from ..runner import Options, Outcome, Setup, cores_here, run_setups
from ..systems import System, find_mpi4py, python_family

_MIB = 1 << 20
RANKS = 2


_WEFT = python_family("mpi-weft", "mpi.rank", "weft")
_GLOO = python_family("mpi-gloo", "mpi.rank", "gloo")
_MPI4PY = python_family("mpi4py", "mpi.rank", "mpi4py", find=find_mpi4py)

# What those lack that have the Allreduce alone.
_MOVES = frozenset({"alltoall", "alltoall_grad", "ring", "ring_grad"})

# Those that run in weft's ranks have the same process and the same memory behind it.
SYSTEMS = (
    System("weft", _WEFT, about="weft.mpi"),
    System(
        "mpi4py",
        _MPI4PY,
        about="kept buffers, without gradients",
        lacks=frozenset({"alltoall_grad", "ring_grad"}),
    ),
    System("gloo", _GLOO, about="torch.distributed.nn.functional", lacks=_MOVES),
    # On one core its threads have to take turns; on a busy machine this serves them better.
    System(
        "gloo-free",
        _GLOO,
        env={"BENCH_FREE": "1"},
        about="the same, not pinned",
        lacks=_MOVES,
    ),
    System("clone", _WEFT, about="torch's node that only clones", lacks=_MOVES, runs_in="weft"),
    # What forward and backward have to touch: two sources and two results.
    System(
        "kept",
        _WEFT,
        about="two of the core's allreduces on four kept buffers",
        only_op="forward_backward",
        runs_in="weft",
    ),
    System(
        "core",
        WEFT,
        about="weft's allreduce from C, in place on one kept buffer",
        lacks=_MOVES,
        asked="allreduce",
    ),
)
NAMES = tuple(system.name for system in SYSTEMS)
GLOOS = ("gloo", "gloo-free")

# The bytes of a rank's tensor.
OPERATIONS: dict[str, tuple[int, ...]] = {
    "forward": (4, 4 * _MIB, 64 * _MIB),
    "forward_backward": (4, 4 * _MIB, 64 * _MIB),
    "alltoall": (8,),
    "alltoall_grad": (8,),
    "ring": (4,),
    "ring_grad": (4,),
}
ABOUT = {
    "forward": "Allreduce, recorded",
    "forward_backward": "Allreduce and y.backward(g); two Allreduces of mpi4py and of the core",
    "alltoall": "Alltoall of 2 floats, not recorded",
    "alltoall_grad": "Alltoall of 2 floats, recorded",
    "ring": "Isend, Irecv, Wait, Wait, not recorded",
    "ring_grad": "Isend, Irecv, Wait, Wait, recorded",
}
CALLS_OF_CORE = {"forward": 1, "forward_backward": 2}


def takes_case(system: System, case: Case, quick: bool) -> bool:
    """A quick run leaves to the full one what no mark needs."""
    if not system.has(case.op):
        return False
    if not quick or case.op not in CALLS_OF_CORE:
        return True
    if case.bytes > 4:
        return case.op == "forward_backward" and system.name in ("weft", "kept", "core")
    return system.name not in ("mpi4py", "kept")


def plan(options: Options, cores: Sequence[int]) -> list[Setup]:
    """One setup: two ranks."""
    setups = []
    for ranks in options.ranks or (RANKS,):
        some = tuple(cores[:ranks])
        cases = tuple(
            Case(op, size, ranks, len(some))
            for op in options.ops or tuple(OPERATIONS)
            for size in _sizes(op, options)
        )
        systems = tuple(system for system in SYSTEMS if options.wants(system.name))
        setups.append(Setup(ranks, some, cases, systems))
    return setups


def _sizes(op: str, options: Options) -> tuple[int, ...]:
    if options.sizes is not None and op in CALLS_OF_CORE:
        return options.sizes
    return OPERATIONS[op]


class MpiRunner(CheckedInTurn):
    """The same rounds with other systems and other names."""

    def _words(self, system: System, case: Case) -> str:
        op = system.asked or case.op
        op = f"{system.name}_{op}" if system.runs_in else op
        return f"{op} {case.bytes} {system.pages}"

    def _takes(self, system: System, case: Case) -> bool:
        return takes_case(system, case, self._options.quick)


def measure(options: Options) -> Outcome:
    """A whole run. To be called from the main thread."""
    return run_setups(MpiRunner(options, SYSTEMS), plan(options, cores_here(options.cores)))
