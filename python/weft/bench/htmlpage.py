# SPDX-License-Identifier: Apache-2.0
"""One self-contained page of a run: plots, marks, and all figures."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence

from . import contest, plots
from .table import BENCHES
from .view import TIME_OVER_BYTES, View

_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: 2px 10px; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; }
img { max-width: 100%; }
summary { font-weight: bold; margin: 1em 0; cursor: pointer; }
.met { color: #176d1c; } .not { color: #a61b1b; } .open { color: #666; }
"""


def _image(name: str, picture: bytes) -> str:
    """A figure as <img> that carries its data."""
    data = base64.b64encode(picture).decode()
    return f'<img alt="{html.escape(name)}" src="data:image/svg+xml;base64,{data}">'


def _contest(rows: list[dict]) -> Iterable[str]:
    """Who is ahead where: a sentence, and the picture."""
    if found := contest.standing(rows):
        yield f"<p><b>{html.escape(contest.headline(found))}</b></p>"
        yield _image("who is ahead where", contest.picture(found))


def _plots(rows: list[dict]) -> Iterable[str]:
    for op, picture in plots.figures(rows).items():
        yield _image(op, picture)


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


def _value_cells(row: dict, view: View) -> list[str]:
    values = map(view.value_text, view.values(row))
    cells = [row["case"], row["system"], view.who_text(row), view.tick(row), *values]
    return [html.escape(cell) for cell in (*cells, *view.more_text(row))]


def _view(row: dict) -> View:
    bench = BENCHES.get(row.get("bench", ""))
    return TIME_OVER_BYTES if bench is None else bench.view


def _values(rows: list[dict]) -> Iterable[str]:
    """A table for each way to show rows, since their columns differ."""
    for view in dict.fromkeys(map(_view, rows)):
        head = ("case", "system", view.who, view.axis, *view.columns, *view.more)
        yield _table(head, [_value_cells(row, view) for row in rows if _view(row) is view])


def _marks(rows: list[dict]) -> Iterable[str]:
    if rows:
        head = ("mark", "placement", "ratio", "goal", "", "worst case", "not judged in full")
        yield "<h2>Marks</h2>"
        yield _table(head, map(_mark_cells, rows))


def _systems(rows: list[dict]) -> Iterable[str]:
    """What those are that were found only when the benchmark ran."""
    for text in dict.fromkeys(f"{row['system']}: {row['about']}" for row in rows):
        yield f"<p>{html.escape(text)}</p>"


def render(rows: list[dict], about: str, benches: Sequence[str] = ("collectives",)) -> str:
    """The page for the rows of a run; `about` is a line on the machine."""
    values = [row for row in rows if row.get("value") is not None]
    missing = [row for row in rows if row.get("case") == "missing"]
    title = f"weft bench {'all' if set(benches) == set(BENCHES) else ', '.join(benches)}"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1><p>{html.escape(about)}</p>",
        *(
            f"<p>Missing: {html.escape(row['system'])} ({html.escape(row['reason'])})</p>"
            for row in missing
        ),
        *_contest(values),
        *_marks([row for row in rows if "mark" in row]),
        "<details><summary>Each operation over its sizes</summary>",
        *_plots(values),
        "</details><details><summary>All figures</summary>",
        "<p>Medians over blocks; low and high are the extremes.</p>",
        *_systems([row for row in rows if row.get("case") == "system"]),
        *_values(values),
        "</details></body></html>",
    ]
    return "\n".join(parts)
