# SPDX-License-Identifier: Apache-2.0
"""One self-contained page of a run: plots, marks, and all figures."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence

from . import plots
from .units import format_size, format_time

_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: 2px 10px; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; }
img { max-width: 100%; }
.met { color: #176d1c; } .not { color: #a61b1b; } .open { color: #666; }
"""


def _plots(rows: list[dict]) -> Iterable[str]:
    """The figures as <img> that carry their data."""
    for op, picture in plots.figures(rows).items():
        data = base64.b64encode(picture).decode()
        yield f'<img alt="{html.escape(op)}" src="data:image/svg+xml;base64,{data}">'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["<tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in head) + "</tr>"]
    for row in rows:
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>")
    return "<table>" + "\n".join(lines) + "</table>"


def _mark_cells(row: dict) -> list[str]:
    state = {True: ("met", "met"), False: ("not", "not met"), None: ("open", "not judged")}
    css, word = state[row["met"]]
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
    where = f"{row['case']}, {row['ranks']} ranks, against {row['against']}"
    return [
        html.escape(row["mark"]),
        html.escape(row["placement"]),
        ratio,
        html.escape(f"{row['direction']} {row['goal']:.3g}"),
        f'<span class="{css}">{word}</span>',
        html.escape(where),
        html.escape(row["reason"]),
    ]


def _value_cells(row: dict) -> list[str]:
    size = format_size(row["bytes"]) if row["bytes"] else ""
    times = [format_time(row[name]) for name in ("value", "low", "high")]
    return [html.escape(row["case"]), html.escape(row["system"]), str(row["ranks"]), size, *times]


def render(rows: list[dict], about: str, benches: Sequence[str] = ("collectives",)) -> str:
    """The page for the rows of a run; `about` is a line on the machine."""
    values = [row for row in rows if row.get("value") is not None]
    marks = [row for row in rows if "mark" in row]
    missing = [row for row in rows if row.get("case") == "missing"]
    title = f"weft bench {', '.join(benches)}"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1><p>{html.escape(about)}</p>",
        *(
            f"<p>Missing: {html.escape(row['system'])} ({html.escape(row['reason'])})</p>"
            for row in missing
        ),
        *_plots(values),
        "<h2>Marks</h2>",
        _table(
            ("mark", "placement", "ratio", "goal", "", "worst case", "not judged in full"),
            map(_mark_cells, marks),
        ),
        "<h2>Figures</h2><p>Medians over blocks; low and high are the extremes.</p>",
        _table(
            ("case", "system", "ranks", "size", "median", "low", "high"),
            map(_value_cells, values),
        ),
        "</body></html>",
    ]
    return "\n".join(parts)
