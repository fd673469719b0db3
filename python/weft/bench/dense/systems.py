# SPDX-License-Identifier: Apache-2.0
"""Who takes part: PyTorch with its own BLAS, PyTorch with each other one, and the limit."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable

from ...blas import libraries
from ..build import Driver
from ..systems import Line

TORCH = "torch"
LIMIT = "limit"
DRIVER = Driver(
    "peak", ("peak.c",), ("-O3", "-march=native", "-shared", "-fPIC", "-pthread", "-Wno-psabi")
)

_KINDS = {
    TORCH: Line("torch's own", "#d55e00", "o", linewidth=2.4, zorder=3),
    "openblas": Line("", "#0072b2", "s"),
    "blis": Line("", "#009e73", "^"),
    "mkl": Line("", "#cc79a7", "D"),
    "reference": Line("", "#777777", "v"),
    LIMIT: Line("limit", "black", linestyle="--", linewidth=1.2),
}
# The first variant of a kind has its colour, the others have paler ones.
_PALER = {"#0072b2": ("#56b4e9", "#a6d4f2"), "#009e73": ("#66c5ab", "#b2e2d5")}
_OTHERS = ("#e69f00", "#cc79a7", "#8c6d31", "#5e4fa2")


@functools.cache
def found() -> dict[str, libraries.Library]:
    """The libraries that PyTorch can call, by name."""
    usable = (one for one in libraries.libraries() if libraries.refusal(one) is None)
    return {library.name: library for library in usable}


def names() -> tuple[str, ...]:
    """Those that `--systems` can name."""
    return (TORCH, *found(), LIMIT)


def find(name: str) -> str | None:
    """Take in a library by its path or its kind; or why not, "" if none is called that."""
    try:
        library = libraries.find(name)
    except libraries.NotFound as error:
        return str(error) if os.sep in name else ""
    if (why := libraries.refusal(library)) is None:
        found()[name] = library
    return why


def quick_names() -> tuple[str, ...]:
    """The best variant of each kind, since starting all of them takes too long."""
    best: dict[str, str] = {}
    for name, library in sorted(found().items(), key=lambda item: _rank(item[1])):
        best.setdefault(library.kind, name)
    return (TORCH, *best.values(), LIMIT)


def _rank(library: libraries.Library) -> int:
    return libraries.THREADS.index(library.threads)


def _kind(name: str) -> str:
    return name.split("-", maxsplit=1)[0]


def lines(present: Iterable[str]) -> dict[str, Line]:
    """How these are drawn: PyTorch's own first, the limit last, a colour for each kind."""
    order = {TORCH: 0, LIMIT: 2}
    counts: dict[str, int] = {}
    drawn = {}
    for name in sorted(present, key=lambda name: (order.get(name, 1), name)):
        kind = _kind(name)
        nth = counts[kind] = counts.get(kind, -1) + 1
        line = _KINDS.get(kind)
        if line is None:
            other = sum(kind not in _KINDS for kind in counts) - 1
            line = Line("", _OTHERS[other % len(_OTHERS)], "P")
        paler = _PALER.get(line.color, ())
        color = paler[min(nth, len(paler)) - 1] if nth and paler else line.color
        drawn[name] = Line(
            line.label or name.rsplit("/", 1)[-1],
            color,
            line.marker,
            line.linestyle,
            line.linewidth,
            line.zorder,
        )
    return drawn
