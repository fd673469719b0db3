# SPDX-License-Identifier: Apache-2.0
"""The tables of `weft bench collectives`."""

from __future__ import annotations

import statistics

from ..report import cell, table
from ..results import PLACEMENTS, Block, Case, case_name, paired_ratios
from .marks import opponents
from .operations import OPERATIONS
from .systems import NAMES, SYSTEMS


def _columns(blocks: list[Block]) -> list[tuple[str, list[str]]]:
    """A column for each family as installed, and one for its best settings, if they ran."""
    ran = {block.system for block in blocks}
    columns = []
    for family in NAMES:
        for kind in ("installed", "best", "yield"):
            names = [s.name for s in SYSTEMS if s.family.name == family and s.kind == kind]
            names = [name for name in names if name in ran]
            if names:
                title = family if kind == "installed" else f"{family} {kind}"
                columns.append(("weft thp" if title == "weft best" else title, names))
    return columns


def _best(blocks: list[Block], names: list[str]) -> list[float]:
    """The times of the setting with the smallest median."""
    times = [[block.us for block in blocks if block.system == name] for name in names]
    return min(filter(None, times), key=statistics.median, default=[])


def ratio_to(blocks: list[Block], case: Case, placement: str, against: str) -> str:
    """weft over the best of its opponents, each with its own pairs."""
    ratios = []
    for systems in opponents(against).values():
        for system in systems:
            ours = "weft-thp" if system.pages == "thp" else "weft"
            pairs = paired_ratios(blocks, case, ours, system.name, placement)
            if pairs:
                ratios.append(statistics.median(pairs))
    return f"{max(ratios):.3f}" if ratios else "-"


def _by_operation(case: Case) -> tuple[int, int]:
    return list(OPERATIONS).index(case.op), case.bytes


def size_legend(blocks: list[Block]) -> str:
    """What the sizes of the operations in a run are sizes of."""
    ran = {block.case.op for block in blocks}
    meanings: dict[str, list[str]] = {}
    for name, operation in OPERATIONS.items():
        if name in ran and name != "barrier":
            meanings.setdefault(operation.size_is, []).append(name)
    lines = [f"  {', '.join(names)}: {what}" for what, names in meanings.items()]
    return "\n".join(["a size is that of", *lines]) if lines else ""


def _group(blocks: list[Block], placement: str) -> str:
    columns = _columns(blocks)
    versus = [("/MPI", "installed"), ("/best", "best"), ("/limit", "limit")]
    if any(block.system == "openmpi-yield" for block in blocks):
        versus = [("/yield", "yield"), ("/mpich", "mpich")]
    rows = []
    for case in sorted({block.case for block in blocks}, key=_by_operation):
        here = [block for block in blocks if block.case == case]
        rows.append(
            [case_name(case)]
            + [cell(_best(here, names)) for _, names in columns]
            + [ratio_to(here, case, placement, against) for _, against in versus]
        )
    return table(["", *(title for title, _ in columns), *(title for title, _ in versus)], rows)


def figures(blocks: list[Block]) -> str:
    """One table for each number of ranks and placement: median, spread, and weft's ratios."""
    parts = []
    for ranks, cores in dict.fromkeys((b.case.ranks, b.case.cores) for b in blocks):
        for placement in PLACEMENTS:
            here = [
                block
                for block in blocks
                if (block.case.ranks, block.case.cores) == (ranks, cores)
                and block.placement == placement
            ]
            if here:
                turns = len({block.turn for block in here})
                where = "" if placement == "any" else f", {placement}"
                title = f"{ranks} ranks on {cores} cores{where} ({turns} rounds)"
                parts.append(f"{title}\n{_group(here, placement)}")
    return "\n\n".join(parts)
