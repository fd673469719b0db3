# SPDX-License-Identifier: Apache-2.0
"""A trace in Chrome's JSON, which Perfetto opens: operators, and stacks as they changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from .result import Result
from .samples import Frame, Sample, folded

# Threads of samples stand beside those of operators: numbers that no thread of Linux has.
_SAMPLES = 1 << 23
_DEPTH = 96


def render(result: Result) -> dict[str, Any]:
    """The trace; its time begins with the first event."""
    events = [*result.events, *_sample_events(result)]
    begin = min((event["ts"] for event in events), default=0.0)
    shifted = [{**event, "ts": round(event["ts"] - begin, 3)} for event in events]
    return {
        "displayTimeUnit": "ms",
        "otherData": {"program": " ".join(result.program), "tools": ", ".join(result.tools)},
        "traceEvents": [*_names(result), *shifted],
    }


def _names(result: Result) -> Iterator[dict[str, Any]]:
    for order, (pid, label) in enumerate(result.labels.items()):
        yield _about(pid, 0, "process_name", name=label)
        yield _about(pid, 0, "process_sort_index", sort_index=order)
    threads = {(sample.pid, sample.tid): sample.thread for sample in result.samples}
    for (pid, tid), name in threads.items():
        text = f"samples of {name or 'thread'} {tid}"
        yield _about(pid, tid + _SAMPLES, "thread_name", name=text)


def _about(pid: int, tid: int, what: str, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": args}


def _sample_events(result: Result) -> Iterator[dict[str, Any]]:
    threads: dict[tuple[int, int], list[Sample]] = defaultdict(list)
    for sample in result.samples:
        threads[sample.pid, sample.tid].append(sample)
    for samples in threads.values():
        samples.sort(key=lambda sample: sample.time)
        yield from _slices(samples, result.epoch)


def _slices(samples: list[Sample], epoch: float) -> Iterator[dict[str, Any]]:
    """Calls that are on successive stacks become one slice, until one is missing or time passes."""
    open_: list[tuple[Frame, float]] = []
    before = 0.0
    for sample in samples:
        stack = folded(reversed(sample.stack))[:_DEPTH]
        begin = sample.time - sample.seconds
        same = 0
        if begin <= before + 2 * sample.seconds:  # else it slept in between
            while same < min(len(stack), len(open_)) and open_[same][0] == stack[same]:
                same += 1
        for frame, since in reversed(open_[same:]):
            yield _slice(samples[0], frame, since + epoch, before - since)
        del open_[same:]
        start = max(begin, before)
        open_ += [(frame, start) for frame in stack[same:]]
        before = sample.time
    for frame, since in reversed(open_):
        yield _slice(samples[0], frame, since + epoch, before - since)


def _slice(thread: Sample, frame: Frame, begin: float, seconds: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "sample",
        "name": frame.function,
        "pid": thread.pid,
        "tid": thread.tid + _SAMPLES,
        "ts": begin * 1e6,
        "dur": round(max(seconds, 0) * 1e6, 3),
        "args": {"library": frame.library},
    }
