# SPDX-License-Identifier: Apache-2.0
"""Who is ahead where: a run in one table and one picture.

For each operation, number of ranks and size the time of one system is divided by that of the
fastest of its peers, and so is the time of the limit, where there is one, and that of a second way
of the system: with data in the arena. Figures of different placements are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from . import plots
from .benchmark import Benchmark, Contest
from .report import table
from .table import BENCHES
from .units import format_size

# Within so much of each other two are equal: medians of quick runs move by as much.
EVEN = 1.05


@dataclass(frozen=True)
class Point:
    """One size: our time, the limit's and that of our second way over that of the fastest peer."""

    at: str
    ratio: float
    peer: str
    limit: float | None = None
    also: float | None = None


@dataclass(frozen=True)
class Row:
    """One operation with one number of ranks: its points, by size."""

    bench: str
    what: str
    ours: str
    points: tuple[Point, ...]
    of_weft: bool = True

    @property
    def best(self) -> Point:
        return min(self.points, key=lambda point: point.ratio)

    @property
    def worst(self) -> Point:
        return max(self.points, key=lambda point: point.ratio)

    @property
    def also(self) -> tuple[float, ...]:
        """The ratios of the second way."""
        return tuple(point.also for point in self.points if point.also is not None)


def _size(row: dict) -> str:
    return row.get("at") or (format_size(row["bytes"]) if row["bytes"] else "")


def _points(rows: Sequence[dict], contest: Contest, bench: Benchmark) -> tuple[Point, ...]:
    found = []
    for at in sorted({bench.view.at(row) for row in rows}):
        here = {row["system"]: row for row in rows if bench.view.at(row) == at}
        peers = [name for name in contest.peers if name in here]
        if contest.ours not in here or not peers:
            continue
        peer = min(peers, key=lambda name: here[name]["value"])
        theirs = here[peer]["value"]
        limits = [here[name]["value"] / theirs for name in contest.limits if name in here]
        ratio = here[contest.ours]["value"] / theirs
        also = here[contest.also]["value"] / theirs if contest.also in here else None
        size = _size(here[contest.ours])
        found.append(Point(size, ratio, peer, min(limits, default=None), also))
    return tuple(found)


def standing(rows: Iterable[dict]) -> list[Row]:
    """What the rows of runs say, benchmark by benchmark, in their order."""
    valued = [row for row in rows if row.get("value") is not None and "op" in row]
    found: list[Row] = []
    for name, bench in BENCHES.items():
        ours = [row for row in valued if row.get("bench") == name]
        contests = bench.contests_for(dict.fromkeys(row["system"] for row in ours))
        for op in dict.fromkeys(row["op"] for row in ours):
            for contest in contests:
                found += _rows(op, [row for row in ours if row["op"] == op], contest, bench)
    return found


def _rows(op: str, rows: Sequence[dict], contest: Contest, bench: Benchmark) -> Iterable[Row]:
    """A row for each number of ranks, in the placement that `ours` had most.

    Ranks that are not pinned have the placement "any": it is as good as each.
    """
    mine = [row for row in rows if row["system"] == contest.ours]
    for title, own in plots.panels(mine, bench.view):
        where = own[0]["ranks"], own[0]["cores"]
        here = [row for row in rows if (row["ranks"], row["cores"]) == where]
        same = [row for row in here if row["placement"] in ("any", own[0]["placement"])]
        exact_last = sorted(same, key=lambda row: row["placement"] != "any")
        if points := _points(exact_last, contest, bench):
            yield Row(bench.name, f"{op}, {title}", contest.ours, points, contest.of_weft)


def _word(ratio: float) -> str:
    if 1 / EVEN <= ratio <= EVEN:
        return "even"
    return "ahead" if ratio < 1 else "behind"


def _count(found: Sequence[Row]) -> Mapping[str, list[tuple[Row, Point]]]:
    groups: dict[str, list[tuple[Row, Point]]] = {"ahead": [], "even": [], "behind": []}
    for row in found:
        for point in row.points:
            groups[_word(point.ratio)].append((row, point))
    return groups


def headline(found: Sequence[Row]) -> str:
    """The result for weft in a sentence, and in another one that of data in the arena."""
    groups = _count([row for row in found if row.of_weft])
    total = sum(map(len, groups.values()))
    if total == 0:
        return "Nothing could be compared: no peer was measured."
    text = f"weft is faster than the best peer in {len(groups['ahead'])} of {total} cases"
    text += f", within 5 % of it in {len(groups['even'])}" if groups["even"] else ""
    text += f", slower in {len(groups['behind'])}" if groups["behind"] else ""
    worst = sorted(groups["behind"], key=lambda pair: -pair[1].ratio)[:3]
    places = [f"{r.bench} {_label(r)} {p.at} ({p.ratio:.2f} of {p.peer}'s time)" for r, p in worst]
    text += f"; most of all in {', '.join(places)}." if places else "."
    also = [_word(ratio) for row in found for ratio in row.also]
    if also:
        text += f" With data in the arena it is faster in {also.count('ahead')} of {len(also)}."
    return text


