# SPDX-License-Identifier: Apache-2.0
"""The marks of `weft bench switch`: one system's time over another's in the same round."""

from __future__ import annotations

from collections.abc import Mapping

from .. import pairs
from ..pairs import Goal
from ..results import Block
from .capacity import ring_part
from .run import GOODPUT, JUMBO, LIMITED, LOSSES, MANY_HOSTS, SIZES, SMALL

_RING = 1.1  # times what one TCP stream allows, as in H1


def _limited(hosts: int) -> list[Goal]:
    size = SIZES[LIMITED]
    through = Goal("S4", LIMITED, size, hosts, "switch", "ring", 1.1 / ring_part(hosts))
    return [through, Goal("S4", LIMITED, size, hosts, "ring", "iperf3", _RING)]


GOALS = [
    # Goodput of at least 3 times theirs is a third of their time.
    Goal("S1", GOODPUT, SIZES[GOODPUT], 2, "switch", "udp", 1 / 3),
    Goal("S1", JUMBO, SIZES[JUMBO], 2, "switch-8k", "tcp", 1 / 0.6),
    Goal("S2", SMALL, SIZES[SMALL], 2, "weft", "gloo", 0.5),
    Goal("S2", SMALL, SIZES[SMALL], 2, "weft", "gloo-free", 0.5),
    *(
        Goal("S3", GOODPUT, SIZES[GOODPUT], 2, name, "switch", 1 / least)
        for name, (_, least) in LOSSES.items()
    ),
    *(goal for hosts in MANY_HOSTS for goal in _limited(hosts)),
]


def mark_rows(blocks: list[Block], missing: Mapping[str, str]) -> list[dict]:
    return pairs.mark_rows(GOALS, blocks, missing)
