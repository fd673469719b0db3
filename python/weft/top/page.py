# SPDX-License-Identifier: Apache-2.0
"""A view of a job as lines of a page of any width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "rank": lambda row: row["rank"],
    "late": lambda row: -row["late_share"],
    "wait": lambda row: -(row["wait_share"] or 0.0),
    "ops": lambda row: -(row["operations_per_s"] or 0.0),
    "bytes": lambda row: -(row["bytes_per_s"] or 0.0),
    "cpu": lambda row: -(row["cpu"] or 0.0),
}


def short(number: float | None, unit: str = "") -> str:
    """1234567 as 1.23M."""
    if number is None:
        return "-"
    for letter in ("", "k", "M", "G", "T"):
        if abs(number) < 999.5 or letter == "T":
            break
        number /= 1000
    digits = f"{number:.0f}" if number >= 99.5 or number == int(number) else f"{number:.3g}"
    return f"{digits}{letter}{unit}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}%"


def seconds(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 1:
        return f"{1000 * value:.1f}ms"
    return f"{value:.1f}s" if value < 100 else age(value)


def age(value: float) -> str:
    whole = int(value)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _title(view: dict[str, Any], note: str) -> str:
    job = view["job"]
    name = job["name"] or job["program"] or job["id"]
    hosts = f" on {job['hosts']} hosts" if job["hosts"] > 1 else ""
    ended = ", ended" if job["ended"] else ""
    size = f"{job['size']} rank{'s' if job['size'] > 1 else ''}"
    return f"weft top: {name}, {size}{hosts}, {age(job['age_s'])}{ended}{note}"


def _totals(view: dict[str, Any]) -> str:
    ranks = view["ranks"]
    operations = sum(row["operations_per_s"] or 0 for row in ranks)
    moved = sum(row["bytes_per_s"] or 0 for row in ranks)
    states: dict[str, int] = {}
    for row in ranks:
        states[row["state"]] = states.get(row["state"], 0) + 1
    counted = ", ".join(f"{count} {state}" for state, count in states.items())
    slow = view["slow_rank"]
    late = "" if slow is None else f"; slow: rank {slow['rank']} ({percent(slow['late_share'])})"
    return f"{short(operations)} operations/s, {short(moved, 'B')}/s; {counted}{late}"


def _waits(row: dict[str, Any]) -> str:
    """What a rank does, and whom it waits for."""
    doing = "nothing is known" if row["doing"] is None else row["doing"]
    what, _, number = doing.partition(", number")
    where = f" #{number.split()[0]}" if number else ""
    if row["waits_for"] is not None:
        return f"for rank {row['waits_for']}, {seconds(row['waits_s'])}: {what}{where}"
    return f"{what}{where}"


HEAD = ("rank", "pid", "state", "cpu", "ops/s", "B/s", "wait", "late", "doing")


def _rank_cells(row: dict[str, Any]) -> list[str]:
    return [
        str(row["rank"]),
        str(row["pid"]),
        row["state"],
        percent(row["cpu"]),
        short(row["operations_per_s"]),
        short(row["bytes_per_s"]),
        percent(row["wait_share"]),
        percent(row["late_share"]),
        _waits(row),
    ]


def _columns(head: Sequence[str], rows: list[list[str]], left: set[str]) -> list[str]:
    """Aligned; those named in `left` to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [list(head), *rows]) for i in range(len(head))]
    lines = []
    for row in [list(head), *rows]:
        cells = [
            cell.ljust(width) if name in left else cell.rjust(width)
            for cell, width, name in zip(row, widths, head, strict=True)
        ]
        lines.append(" ".join(cells).rstrip())
    return lines


def _arena(row: dict[str, Any]) -> str:
    """What is in use, and what is kept for later."""
    arena = row["arena"]
    if arena is None:
        return "-"
    kept = f"+{short(arena['kept'])}" if arena["kept"] else ""
    return f"{short(arena['in_use'])}{kept}"


