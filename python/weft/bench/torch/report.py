# SPDX-License-Identifier: Apache-2.0
"""The tables and rows of `weft bench torch`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from ..report import by_ranks, cell, table
from ..results import Block, Case, case_name, rows_of
from .operations import OPERATIONS
from .run import GLOOS, NAMES

TOKENS = ("llm_token", "llm_token_dtensor")


def _by_operation(case: Case) -> tuple[int, int]:
    return list(OPERATIONS).index(case.op), case.bytes


def _ratios(blocks: Iterable[Block], ours: str, peer: str) -> list[float]:
    """Our time over a peer's, round by round; placements are not mixed."""
    times: dict[str, dict[int, Block]] = {ours: {}, peer: {}}
    for block in blocks:
        if block.system in times:
            times[block.system][block.turn] = block
    pairs = [(mine, times[peer].get(turn)) for turn, mine in times[ours].items()]
    return [
        mine.us / other.us
        for mine, other in pairs
        if other is not None and other.placement in ("any", mine.placement)
    ]


def ratio(blocks: list[Block], peers: Iterable[str], ours: str = "weft") -> str:
    """The median over rounds, against the better of several peers."""
    found = filter(None, (_ratios(blocks, ours, peer) for peer in peers))
    worst = max(map(statistics.median, found), default=None)
    return "-" if worst is None else f"{worst:.3f}"


def _group(blocks: list[Block]) -> str:
    names = [name for name in NAMES if any(block.system == name for block in blocks)]
    rows = []
    for case in sorted({block.case for block in blocks}, key=_by_operation):
        here = [block for block in blocks if block.case == case]
        times = [cell([b.us for b in here if b.system == name]) for name in names]
        ratios = [ratio(here, GLOOS), ratio(here, ["noop"])]
        ratios += [ratio(here, peers, "weft-shared") for peers in (GLOOS, ["limit"])]
        rows.append([case_name(case), *times, *ratios])
    return table(["", *names, "/gloo", "/noop", "shared/gloo", "shared/limit"], rows)


def _tokens(blocks: list[Block]) -> Iterable[str]:
    """What people ask of a language model is tokens a second."""
    for op in TOKENS:
        for name in ("weft", *GLOOS):
            times = [b.us for b in blocks if b.case.op == op and b.system == name]
            if times:
                yield f"{op}: {1e6 / statistics.median(times):.0f} tokens/s with {name}"


def figures(blocks: list[Block]) -> str:
    """One table for each number of ranks: median, spread, and weft's ratios."""
    return "\n\n".join(
        "\n".join([title, _group(here), *_tokens(here)]) for title, here in by_ranks(blocks)
    )


def rows(blocks: list[Block]) -> list[dict]:
    """As those of the other programs; a token's has its rate, too."""
    found = rows_of(blocks, "torch")
    for row in found:
        if row["op"] in TOKENS:
            row["tokens_per_s"] = 1e6 / row["value"]
    return found
