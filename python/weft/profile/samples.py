# SPDX-License-Identifier: Apache-2.0
"""Samples of a program: which stack of calls was seen, where, and for how long it stands."""

from __future__ import annotations

import functools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from . import elf

UNKNOWN = "[unknown]"
KERNEL = "[kernel]"
JIT = "[jit]"
_PYTHON = re.compile(r"^(libpython3\.\d+\S*|python3?(\.\d+)?)$")
_JIT_MAP = re.compile(r"^(/tmp/perf-\d+\.map|//anon|\[heap\]|\[stack\])$")


class Frame(NamedTuple):
    """A call on a stack."""

    function: str
    library: str  # a file's name without its folder, or KERNEL, JIT or UNKNOWN


@dataclass(frozen=True)
class Sample:
    """One look at a thread. `stack` goes from the function that ran to the first that called."""

    pid: int
    tid: int
    time: float  # seconds on the monotonic clock
    seconds: float  # of CPU time that the sample stands for
    stack: tuple[Frame, ...]
    thread: str = ""
    operators: tuple[str, ...] = ()  # of PyTorch that were under way, the outermost first


@dataclass
class Spent:
    """Time in a function or library itself, and in it with all that it called."""

    own: float = 0.0
    total: float = 0.0


@dataclass
class Node:
    """A call in the tree of all stacks."""

    frame: Frame
    own: float = 0.0
    total: float = 0.0
    children: dict[Frame, Node] = field(default_factory=dict)


@functools.cache
def library_name(file: str) -> str:
    """What tables call the object that a frame lies in: by its own name, whatever its file's is."""
    if file.startswith("[kernel") or file.startswith("[guest.kernel") or file == "[vdso]":
        return KERNEL
    if file.startswith("[") and file.endswith("]") and file.strip("[]") in _kernel_modules():
        return KERNEL
    if _JIT_MAP.match(file):
        return JIT
    return elf.soname(file) or os.path.basename(file.removesuffix(" (deleted)")) or UNKNOWN


@functools.cache
def _kernel_modules() -> frozenset[str]:
    try:
        with open("/proc/modules") as lines:
            return frozenset(line.split()[0] for line in lines)
    except OSError:
        return frozenset()


def is_library(name: str, wanted: str) -> bool:
    """Does `wanted`, as a person types it, mean this library?

    A whole name (libm.so.6), one without version (libm.so, libm), or without lib (m); of a path,
    the name of the library that lies there counts.
    """
    wanted = library_name(wanted) if "/" in wanted else wanted
    if name == wanted:
        return True
    stems = {wanted, wanted.removesuffix(".so"), f"lib{wanted}"}
    return any(name.startswith(f"{stem}.so") for stem in stems)


def within(samples: Iterable[Sample], wanted: str) -> list[Sample]:
    """Those in whose stack the library is, each from the first call into it."""
    kept = []
    for sample in samples:
        depth = next(
            (
                i
                for i in range(len(sample.stack) - 1, -1, -1)
                if is_library(sample.stack[i].library, wanted)
            ),
            None,
        )
        if depth is not None:
            kept.append(replace(sample, stack=sample.stack[: depth + 1]))
    return kept


def by_library(samples: Iterable[Sample]) -> dict[str, Spent]:
    """Time of each library; a library that is twice on a stack counts once in its total."""
    spent: dict[str, Spent] = defaultdict(Spent)
    for sample in samples:
        if sample.stack:
            spent[sample.stack[0].library].own += sample.seconds
        for library in {frame.library for frame in sample.stack}:
            spent[library].total += sample.seconds
    return dict(sorted(spent.items(), key=lambda item: (-item[1].own, -item[1].total, item[0])))


def by_function(samples: Iterable[Sample]) -> dict[Frame, Spent]:
    """Time of each function."""
    spent: dict[Frame, Spent] = defaultdict(Spent)
    for sample in samples:
        if sample.stack:
            spent[sample.stack[0]].own += sample.seconds
        for frame in set(sample.stack):
            spent[frame].total += sample.seconds
    return dict(sorted(spent.items(), key=lambda item: (-item[1].own, -item[1].total, item[0])))


def is_python(library: str) -> bool:
    """Is it the interpreter?"""
    return _PYTHON.match(library) is not None


def folded(stack: Iterable[Frame]) -> list[Frame]:
    """A stack, from the first caller on, whose long runs inside the interpreter are two calls.

    One call in Python is four or more in C, and imports lie in each other: drawn in full, they
    hide what a program does.
    """
    kept: list[Frame] = []
    run: list[Frame] = []
    for frame in stack:
        if is_python(frame.library):
            run.append(frame)
            continue
        kept += _run(run)
        run = []
        kept.append(frame)
    return [*kept, *_run(run)]


def _run(run: list[Frame]) -> list[Frame]:
    return [Frame("Python", run[-1].library), run[-1]] if len(run) > 2 else run


def tree(
    samples: Iterable[Sample],
    labels: dict[int, str],
    path_of: Callable[[Sample], Iterable[Frame]] = lambda sample: reversed(sample.stack),
) -> Node:
    """All stacks in one tree, under a node for each process if there are several."""
    root = Node(Frame("all", ""))
    several = len(labels) > 1
    for sample in samples:
        path = folded(path_of(sample))
        if several:
            path.insert(0, Frame(labels.get(sample.pid, f"process {sample.pid}"), ""))
        _add(root, path, sample.seconds)
    return root


def _add(root: Node, path: list[Frame], seconds: float) -> None:
    node = root
    node.total += seconds
    for frame in path:
        child = node.children.get(frame)
        if child is None:
            child = node.children[frame] = Node(frame)
        node = child
        node.total += seconds
    node.own += seconds


def nameless(samples: Iterable[Sample]) -> Iterator[tuple[str, float, float]]:
    """Libraries most of whose own time has no function's name: name, that time, all of its time."""
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for sample in samples:
        if sample.stack:
            frame = sample.stack[0]
            spent[frame.library][1] += sample.seconds
            if frame.function == UNKNOWN:
                spent[frame.library][0] += sample.seconds
    for library, (unknown, own) in sorted(spent.items(), key=lambda item: -item[1][1]):
        if library not in (UNKNOWN, KERNEL, JIT) and unknown > own / 2:
            yield library, unknown, own
