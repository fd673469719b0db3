# SPDX-License-Identifier: Apache-2.0
"""The marks of `weft bench hosts`: one system's time over another's in the same round."""

from __future__ import annotations

from collections.abc import Mapping

from .. import pairs
from ..pairs import Goal
from ..results import Block
from . import parts
from .run import HOSTS

_KIB, _MIB = 1 << 10, 1 << 20


def _gloo(size: int) -> list[Goal]:
    gloos = ("gloo", "gloo-free")
    return [Goal("H2", "allreduce", size, HOSTS, "weft", gloo, 0.5) for gloo in gloos]


GOALS = [
    Goal("H1", "allreduce_1gbit", 64 * _MIB, HOSTS, "core", "iperf3", 1.1),
    Goal("H1", "allreduce_1gbit", 64 * _MIB, HOSTS, "core-2", "core", 1.1),
    *_gloo(_KIB),
    *_gloo(64 * _KIB),
    Goal("H2", "allreduce", 16 * _MIB, HOSTS, "core", "openmpi", 1.0),
    Goal("H3", parts.START, 0, parts.START_HOSTS * parts.START_EACH, "weft", "python", 1.5),
    Goal("H4", parts.ROWS, parts.ROW * parts.IDS, 2, "weft", "messages", 1 / 0.7),
    Goal("H4", parts.ONE_ROW, parts.ROW, 2, "weft", "messages", 2.0),
]


def mark_rows(blocks: list[Block], missing: Mapping[str, str]) -> list[dict]:
    return pairs.mark_rows(GOALS, blocks, missing)
