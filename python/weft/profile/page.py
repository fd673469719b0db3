# SPDX-License-Identifier: Apache-2.0
"""One page with the tables and a flame graph; it needs nothing but itself."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..bench.units import format_size
from .attribute import rooted
from .report import mostly, seconds, share
from .result import Result
from .samples import Node, tree

_OPERATORS = ("operator", "self", "total", "calls", "CPU time mostly in", "bytes", "ranks")
_ROWS = 200
_SMALLEST = 0.0002  # of the whole: narrower than a pixel


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


def render(result: Result) -> str:
    """The page."""
    title = f"weft profile: {' '.join(result.program)}"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>{html.escape(title)}</title><style>{_file('page.css')}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{html.escape(_about(result))}</p>",
        *(f"<p class='note'>{html.escape(note)}</p>" for note in result.notes),
        *_flame(result),
        *_tables(result),
        "</body></html>",
    ]
    return "\n".join(parts)


def _about(result: Result) -> str:
    parts = [f"by {', '.join(result.tools)}"]
    if result.seconds:
        parts.append(f"{seconds(result.seconds)} of CPU time")
    if result.samples:
        parts.append(f"{len(result.samples)} samples")
    if result.library:
        parts.append(f"{result.library} only")
    return "; ".join(parts)


def _flame(result: Result) -> list[str]:
    if not result.samples or not result.has_stacks:
        return []
    root = tree(result.samples, result.labels, rooted)
    names: dict[str, int] = {}
    data = _packed(root, root.total * _SMALLEST, names)
    content = json.dumps({"names": list(names), "root": data}, separators=(",", ":"))
    # So that no name in it can end the element.
    content = content.replace("<", "\\u003c")
    return [
        "<h2>Flame graph</h2>",
        "<p>Each box is a function, as wide as its share of the time; those below it are what it "
        "called. Click to zoom, click a row above to go back. Long runs of calls inside Python's "
        "interpreter are folded.</p>",
        "<p><input id='search' type='search' placeholder='search function or library' "
        "aria-label='search'> <button id='reset'>reset</button> <span id='found'></span></p>",
        "<div id='detail'>&nbsp;</div><svg id='flame' xmlns='http://www.w3.org/2000/svg'></svg>",
        f"<script type='application/json' id='stacks'>{content}</script>",
        f"<script>{_file('page.js')}</script>",
    ]


def _packed(node: Node, smallest: float, names: dict[str, int]) -> list[Any]:
    """[function, library, microseconds, children], names as numbers."""
    children = sorted(
        (child for child in node.children.values() if child.total >= smallest),
        key=lambda child: (-child.total, child.frame),
    )
    return [
        names.setdefault(node.frame.function, len(names)),
        names.setdefault(node.frame.library, len(names)),
        round(node.total * 1e6),
        [_packed(child, smallest, names) for child in children],
    ]


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    ]
    if not body:
        return []
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    return [f"<h2>{html.escape(title)}</h2><table><tr>{cells}</tr>", *body[:_ROWS], "</table>"]


def _tables(result: Result) -> list[str]:
    whole = result.seconds
    libraries = (
        (name, seconds(spent.own), share(spent.own, whole), seconds(spent.total))
        for name, spent in result.libraries.items()
    )
    functions = (
        (
            frame.function,
            seconds(spent.own),
            share(spent.own, whole),
            seconds(spent.total) if result.has_stacks else "-",
            frame.library,
        )
        for frame, spent in result.functions.items()
    )
    calls = ((name, str(times)) for name, times in sorted(result.calls.items(), key=_most))
    operators = (
        (
            op.name,
            seconds(op.own),
            seconds(op.total),
            str(op.calls),
            mostly(result, op.name, 1000),
            format_size(op.bytes) if op.bytes else "",
            ", ".join(map(str, sorted(op.ranks))),
        )
        for op in result.operators
    )
    return [
        *_table("Libraries", ("library", "self", "share", "with callees"), libraries),
        *_table("Functions", ("function", "self", "share", "with callees", "library"), functions),
        *_table("Calls from other libraries", ("function", "times"), calls),
        *_table("Operators", _OPERATORS, operators),
    ]


def _most(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]
