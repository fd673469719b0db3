# SPDX-License-Identifier: Apache-2.0
"""Which operator was a sample taken in? Both know the process, the thread and the time.

Kernels written in assembly or generated at run time cannot be unwound: perf does not know who
called them, but the operator that ran meanwhile does. Threads that run no operators of their own,
such as OpenMP's, work for the one thread of their process that does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from .samples import UNKNOWN, Frame, Sample, is_python

OPERATOR = "operator"  # what a flame graph has instead of a library
_CALLS = frozenset({"cpu_op", "user_annotation", "weft"})
# The first function of a program or of a thread; a stack that does not end there is cut off.
_FIRST = frozenset({"_start", "clone", "clone3", "__clone", "__clone3", "ret_from_fork_asm"})

_Key = tuple[int, int]


def attribute(
    samples: list[Sample], events: Iterable[dict[str, Any]], epoch: float
) -> list[Sample]:
    """The samples, each with the operators that it lies in, the outermost first."""
    threads: dict[_Key, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") in _CALLS:
            threads[event["pid"], event["tid"]].append(event)
    callers: dict[int, list[int]] = defaultdict(list)
    for pid, tid in threads:
        callers[pid].append(tid)
    asked: dict[_Key, list[int]] = defaultdict(list)
    for i, sample in enumerate(samples):
        key = (sample.pid, sample.tid)
        if key not in threads and len(callers[sample.pid]) == 1:
            key = (sample.pid, callers[sample.pid][0])
        if key in threads:
            asked[key].append(i)
    found = list(samples)
    for key, indices in asked.items():
        indices.sort(key=lambda i: samples[i].time)
        times = [(samples[i].time + epoch) * 1e6 for i in indices]
        for i, names in zip(indices, _open_at(threads[key], times), strict=True):
            found[i] = replace(samples[i], operators=names)
    return found


def _open_at(events: list[dict[str, Any]], times: list[float]) -> list[tuple[str, ...]]:
    """The names of the events that are open at each of the rising times."""
    events.sort(key=lambda event: (event["ts"], -event["dur"]))
    open_: list[tuple[float, str]] = []
    at, found = 0, []
    for time in times:
        while at < len(events) and events[at]["ts"] <= time:
            event = events[at]
            open_ = [entry for entry in open_ if entry[0] > event["ts"]]
            open_.append((event["ts"] + event["dur"], event["name"]))
            at += 1
        open_ = [entry for entry in open_ if entry[0] > time]
        found.append(tuple(name for _, name in open_))
    return found


def rooted(sample: Sample) -> list[Frame]:
    """The stack from the first caller on; what it lacks, the operators stand for."""
    stack = [*reversed(sample.stack)]
    # A stack with Python in it holds its operators already; only its beginning was cut off.
    whole = stack[0].function in _FIRST or any(is_python(frame.library) for frame in stack)
    if sample.operators and not whole:
        return [*(Frame(name, OPERATOR) for name in sample.operators), *stack]
    return stack


def by_operator(samples: Iterable[Sample]) -> dict[str, tuple[float, Frame, float]]:
    """CPU time of each operator itself, the function with most of it, and that one's share.

    A function without a name is only told of if there is no other.
    """
    spent: dict[str, dict[Frame, float]] = defaultdict(lambda: defaultdict(float))
    for sample in samples:
        if sample.operators and sample.stack:
            spent[sample.operators[-1]][sample.stack[0]] += sample.seconds
    found = {}
    for name, frames in spent.items():
        whole = sum(frames.values())
        named = {f: time for f, time in frames.items() if f.function != UNKNOWN} or frames
        frame, most = max(named.items(), key=lambda item: item[1])
        found[name] = (whole, frame, most / whole if whole else 0.0)
    return found
