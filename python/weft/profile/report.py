# SPDX-License-Identifier: Apache-2.0
"""The profile as tables for people, and as data for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..bench.report import table
from ..bench.units import format_size
from .result import Result

_NAME = 72


def short(name: str, width: int = _NAME) -> str:
    """A function's name without the middle of what is too long to read: C++ has such names."""
    if len(name) <= width:
        return name
    tail = width // 3
    return f"{name[: width - tail - 3]}...{name[-tail:]}"


def seconds(value: float) -> str:
    return f"{value:.3f} s" if value >= 0.0995 else f"{value * 1e3:.2f} ms"


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def text(result: Result, rows: int) -> str:
    """All tables, each with its `rows` largest rows."""
    parts = [
        _processes(result),
        _libraries(result, rows),
        _functions(result, rows),
        _calls(result, rows),
        _operators(result, rows),
        _weft(result),
        *result.notes,
    ]
    return "\n\n".join(filter(None, parts))


def _rest(shown: Sequence[Any], all_: Sequence[Any]) -> str:
    more = len(all_) - len(shown)
    return f"\n... and {more} more" if more > 0 else ""


def _processes(result: Result) -> str:
    if len(result.labels) < 2 or not result.samples:
        return ""
    rows = []
    for pid, label in result.labels.items():
        time = sum(sample.seconds for sample in result.samples if sample.pid == pid)
        rows.append((label, seconds(time), share(time, result.seconds)))
    return table(("process", "CPU time", "share"), rows)


def _libraries(result: Result, rows: int) -> str:
    all_ = list(result.libraries.items())
    shown = [(name, spent) for name, spent in all_ if spent.own][:rows]
    lines = [
        (name, seconds(spent.own), share(spent.own, result.seconds), seconds(spent.total))
        for name, spent in shown
    ]
    return table(("library", "self", "share", "with callees"), lines) if lines else ""


def _functions(result: Result, rows: int) -> str:
    all_ = [(frame, spent) for frame, spent in result.functions.items() if spent.own]
    shown = all_[:rows]
    lines = [
        (
            short(frame.function),
            seconds(spent.own),
            share(spent.own, result.seconds),
            seconds(spent.total) if result.has_stacks else "-",
            frame.library,
        )
        for frame, spent in shown
    ]
    if not lines:
        return ""
    head = ("function", "self", "share", "with callees", "library")
    return table(head, lines) + _rest(shown, all_)


def _calls(result: Result, rows: int) -> str:
    all_ = sorted(result.calls.items(), key=lambda item: (-item[1], item[0]))
    shown = all_[:rows]
    lines = [(short(name), str(times)) for name, times in shown]
    if not lines:
        return ""
    return table((f"called in {result.library}", "times"), lines) + _rest(shown, all_)


def _operators(result: Result, rows: int) -> str:
    all_ = [op for op in result.operators if not op.is_weft]
    shown = all_[:rows]
    whole = sum(op.own for op in result.operators if not op.device)
    lines = [
        (
            short(op.name) + (" (device)" if op.device else ""),
            seconds(op.own),
            "-" if op.device else share(op.own, whole),
            seconds(op.total),
            str(op.calls),
            *([mostly(result, op.name, 44)] if result.inside else []),
        )
        for op in shown
    ]
    if not lines:
        return ""
    head = ["operator", "self", "share", "total", "calls"]
    head += ["CPU time mostly in"] if result.inside else []
    return table(head, lines) + _rest(shown, all_)


def mostly(result: Result, operator: str, width: int) -> str:
    """The function in which an operator spends most of its CPU time, as far as samples tell."""
    if operator not in result.inside:
        return ""
    _, frame, part = result.inside[operator]
    return f"{short(frame.function, width)} ({frame.library}) {100 * part:.0f} %"


def _weft(result: Result) -> str:
    lines = [
        (
            op.name,
            seconds(op.total),
            str(op.calls),
            format_size(op.bytes) if op.bytes else "-",
            ", ".join(map(str, sorted(op.ranks))) or "-",
        )
        for op in result.operators
        if op.is_weft
    ]
    head = ("operation of weft", "time", "calls", "bytes", "ranks")
    return table(head, lines) if lines else ""


def _inside(result: Result, operator: str) -> dict[str, Any]:
    if operator not in result.inside:
        return {}
    cpu, frame, part = result.inside[operator]
    return {"cpu": cpu, "mostly": [frame.function, frame.library, part]}


def data(result: Result) -> dict[str, Any]:
    """The same for `--json`, with all rows."""
    return {
        "program": result.program,
        "status": result.status,
        "tools": result.tools,
        "library": result.library,
        "seconds": result.seconds,
        "samples": len(result.samples),
        "processes": {str(pid): label for pid, label in result.labels.items()},
        "libraries": [
            {"library": name, "self": spent.own, "total": spent.total}
            for name, spent in result.libraries.items()
        ],
        "functions": [
            {
                "function": frame.function,
                "library": frame.library,
                "self": spent.own,
                "total": spent.total if result.has_stacks else None,
            }
            for frame, spent in result.functions.items()
        ],
        "calls": result.calls,
        "operators": [
            {
                "operator": op.name,
                "self": op.own,
                "total": op.total,
                "calls": op.calls,
                "device": op.device,
                **_inside(result, op.name),
                **({"bytes": op.bytes, "ranks": sorted(op.ranks)} if op.is_weft else {}),
            }
            for op in result.operators
        ],
        "notes": result.notes,
        "files": [str(file) for file in result.files],
    }
