# SPDX-License-Identifier: Apache-2.0
"""Who takes part in `weft bench collectives`: weft, its peers with their settings, the limit."""

from __future__ import annotations

from ..systems import System

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


SYSTEMS = (
    System("weft", "weft", about="as installed"),
    System("openmpi", "openmpi", about="as installed"),
    System("mpich", "mpich", about="as installed"),
    System("gloo", "gloo", about="through torch.distributed"),
    System("limit", "limit", about="line hand-over, reading a peer's lines, updating memory"),
    System("weft-thp", "weft", "best", "thp", about="buffers in huge pages", for_large=True),
    System(
        "openmpi-keep",
        "openmpi",
        "best",
        "thp",
        _KEEP_MEMORY,
        "malloc keeps its memory",
        for_large=True,
    ),
    System(
        "openmpi-eager128k",
        "openmpi",
        "best",
        "thp",
        _KEEP_MEMORY | _eager(128 << 10),
        "and eager messages up to 128 KiB",
    ),
    System(
        "openmpi-alg6",
        "openmpi",
        "best",
        "thp",
        _KEEP_MEMORY
        | _eager(32 << 10)
        | {
            "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
            "OMPI_MCA_coll_tuned_allreduce_algorithm": "6",
        },
        "and eager up to 32 KiB, Rabenseifner's algorithm",
        "allreduce",
    ),
    System(
        "mpich-keep",
        "mpich",
        "best",
        "thp",
        _KEEP_MEMORY,
        "malloc keeps its memory",
        for_large=True,
    ),
    System(
        "mpich-eager",
        "mpich",
        "best",
        "thp",
        _KEEP_MEMORY | {"UCX_RNDV_THRESH": "inf"},
        "and no rendezvous",
    ),
    System(
        "mpich-posix",
        "mpich",
        "best",
        "thp",
        _KEEP_MEMORY | {"UCX_TLS": "posix,self"},
        "and POSIX shared memory alone",
    ),
    System(
        "openmpi-yield",
        "openmpi",
        "yield",
        "4k",
        {"OMPI_MCA_mpi_yield_when_idle": "1"},
        "mpi_yield_when_idle=1",
    ),
)
NAMES = tuple(dict.fromkeys(system.family for system in SYSTEMS))


def taking_part(families: set[str], ranks: int, cores: int) -> list[System]:
    """The systems of a run with `ranks` ranks on `cores` cores.

    When ranks share cores, Open MPI has to yield, the settings that keep memory say nothing, and
    gloo's event threads multiply the ranks once more. The limit is that of ranks with cores.
    """
    if ranks > cores:
        names = {"weft", "openmpi-yield", "mpich"}
    else:
        names = {s.name for s in SYSTEMS if s.kind != "yield"}
    return [s for s in SYSTEMS if s.name in names and s.family in families]
