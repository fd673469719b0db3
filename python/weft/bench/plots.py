# SPDX-License-Identifier: Apache-2.0
"""Plots of a run: one figure for each operation, one panel for each number of ranks or threads.

They are made from rows, so that rows measured on another machine can be drawn on this one.
"""

from __future__ import annotations

import importlib.util
import io
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .operations import Operation
from .systems import Line
from .table import BENCHES
from .view import TIME_OVER_BYTES, View

_COLUMNS = 2


def unavailable() -> str | None:
    """Why nothing can be drawn, or None."""
    if importlib.util.find_spec("matplotlib") is None:
        return "plots need matplotlib (pip install 'weft[bench]', or pip install matplotlib)"
    return None


def _placement(rows: list[dict]) -> str:
    """The placement that most of the blocks had; figures of two are never mixed."""
    seen: Counter[str] = Counter()
    for row in rows:
        seen[row["placement"]] += row.get("blocks", 1)
    return seen.most_common(1)[0][0]


def panels(rows: list[dict], view: View = TIME_OVER_BYTES) -> list[tuple[str, list[dict]]]:
    """Title and rows of each panel, for the rows of one operation."""
    groups: dict[tuple[int, int], list[dict]] = {}
    for row in rows:
        groups.setdefault((row["ranks"], row["cores"]), []).append(row)
    found = []
    for (ranks, cores), group in sorted(groups.items()):
        placement = _placement(group)
        where = view.panel(ranks, cores)
        title = where if placement == "any" else f"{where}, {placement}"
        found.append((title, [row for row in group if row["placement"] == placement]))
    return found


def _draw_lines(axes, rows: list[dict], lines: Mapping[str, Line], view: View) -> None:
    for system, line in lines.items():
        points = sorted((r for r in rows if r["system"] == system), key=view.at)
        if not points:
            continue
        places = [view.at(row) for row in points]
        values, low, high = zip(*map(view.values, points), strict=True)
        axes.plot(places, values, markersize=4, **asdict(line))
        axes.fill_between(places, low, high, alpha=0.12, color=line.color, linewidth=0)


def _draw_bars(axes, rows: list[dict], lines: Mapping[str, Line], view: View) -> None:
    """Bars side by side at each place; what has no marker is a bound and is drawn across them."""
    present = [system for system in lines if any(row["system"] == system for row in rows)]
    solid = [system for system in present if lines[system].marker]
    width = 0.8 / max(1, len(solid))
    for system in present:
        line = lines[system]
        style = {"color": line.color, "label": line.label}
        points = [row for row in rows if row["system"] == system]
        places = [view.at(row) for row in points]
        values, low, high = (list(each) for each in zip(*map(view.values, points), strict=True))
        if system not in solid:
            ends = [place - 0.45 for place in places], [place + 0.45 for place in places]
            axes.hlines(values, *ends, linestyle=line.linestyle, **style)
            continue
        shift = (solid.index(system) - (len(solid) - 1) / 2) * width
        below = [value - end for value, end in zip(values, low, strict=True)]
        above = [end - value for value, end in zip(values, high, strict=True)]
        thin = {"elinewidth": 0.8, "ecolor": "#555555"}
        moved = [place + shift for place in places]
        axes.bar(moved, values, width, yerr=[below, above], error_kw=thin, **style)


def _draw(axes, title: str, rows: list[dict], lines: Mapping[str, Line], view: View) -> None:
    (_draw_bars if view.bars else _draw_lines)(axes, rows, lines, view)
    view.set_up(axes)
    axes.set(title=title)
    ticks = {view.at(row): view.tick(row) for row in sorted(rows, key=view.at)}
    axes.set_xticks(list(ticks), list(ticks.values()), rotation=35, fontsize=8)
    axes.yaxis.set_major_formatter(lambda value, _position: view.value_tick(value))
    axes.tick_params(axis="y", labelsize=8)
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def figure(
    operation: Operation,
    rows: list[dict],
    systems: Mapping[str, Line],
    view: View = TIME_OVER_BYTES,
) -> bytes:
    """The SVG of one operation, for its rows."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    parts = panels(rows, view)
    columns = min(len(parts), _COLUMNS)
    lines = -(-len(parts) // columns)
    # So that the same figures give the same file.
    fixed = {"svg.hashsalt": operation.name, "svg.fonttype": "path"}
    with matplotlib.rc_context(fixed):
        drawing, grid = pyplot.subplots(
            lines,
            columns,
            figsize=(1.5 + 5.0 * columns, 1.2 + 3.4 * lines),
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
        for axes in grid.flat[len(parts) :]:
            axes.axis("off")
        labels: dict[str, object] = {}
        for axes, (title, group) in zip(grid.flat, parts, strict=False):
            _draw(axes, title, group, systems, view)
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                labels.setdefault(label, handle)
        drawing.suptitle(view.heading(operation.name, operation.size_is))
        drawing.legend(
            list(labels.values()), list(labels), loc="outside lower center", ncols=6, fontsize=9
        )
        picture = svg_of(drawing)
        pyplot.close(drawing)
    return picture


def svg_of(drawing: Any) -> bytes:
    """A figure of matplotlib as a file; the same figure gives the same bytes."""
    picture = io.BytesIO()
    drawing.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()


def figures(rows: Iterable[dict]) -> dict[str, bytes]:
    """The SVG of each operation that has sizes, by its name."""
    valued = [row for row in rows if row.get("value") is not None]
    found = {}
    for name, bench in BENCHES.items():
        ours = [row for row in valued if row.get("bench") == name and bench.view.takes(row)]
        lines = bench.lines_for(dict.fromkeys(row["system"] for row in ours))
        for op, operation in bench.drawn.items():
            mine = [row for row in ours if row.get("op") == op and row.get("system") in lines]
            if mine:
                found[op] = figure(operation, mine, lines, bench.view)
    return found


def write(rows: Iterable[dict], folder: Path) -> list[Path]:
    """Draw everything into `folder`, which is made if need be; OSError if that cannot be."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for op, picture in figures(rows).items():
        path = folder / f"{op}.svg"
        path.write_bytes(picture)
        written.append(path)
    return written
