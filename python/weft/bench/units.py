# SPDX-License-Identifier: Apache-2.0
"""Sizes and times as people write them."""

from __future__ import annotations

import re

_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """The bytes in "4", "64K", "4MiB", ...; ValueError for anything else."""
    match = re.fullmatch(r"\s*(\d+)\s*([KMG]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{text!r} is not a size; write 4, 64K or 4M")
    return int(match[1]) * _FACTORS[match[2].upper()]


def format_size(count: int) -> str:
    """Bytes in the largest unit that divides them: "64 KiB", "1000 B"."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor} {unit}"
    return f"{count} B"


def format_time(us: float) -> str:
    """Microseconds with three digits: "195 ns", "15.8 us", "1.93 ms", "2.1 s"."""
    for unit, factor in (("ns", 1e-3), ("us", 1.0), ("ms", 1e3), ("s", 1e6)):
        value = us / factor
        if value < 999.5 or unit == "s":
            break
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"
