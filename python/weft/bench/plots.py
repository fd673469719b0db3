# SPDX-License-Identifier: Apache-2.0
"""Plots of a run: time over size, one figure for each operation, one panel for each rank count.

They are made from rows, so that rows measured on another machine can be drawn on this one.
"""

from __future__ import annotations

import importlib.util
import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from .operations import OPERATIONS, TORCH_OPERATIONS, operation_named
from .units import format_size, format_time

# Who has a line, under which name, and how it looks; the same in every figure. The colours can be
# told apart by those who do not see all of them.
_LINES: dict[str, tuple[str, dict]] = {
    "weft": ("weft", {"color": "#d55e00", "marker": "o", "linewidth": 2.4, "zorder": 3}),
    "openmpi": ("Open MPI", {"color": "#0072b2", "marker": "s"}),
    "openmpi-yield": ("Open MPI, yielding", {"color": "#0072b2", "marker": "s"}),
    "mpich": ("MPICH", {"color": "#009e73", "marker": "^"}),
    "gloo": ("gloo", {"color": "#cc79a7", "marker": "D"}),
    "core": ("weft from C", {"color": "#e69f00", "marker": "v"}),
    "noop": ("a backend that does nothing", {"color": "black", "linestyle": ":"}),
    "gloo-free": ("gloo, not pinned", {"color": "#cc79a7", "marker": "d", "linestyle": "--"}),
    "limit": ("bound", {"color": "black", "linestyle": "--", "linewidth": 1.2}),
}
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


def _heading(op: str) -> str:
    if op == "cycle":
        return "write, allreduce and read, less write and read: time over size of the vector"
    return f"{op}: time of a call over size of {operation_named(op).size_is}"


def _tick(us: float) -> str:
    number, unit = format_time(us).split()
    return f"{float(number):g} {unit}"


def _draw(axes, title: str, rows: list[dict]) -> None:
    for system, (label, style) in _LINES.items():
        points = sorted((r for r in rows if r["system"] == system), key=lambda r: r["bytes"])
        if not points:
            continue
        sizes = [row["bytes"] for row in points]
        values = [row["value"] for row in points]
        axes.plot(sizes, values, label=label, **({"linewidth": 1.6, "markersize": 4} | style))
        low, high = ([row[end] for row in points] for end in ("low", "high"))
        axes.fill_between(sizes, low, high, alpha=0.12, color=style["color"], linewidth=0)
    axes.set(xscale="log", yscale="log", title=title)
    ticks = sorted({row["bytes"] for row in rows})
    axes.set_xticks(ticks, [format_size(size) for size in ticks], rotation=35, fontsize=8)
    axes.yaxis.set_major_formatter(lambda us, _position: _tick(us))
    axes.tick_params(axis="y", labelsize=8)
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def figure(op: str, rows: list[dict]) -> bytes:
    """The SVG of one operation, for its rows."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    parts = panels(rows)
    columns = min(len(parts), _COLUMNS)
    lines = -(-len(parts) // columns)
    # So that the same figures give the same file.
    fixed = {"svg.hashsalt": op, "svg.fonttype": "path"}
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
            _draw(axes, title, group)
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                labels.setdefault(label, handle)
        drawing.suptitle(_heading(op))
        drawing.legend(
            list(labels.values()), list(labels), loc="outside lower center", ncols=6, fontsize=9
        )
        picture = io.BytesIO()
        drawing.savefig(picture, format="svg", metadata={"Date": None})
        pyplot.close(drawing)
    return picture.getvalue()


def figures(rows: Iterable[dict]) -> dict[str, bytes]:
    """The SVG of each operation that has sizes, by its name."""
    known = OPERATIONS | TORCH_OPERATIONS
    by_op: dict[str, list[dict]] = {}
    for row in rows:
        drawn = row.get("value") is not None and row.get("system") in _LINES
        if drawn and row.get("op") in known and row["bytes"]:
            by_op.setdefault(row["op"], []).append(row)
    return {op: figure(op, by_op[op]) for op in known if op in by_op}


def write(rows: Iterable[dict], folder: Path) -> list[Path]:
    """Draw everything into `folder`, which is made if need be; OSError if that cannot be."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for op, picture in figures(rows).items():
        path = folder / f"{op}.svg"
        path.write_bytes(picture)
        written.append(path)
    return written
