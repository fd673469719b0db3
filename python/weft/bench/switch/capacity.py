# SPDX-License-Identifier: Apache-2.0
"""What the cores of this machine can move, and which rate its links may have for that.

Links of namespaces are copies made by processors. Where those are busy all the time, a limit of
the links says nothing; so links together get at most a part of what the cores move without one.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..results import Block

SHARE = 0.4  # of what the cores can move, for all links together
WANTED = 1e9  # bits a second of a link
_STEP = 10e6  # rates are multiples of it


def ring_part(hosts: int) -> float:
    """What a link carries each way for each byte of a tensor, with a ring."""
    return 2 * (hosts - 1) / hosts


@dataclass(frozen=True)
class Links:
    """Links of `hosts` hosts, each way: what the cores can move, and what they were given.

    `rate` and `can` are bits a second, of one link and of all together.
    """

    hosts: int
    can: float
    rate: float

    @property
    def share(self) -> float:
        return self.hosts * self.rate / self.can

    @property
    def words(self) -> str:
        """The rate as tc(8) writes it."""
        return f"{round(self.rate / 1e6)}mbit"

    def __str__(self) -> str:
        text = (
            f"{self.hosts} hosts: the cores can move {self.can / 1e9:.1f} Gbit/s over all links "
            f"each way; {self.hosts} links of {self.rate / 1e6:.0f} Mbit/s are {self.share:.0%} "
            "of that"
        )
        if self.rate < WANTED:
            many = self.hosts * WANTED / self.can
            text += f" (lowered from 1 Gbit/s, which would be {many:.0%})"
        return text


def links_for(hosts: int, blocks: Iterable[Block]) -> Links | None:
    """Links that may be used, from what systems did without a limit; None if they did nothing.

    The slowest of them counts: it has the least to spare.
    """
    parts: Mapping[str, float] = {"switch": 1.0, "ring": ring_part(hosts)}
    times: dict[str, list[float]] = {}
    size = 0
    for block in blocks:
        if block.case.ranks == hosts and block.system in parts:
            times.setdefault(block.system, []).append(block.us)
            size = block.case.bytes
    if not times:
        return None
    each = min(parts[name] * size * 8 / statistics.median(us) * 1e6 for name, us in times.items())
    rate = min(WANTED, max(SHARE * each // _STEP * _STEP, _STEP))
    return Links(hosts, hosts * each, rate)
