# SPDX-License-Identifier: Apache-2.0
"""The pages of `weft doctor`. Each module has one, as a list of facts."""

import dataclasses
from typing import Any


@dataclasses.dataclass
class Fact:
    """One line: what it is, in words, and as data for programs.

    A fact with a remedy is something that was asked for and cannot work.
    """

    name: str
    text: str
    data: Any = None
    remedy: str | None = None

    def __post_init__(self) -> None:
        if self.data is None:
            self.data = self.text


@dataclasses.dataclass
class Page:
    title: str
    facts: list[Fact]


def bytes_text(n: float) -> str:
    """A size for people: 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.4g} {unit}"
        n /= 1024
    return f"{n:.4g} TiB"


def read(path: str) -> str:
    """The contents of a small file of the kernel's, or nothing."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