def _label(row: Row) -> str:
    return row.what if row.ours == "weft" or not row.of_weft else f"{row.what} ({row.ours})"


def _heading(row: Row) -> str:
    return row.bench if row.of_weft else f"{row.bench}: PyTorch with its own library"


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.1g}"


def _end(point: Point) -> str:
    return f"{_ratio(point.ratio)} {point.at}".rstrip()


def _span(ratios: Sequence[float]) -> str:
    ends = dict.fromkeys((_ratio(min(ratios)), _ratio(max(ratios)))) if ratios else ("-",)
    return " to ".join(ends)


def text(found: Sequence[Row]) -> str:
    """A line for each row: the best and the worst of its sizes, and those in the arena."""
    lines: list[Sequence[str]] = []
    for heading in dict.fromkeys(map(_heading, found)):
        lines.append((heading, *[""] * 5))
        for row in (row for row in found if _heading(row) == heading):
            worst = row.worst
            limit = "-" if worst.limit is None else _ratio(worst.limit)
            best = _end(row.best) if len(row.points) > 1 else ""
            line = (f"  {_label(row)}", best, _end(worst), worst.peer, limit, _span(row.also))
            lines.append(line)
    head = ("time / best peer's (below 1: ahead)", "best", "worst", "peer there", "limit there")
    return table((*head, "in the arena"), lines)


def picture(found: Sequence[Row]) -> bytes:
    """An SVG: a line of dots for each row, one for each size, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    fixed = {"svg.hashsalt": "contest", "svg.fonttype": "path", "font.size": 9}
    with matplotlib.rc_context(fixed):
        height = len(found) + 1.4 * len({row.bench for row in found})
        drawing, axes = pyplot.subplots(figsize=(9.5, 1.2 + 0.21 * height), layout="constrained")
        _draw(axes, found)
        file = plots.svg_of(drawing)
        pyplot.close(drawing)
    return file


_AHEAD, _BEHIND, _EVEN, _LIMIT = "#176d1c", "#a61b1b", "#666666", "#000000"
_COLORS = {"ahead": _AHEAD, "even": _EVEN, "behind": _BEHIND}


def _color(ratio: float) -> str:
    return _COLORS[_word(ratio)]


def _draw(axes, found: Sequence[Row]) -> None:
    place, places, labels = 0.0, [], []
    seen = None
    for row in found:
        if row.bench != seen:
            seen = row.bench
            place += 1.4
            name = {"weight": "bold", "ha": "left", "va": "center"}
            axes.annotate(_heading(row), (0.005, place), xycoords=("axes fraction", "data"), **name)
        place += 1
        places.append(place)
        labels.append(_label(row))
        ratios = [*(point.ratio for point in row.points), *row.also]
        axes.plot([min(ratios), max(ratios)], [place, place], color="#bbbbbb", linewidth=1)
        for number, point in enumerate(row.points):
            size = 14 + 34 * number / max(1, len(row.points) - 1)
            axes.scatter([point.ratio], [place], s=size, color=_color(point.ratio), zorder=3)
            if point.limit is not None:
                tick = {"marker": "|", "s": 12 + size, "color": _LIMIT, "linewidths": 1}
                axes.scatter([point.limit], [place], zorder=4, **tick)
            if point.also is not None:
                ring = {"marker": "D", "facecolors": "white", "edgecolors": _color(point.also)}
                axes.scatter([point.also], [place], s=size, zorder=3.5, linewidths=1.2, **ring)
    _frame(axes, place, places, labels)


def _frame(axes, end: float, places: list[float], labels: list[str]) -> None:
    axes.set(xscale="log", ylim=(end + 1, 0.4), yticks=places, yticklabels=labels)
    axes.axvline(1, color="#444444", linewidth=1)
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.5), max(high, 2))
    axes.axvspan(min(low, 0.5), 1, color=_AHEAD, alpha=0.06, linewidth=0)
    axes.axvspan(1, max(high, 2), color=_BEHIND, alpha=0.06, linewidth=0)
    axes.xaxis.set_major_formatter(lambda value, _position: f"{value:g}")
    axes.tick_params(axis="x", top=True, labeltop=True)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel(
        "time over the best peer's: left of 1 ahead, right of 1 behind; a dot a size, larger dots "
        "larger sizes;\nhollow: with data in the arena; | what the limit would take (a bound by "
        "arithmetic or by copying)"
    )