def _rank_lines(view: dict[str, Any], sort: str) -> list[str]:
    rows = sorted(view["ranks"], key=SORTS[sort])
    head, cells = list(HEAD), [_rank_cells(row) for row in rows]
    if any(row["arena"] and row["arena"]["in_use"] + row["arena"]["kept"] for row in rows):
        at = head.index("wait")
        head.insert(at, "arena")
        for row, cell in zip(rows, cells, strict=True):
            cell.insert(at, _arena(row))
    if view["job"]["hosts"] > 1:
        head.insert(2, "host")
        for row, cell in zip(rows, cells, strict=True):
            cell.insert(2, row["host"][:12])
    return _columns(head, cells, {"host", "state", "doing"})


def _store_lines(view: dict[str, Any]) -> list[str]:
    if not view["stores"]:
        return []
    head = ("store", "keys", "pulls/s", "pushes/s", "local", "copies", "stale", "B/s", "hot keys")
    rows = []
    for store in view["stores"]:
        hot = " ".join(f"{hot['key']}({percent(hot['share'])})" for hot in store["hot"][:5])
        local = store["local_share"]
        rows.append(
            [
                f"{store['id']}",
                f"{short(store['keys'])} x {store['length'] or '?'} {store['type']}",
                short(store["pulls_per_s"]),
                short(store["pushes_per_s"]),
                percent(store["local_share_in_all"] if local is None else local),
                short(sum(store["copies_of_host"].values())),
                seconds(store["stale_s"]),
                short(store["bytes_per_s"], "B"),
                hot or "-",
            ]
        )
    return ["", *_columns(head, rows, {"hot keys", "keys"})]


def _region_lines(view: dict[str, Any]) -> list[str]:
    if not view["regions"]:
        return []
    head = ("region", "kind", "shape", "bytes", "a rank", "rows/s", "remote", "gathers/s")
    rows = []
    for region in view["regions"]:
        parts = region["bytes_of_rank"].values()
        low, high = short(min(parts), "B"), short(max(parts), "B")
        rows.append(
            [
                region["id"][:8],
                region["kind"],
                f"{' x '.join(map(str, region['shape']))} {region['type']}",
                short(region["bytes"], "B"),
                low if low == high else f"{low}-{high}",
                short(region["rows_per_s"]),
                percent(region["remote_share"]),
                short(region["gathers_per_s"]),
            ]
        )
    return ["", *_columns(head, rows, {"kind", "shape"})]


def lines(view: dict[str, Any], sort: str = "rank", note: str = "") -> list[str]:
    """All of it; the table of ranks begins with the third line."""
    below = [*_store_lines(view), *_region_lines(view)]
    if view["unknown"]:
        below += ["", *(f"({text})" for text in view["unknown"])]
    return [_title(view, note), _totals(view), *_rank_lines(view, sort), *below]


def _parts(view: dict[str, Any], height: int, below: int) -> tuple[int, bool]:
    """How many ranks a page shows at a time, and whether a line says which.

    What is below them gets at most half of the page, unless the ranks leave more.
    """
    ranks, room = len(view["ranks"]), max(1, height - 3)
    if ranks + below <= room:
        return ranks, False
    rows = max(room // 2, room - below, 1)
    return (ranks, False) if ranks <= rows else (max(1, rows - 1), rows > 1)


def first(view: dict[str, Any], height: int, start: int) -> int:
    """The rank that a page of this height begins with, which is to begin with `start`."""
    shown, _ = _parts(view, height, len(lines(view)) - 3 - len(view["ranks"]))
    return max(0, min(start, len(view["ranks"]) - shown))


def fit(
    view: dict[str, Any],
    size: tuple[int, int],
    sort: str = "rank",
    start: int = 0,
    note: str = "",
) -> list[str]:
    """As much as a terminal has room for: of the ranks those from `start` on."""
    width, height = size
    every = lines(view, sort, note)
    ranks = len(view["ranks"])
    head, rows, below = every[:3], every[3 : 3 + ranks], every[3 + ranks :]
    count, told = _parts(view, height, len(below))
    start = first(view, height, start)
    shown = rows[start : start + count]
    if told:
        shown.append(f"... ranks {start + 1} to {start + count} of {ranks}")
    return [text[:width] for text in [*head, *shown, *below][:height]]
