# SPDX-License-Identifier: Apache-2.0
"""Operators of PyTorch and weft's own operations, as hook/sitecustomize.py recorded them."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .processes import rank_in, short_command

HOOK = Path(__file__).with_name("hook")
# Those of torch.profiler's events that are calls on the CPU, and those on a device.
_CALLS = frozenset({"cpu_op", "user_annotation"})
_KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
# An event beside each call of torch.distributed that repeats it, and the profiler's own.
_REPEATED = ("record_param_comms", "ProfilerStep", "PyTorch Profiler")
# Bytes of an element, by the words that torch.profiler has for its type.
_ITEM = {
    **dict.fromkeys(("bool", "signed char", "unsigned char"), 1),
    **dict.fromkeys(("c10::Half", "c10::BFloat16", "short int"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long int", "c10::complex<float>"), 8),
    "c10::complex<double>": 16,
}


@dataclass
class Operator:
    """All calls of one operator."""

    name: str
    calls: int = 0
    own: float = 0.0  # seconds
    total: float = 0.0
    bytes: int = 0
    ranks: set[int] = field(default_factory=set)
    device: bool = False

    @property
    def is_weft(self) -> bool:
        return self.name.startswith("weft:") or self.name.startswith("weft::")


@dataclass
class Recorded:
    """What the processes of a program recorded."""

    events: list[dict[str, Any]] = field(default_factory=list)  # ts in microseconds since the epoch
    ranks: dict[int, int] = field(default_factory=dict)
    commands: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    hooked: int = 0  # processes that ended as they should


def environment(folder: Path, seconds: float | None, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that records into `folder`."""
    path = os.pathsep.join(filter(None, (str(HOOK), given.get("PYTHONPATH"))))
    settings = json.dumps({"folder": str(folder), "seconds": seconds})
    # Else torch's profiler writes lines of its own among those of the program.
    quiet = {"KINETO_LOG_LEVEL": given.get("KINETO_LOG_LEVEL", "99")}
    return {**given, **quiet, "PYTHONPATH": path, "_WEFT_PROFILE": settings}


def read(folder: Path) -> Recorded:
    """What is in the folder; a file that is broken off is noted, not fatal."""
    found = Recorded()
    for path in sorted(folder.glob("process-*.json")):
        _read_process(path, found)
    for path in sorted(folder.glob("torch-*.json")):
        try:
            events = torch_events(json.loads(path.read_text(errors="replace")))
            found.events += _told(events, found.ranks.get(_pid(path)))
        except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            found.notes.append(f"no operators of process {_pid(path)}: {error}")
    for path in sorted(folder.glob("error-*.txt")):
        why = path.read_text(errors="replace").strip().splitlines()
        found.notes.append(f"operators of process {_pid(path)}: {why[-1] if why else 'failed'}")
    return found


def _pid(path: Path) -> int:
    number = path.stem.rsplit("-", 1)[-1]
    return int(number) if number.isdecimal() else 0


def _read_process(path: Path, found: Recorded) -> None:
    pid = _pid(path)
    try:
        about = json.loads(path.read_text())
        rank = rank_in(about["environment"])
        command = short_command(["python", *about["argv"]])
        events = [_own_event(pid, call) for call in about["calls"]]
    except (ValueError, TypeError, KeyError, OSError) as error:
        found.notes.append(f"nothing from process {pid}: {error}")
        return
    if rank is not None:
        found.ranks[pid] = rank
    found.commands[pid] = command
    found.events += events
    found.hooked += 1
    if about.get("cut"):
        found.notes.append(f"operators of process {pid}: the first seconds only, as asked for")


def _own_event(pid: int, call: list[Any]) -> dict[str, Any]:
    name, size, rank, world, begin, end = call
    return {
        "ph": "X",
        "cat": "weft",
        "name": f"weft:{name}",
        "pid": pid,
        "tid": pid,
        "ts": begin / 1e3,
        "dur": (end - begin) / 1e3,
        "args": {"bytes": size, "rank": rank, "world size": world},
    }


def torch_events(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls in a trace of torch.profiler, on the clock of the epoch."""
    base = trace.get("baseTimeNanoseconds", 0) / 1e3
    events = []
    for event in trace["traceEvents"]:
        if event.get("ph") != "X" or event.get("cat") not in _CALLS | _KERNELS:
            continue
        if str(event["name"]).startswith(_REPEATED):
            continue
        events.append({**event, "ts": float(event["ts"]) + base, "dur": float(event["dur"])})
    return events


def _told(events: list[dict[str, Any]], rank: int | None) -> list[dict[str, Any]]:
    """The events, those of weft.mpi once for each call and with bytes and rank.

    They are operators of PyTorch: the profiler shows a call again in each layer of its dispatcher,
    and knows shapes only.
    """
    kept = []
    ends: dict[tuple[Any, str], float] = {}
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        name = event["name"]
        if name.startswith("weft::"):
            key = (event["tid"], name)
            if _end(event) <= ends.get(key, 0.0):
                continue
            ends[key] = _end(event)
            told = {"bytes": _input_bytes(event.get("args", {}))}
            told |= {} if rank is None else {"rank": rank}
            kept.append({**event, "args": {**told, **event.get("args", {})}})
        else:
            kept.append(event)
    return kept


def _input_bytes(args: dict[str, Any]) -> int:
    """The bytes of all tensors that went in."""
    total = 0
    for kind, shape in zip(args.get("Input type", ()), args.get("Input Dims", ()), strict=False):
        if kind in _ITEM and all(isinstance(n, int) for n in shape):
            total += _ITEM[kind] * math.prod(shape)
    return total


def operators(events: Iterable[dict[str, Any]]) -> list[Operator]:
    """Events summed up by name, the longest first."""
    threads: dict[tuple[Any, Any], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        threads[event["pid"], event["tid"]].append(event)
    found: dict[tuple[str, bool], Operator] = {}
    for calls in threads.values():
        for event, own in _with_own_time(calls):
            device = event.get("cat") in _KERNELS
            key = (event["name"], device)
            operator = found.setdefault(key, Operator(event["name"], device=device))
            _count(operator, event, own)
    return sorted(found.values(), key=lambda op: (-op.own, op.name))


def _count(operator: Operator, event: dict[str, Any], own: float) -> None:
    args = event.get("args", {})
    operator.calls += 1
    operator.own += own / 1e6
    operator.total += event["dur"] / 1e6
    if operator.is_weft:
        operator.bytes += int(args.get("bytes", 0))
        if "rank" in args:
            operator.ranks.add(int(args["rank"]))


def _with_own_time(calls: list[dict[str, Any]]) -> list[tuple[dict[str, Any], float]]:
    """Each event of a thread with the time that no event inside it has."""
    calls.sort(key=lambda event: (event["ts"], -event["dur"]))
    own = [event["dur"] for event in calls]
    open_: list[int] = []
    for i, event in enumerate(calls):
        while open_ and event["ts"] >= _end(calls[open_[-1]]):
            open_.pop()
        # One that only overlaps, as an operation that goes on while others begin, is inside none.
        if open_ and _end(event) <= _end(calls[open_[-1]]):
            own[open_[-1]] -= event["dur"]
        if not open_ or _end(event) <= _end(calls[open_[-1]]):
            open_.append(i)
    return [(event, max(time, 0.0)) for event, time in zip(calls, own, strict=True)]


def _end(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])
