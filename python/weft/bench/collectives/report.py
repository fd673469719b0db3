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
        for kind in ("installed", "arena", "best", "yield"):
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


def ratio_to(
    blocks: list[Block], case: Case, placement: str, against: str, ours: str = "weft"
) -> str:
    """Ours over the best of its opponents, each with its own pairs."""
    ratios = []
    for systems in opponents(against).values():
        for system in systems:
            same = "weft-thp" if system.pages == "thp" else ours
            pairs = paired_ratios(blocks, case, same, system.name, placement)
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


def arena_legend(blocks: list[Block]) -> str:
    """When the arena was used."""
    if not any(block.system == "weft-arena" for block in blocks):
        return "" if not blocks else "no buffer was in the arena"
    return (
        "weft arena: all buffers were in the arena, where peers read and reduce them (each was "
        "looked up);\n  all other buffers were private memory"
    )


def _versus(blocks: list[Block]) -> list[tuple[str, str, str]]:
    """The titles of the ratios, whom they are against, and whose they are."""
    versus = [("/MPI", "installed"), ("/best", "best"), ("/limit", "limit")]
    if any(block.system == "openmpi-yield" for block in blocks):
        versus = [("/yield", "yield"), ("/mpich", "mpich")]
    found = [(title, against, "weft") for title, against in versus]
    if any(block.system == "weft-arena" for block in blocks):
        found += [(f"arena{title}", against, "weft-arena") for title, against in versus[::2]]
    return found


def _group(blocks: list[Block], placement: str) -> str:
    columns = _columns(blocks)
    versus = _versus(blocks)
    rows = []
    for case in sorted({block.case for block in blocks}, key=_by_operation):
        here = [block for block in blocks if block.case == case]
        rows.append(
            [case_name(case)]
            + [cell(_best(here, names)) for _, names in columns]
            + [ratio_to(here, case, placement, against, ours) for _, against, ours in versus]
        )
    titles = [*(title for title, _ in columns), *(title for title, _, _ in versus)]
    return table(["", *titles], rows)


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
