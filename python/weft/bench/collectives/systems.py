# SPDX-License-Identifier: Apache-2.0
"""Who takes part in `weft bench collectives`: weft, its peers with their settings, the limit."""

from __future__ import annotations

from pathlib import Path

from ..build import COMMON, MEASURE, PAGE, Driver
from ..runner import Options
from ..systems import (
    GLOO_LINE,
    MPICH,
    OPENMPI,
    WEFT_LINE,
    Family,
    Line,
    System,
    find_compiler,
    find_torch,
)

# Keep malloc's memory mapped and in huge pages, so that the temporary buffers of an MPI are not
# faulted in again at every call.
_KEEP_MEMORY = {
    "GLIBC_TUNABLES": ":".join(
        (
            f"glibc.malloc.mmap_threshold={1 << 30}",
            f"glibc.malloc.trim_threshold={4 << 30}",
            f"glibc.malloc.top_pad={64 << 20}",
            "glibc.malloc.hugetlb=1",
        )
    )
}


def _eager(limit: int) -> dict[str, str]:
    """Open MPI's shared-memory eager limit; the transport is vader up to 4.x and sm from 5.0."""
    return {
        "OMPI_MCA_btl_vader_eager_limit": str(limit),
        "OMPI_MCA_btl_sm_eager_limit": str(limit),
    }


WEFT = Family("weft", Driver("weft", (*MEASURE, "backend_weft.c"), libweft=True), find_compiler)
_OPENMPI, _MPICH = (
    Family(mpi.name, Driver(mpi.name, (*MEASURE, "backend_mpi.c")), mpi.find)
    for mpi in (OPENMPI, MPICH)
)
_GLOO = Family(
    "gloo",
    PAGE,
    find_torch,
    # A script, so that it imports nothing but torch.
    (str(Path(__file__).parent / "gloo_rank.py"),),
)
LIMIT = Family(
    "limit",
    Driver("limit", (*COMMON, "limit.c", "rate.c"), ("-O3", "-march=native")),
    find_compiler,
)

SYSTEMS = (
    System("weft", WEFT, about="as installed", in_crowd=True, line=WEFT_LINE),
    System("openmpi", _OPENMPI, about="as installed", line=Line("Open MPI", "#0072b2", "s")),
    System(
        "mpich",
        _MPICH,
        about="as installed",
        in_crowd=True,
        line=Line("MPICH", "#009e73", "^"),
    ),
    System(
        "gloo",
        _GLOO,
        about="through torch.distributed",
        lacks=frozenset({"scan"}),
        in_quick=frozenset({"allreduce", "barrier"}),
        line=GLOO_LINE,
    ),
    System(
        "limit",
        LIMIT,
        about="line hand-over, reading a peer's lines, updating memory",
        lacks=frozenset({"cycle"}),
        line=Line("bound", "black", linestyle="--", linewidth=1.2),
    ),
    System(
        "weft-arena",
        WEFT,
        "arena",
        "arena",
        about="buffers from weft_alloc, which peers read where they lie",
        lacks=frozenset({"barrier"}),
        in_crowd=True,
        runs_in="weft",
        line=Line("weft, buffers in the arena", "#d55e00", "s", "--", linewidth=2.0, zorder=3),
    ),
    # weft needs no settings of its own for huge pages.
    System(
        "weft-thp",
        WEFT,
        "best",
        "thp",
        about="buffers in huge pages",
        for_large=True,
        runs_in="weft",
    ),
    System(
        "openmpi-keep",
        _OPENMPI,
        "best",
        "thp",
        _KEEP_MEMORY,
        "malloc keeps its memory",
        for_large=True,
    ),
    System(
        "openmpi-eager128k",
        _OPENMPI,
        "best",
        "thp",
        _KEEP_MEMORY | _eager(128 << 10),
        "and eager messages up to 128 KiB",
    ),
    System(
        "openmpi-alg6",
        _OPENMPI,
        "best",
        "thp",
        _KEEP_MEMORY
        | _eager(32 << 10)
        | {
            "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
            "OMPI_MCA_coll_tuned_allreduce_algorithm": "6",
        },
        "and eager up to 32 KiB, Rabenseifner's algorithm",
        only_op="allreduce",
    ),
    System(
        "mpich-keep",
        _MPICH,
        "best",
        "thp",
        _KEEP_MEMORY,
        "malloc keeps its memory",
        for_large=True,
    ),
    System(
        "mpich-eager",
        _MPICH,
        "best",
        "thp",
        _KEEP_MEMORY | {"UCX_RNDV_THRESH": "inf"},
        "and no rendezvous",
    ),
    System(
        "mpich-posix",
        _MPICH,
        "best",
        "thp",
        _KEEP_MEMORY | {"UCX_TLS": "posix,self"},
        "and POSIX shared memory alone",
    ),
    System(
        "openmpi-yield",
        _OPENMPI,
        "yield",
        "4k",
        {"OMPI_MCA_mpi_yield_when_idle": "1"},
        "mpi_yield_when_idle=1",
        in_crowd=True,
        line=Line("Open MPI, yielding", "#0072b2", "s"),
    ),
)
NAMES = tuple(dict.fromkeys(system.family.name for system in SYSTEMS))
_PEERS = [system for system in SYSTEMS if system.family is not WEFT and system.name != "limit"]
INSTALLED = tuple(system.name for system in _PEERS if system.kind != "best")
TUNED = tuple(system.name for system in _PEERS if system.kind == "best")


def taking_part(options: Options, ranks: int, cores: int) -> list[System]:
    """The systems of a run with `ranks` ranks on `cores` cores.

    When ranks share cores, Open MPI has to yield, the settings that keep memory say nothing, and
    gloo's event threads multiply the ranks once more. The limit is that of ranks with cores.
    """
    crowded = ranks > cores
    return [
        system
        for system in SYSTEMS
        if (system.in_crowd if crowded else system.kind != "yield")
        and options.wants(system.family.name)
    ]
