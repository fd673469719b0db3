# SPDX-License-Identifier: Apache-2.0
"""Plots of a run: time over size, one figure for each operation, one panel for each rank count.

They are made from rows, so that rows measured on another machine can be drawn on this one.
"""

from __future__ import annotations

import importlib.util
import io
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from .operations import Operation
from .systems import Line
from .table import BENCHES
from .units import format_size, format_time

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


def panels(rows: list[dict]) -> list[tuple[str, list[dict]]]:
    """Title and rows of each panel, for the rows of one operation."""
    groups: dict[tuple[int, int], list[dict]] = {}
    for row in rows:
        groups.setdefault((row["ranks"], row["cores"]), []).append(row)
    found = []
    for (ranks, cores), group in sorted(groups.items()):
        placement = _placement(group)
        where = f"{ranks} ranks" if ranks <= cores else f"{ranks} ranks on {cores} cores"
        title = where if placement == "any" else f"{where}, {placement}"
        found.append((title, [row for row in group if row["placement"] == placement]))
    return found


def _heading(operation: Operation) -> str:
    if operation.name == "cycle":
        return "write, allreduce and read, less write and read: time over size of the vector"
    return f"{operation.name}: time of a call over size of {operation.size_is}"


def _tick(us: float) -> str:
    number, unit = format_time(us).split()
    return f"{float(number):g} {unit}"


def _draw(axes, title: str, rows: list[dict], lines: Mapping[str, Line]) -> None:
    for system, line in lines.items():
        points = sorted((r for r in rows if r["system"] == system), key=lambda r: r["bytes"])
        if not points:
            continue
        sizes = [row["bytes"] for row in points]
        values = [row["value"] for row in points]
        axes.plot(sizes, values, markersize=4, **asdict(line))
        low, high = ([row[end] for row in points] for end in ("low", "high"))
        axes.fill_between(sizes, low, high, alpha=0.12, color=line.color, linewidth=0)
    axes.set(xscale="log", yscale="log", title=title)
    ticks = sorted({row["bytes"] for row in rows})
    axes.set_xticks(ticks, [format_size(size) for size in ticks], rotation=35, fontsize=8)
    axes.yaxis.set_major_formatter(lambda us, _position: _tick(us))
    axes.tick_params(axis="y", labelsize=8)
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def figure(operation: Operation, rows: list[dict], systems: Mapping[str, Line]) -> bytes:
    """The SVG of one operation, for its rows."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    parts = panels(rows)
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
            _draw(axes, title, group, systems)
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                labels.setdefault(label, handle)
        drawing.suptitle(_heading(operation))
        drawing.legend(
            list(labels.values()), list(labels), loc="outside lower center", ncols=6, fontsize=9
        )
        picture = io.BytesIO()
        drawing.savefig(picture, format="svg", metadata={"Date": None})
        pyplot.close(drawing)
    return picture.getvalue()


def figures(rows: Iterable[dict]) -> dict[str, bytes]:
    """The SVG of each operation that has sizes, by its name."""
    valued = [row for row in rows if row.get("value") is not None and row.get("bytes")]
    found = {}
    for name, bench in BENCHES.items():
        for op, operation in bench.drawn.items():
            mine = [
                row
                for row in valued
                if (row.get("bench"), row.get("op")) == (name, op)
                and row.get("system") in bench.lines
            ]
            if mine:
                found[op] = figure(operation, mine, bench.lines)
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
