# SPDX-License-Identifier: Apache-2.0
"""glibc's LD_PROFILE: time in one shared library, and how often others called its functions.

The dynamic loader counts calls that come through procedure linkage tables, and samples the library
100 times a second of CPU time, into a file named after the library; all processes of a program add
to the same file. Its reader is sprof; that of glibc 2.36 aborts on libraries that it has to load,
and gives the time of others to the wrong functions, so the file is read here.
"""

from __future__ import annotations

import array
import os
import re
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from . import ProfileError, elf
from .samples import UNKNOWN, is_library

_HEAD = struct.Struct("<4sI12s")  # "gmon", version, nothing
_HISTOGRAM = struct.Struct("<IQQIi15sc")  # tag, first and last address, buckets, rate, unit
_ARCS = struct.Struct("<II")  # tag, how many
_ARC = struct.Struct("<QQI")  # from, to, times
_VERSION = 0x1FFFF


@dataclass
class Counts:
    """What the loader counted of one library."""

    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Histogram:
    """A profile as it lies in the file, addresses relative to the library."""

    low: int
    high: int
    rate: int
    ticks: list[tuple[int, int]]  # first address of a bucket, samples in it
    arcs: list[tuple[int, int, int]]  # caller (0: outside of the library), function, times


def parse(data: bytes | memoryview) -> Histogram:
    """Read a profile; ValueError if it is none or is broken off."""
    try:
        magic, version, _ = _HEAD.unpack_from(data, 0)
        tag, low, high, buckets, rate, _, _ = _HISTOGRAM.unpack_from(data, _HEAD.size)
        at = _HEAD.size + _HISTOGRAM.size
        if magic != b"gmon" or version != _VERSION or tag != 0:
            raise ValueError("it is no profile of glibc's")
        if high <= low or rate <= 0 or at + 2 * buckets + _ARCS.size > len(data):
            raise ValueError("its histogram is broken")
        ticks = list(_ticks(memoryview(data)[at : at + 2 * buckets], low, high))
        at += 2 * buckets
        tag, count = _ARCS.unpack_from(data, at)
        at += _ARCS.size
        if count and (tag != 1 or at + count * _ARC.size > len(data)):
            raise ValueError("its list of calls is broken")
        calls = _ARC.iter_unpack(memoryview(data)[at : at + count * _ARC.size])
        # They count from the first address of the code, the histogram from that of the file.
        arcs = [(start, low + to, times) for start, to, times in calls]
    except struct.error as error:
        raise ValueError(f"it is broken off ({error})") from None
    return Histogram(low, high, rate, ticks, arcs)


def _ticks(view: memoryview, low: int, high: int) -> Iterator[tuple[int, int]]:
    """The buckets that are not empty. Most of a large library is, so whole pages are skipped."""
    count = len(view) // 2
    width = (high - low) / count if count else 0
    page = 1 << 16
    empty = bytes(page)
    for start in range(0, len(view), page):
        part = bytes(view[start : start + page])
        if part == empty[: len(part)]:
            continue
        numbers = array.array("H", part)
        if sys.byteorder != "little":
            numbers.byteswap()
        for i, ticks in enumerate(numbers, start // 2):
            if ticks:
                yield low + int(i * width), ticks


def counts(profile: Histogram, library: elf.Object) -> Counts:
    """Time and calls by function."""
    found = Counts()
    ticks: Counter[str] = Counter()
    for address, samples in profile.ticks:
        ticks[library.function(address) or UNKNOWN] += samples
    calls: Counter[str] = Counter()
    for _, to, times in profile.arcs:
        calls[library.function(to) or UNKNOWN] += times
    plain = elf.readable([*{*ticks, *calls}])
    for name, samples in ticks.items():
        found.seconds[plain[name]] = found.seconds.get(plain[name], 0) + samples / profile.rate
    for name, times in calls.items():
        found.calls[plain[name]] = found.calls.get(plain[name], 0) + times
    return found


def folders(given: Mapping[str, str]) -> Iterator[str]:
    """Where a library may lie, best first: LD_PROFILE_PATH, the loader's and Python's folders."""
    for name in ("LD_PROFILE_PATH", "LD_LIBRARY_PATH"):
        yield from filter(None, given.get(name, "").split(":"))
    for path in filter(None, re.split("[ :]", given.get("LD_PRELOAD", ""))):
        yield os.path.dirname(path) or "."
    for prefix in dict.fromkeys((given.get("VIRTUAL_ENV"), given.get("CONDA_PREFIX"), sys.prefix)):
        if prefix:
            yield os.path.join(prefix, "lib")
    for site in (path for path in sys.path if path.endswith("-packages")):
        yield os.path.join(site, "torch", "lib")
        yield from _wheels(site)
    yield from _cached()


def _wheels(site: str) -> Iterator[str]:
    """Folders of libraries that come with wheels: numpy.libs and the like."""
    try:
        entries = os.listdir(site)
    except OSError:
        return
    for name in sorted(entries):
        if name.endswith(".libs"):
            yield os.path.join(site, name)


def _cached() -> Iterator[str]:
    """Folders in which ldconfig has found libraries."""
    tool = shutil.which("ldconfig") or "/sbin/ldconfig"
    try:
        done = subprocess.run([tool, "-p"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
    paths = (line.rsplit(" => ", 1)[1] for line in done.stdout.splitlines() if " => " in line)
    yield from dict.fromkeys(os.path.dirname(path) for path in paths)


def find(wanted: str, given: Mapping[str, str]) -> elf.Object:
    """The library that a person means; ProfileError if there is none."""
    if "/" in wanted:
        return _read(wanted)
    for folder in dict.fromkeys(folders(given)):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            if is_library(name, wanted):
                path = os.path.join(folder, name)
                try:
                    return _read(path)
                except ProfileError:
                    continue  # a linker script, such as libm.so
    where = (
        f"in LD_PROFILE_PATH={given['LD_PROFILE_PATH']} nor " if "LD_PROFILE_PATH" in given else ""
    )
    raise ProfileError(
        f"there is no library {wanted} {where}where the loader looks; give its path, or its folder "
        "in LD_PROFILE_PATH"
    )


def _read(path: str) -> elf.Object:
    try:
        return elf.read(path)
    except (elf.NotElf, OSError) as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise ProfileError(f"{path}: {text}" if path not in str(text) else str(text)) from error


def soname(library: elf.Object) -> str:
    """What the loader calls the library, and LD_PROFILE must."""
    return library.soname or os.path.basename(library.file)


def environment(library: elf.Object, folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program in which the loader counts into `folder`."""
    return {**given, "LD_PROFILE": soname(library), "LD_PROFILE_OUTPUT": str(folder)}


def read(library: elf.Object, folder: Path) -> Histogram | None:
    """What the loader wrote; None if it wrote nothing."""
    path = folder / f"{soname(library)}.profile"
    try:
        # It is as large as the library's code, and nearly all of it a hole.
        with open(path, "rb") as file:
            return parse(_mapped(file.fileno()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ProfileError(f"the profile that the loader wrote cannot be read: {error}") from error


def _mapped(descriptor: int) -> memoryview:
    import mmap

    size = os.fstat(descriptor).st_size
    if size == 0:
        raise ValueError("it is empty")
    return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))


def why_nothing(library: elf.Object, given: Mapping[str, str], loaded: bool) -> str:
    """Why the loader counted nothing of a library, and what to do."""
    name = soname(library)
    if not loaded:
        return f"the program did not load {name} ({library.file})"
    if library.bound_at_load or given.get("LD_BIND_NOW"):
        cause = "LD_BIND_NOW is set" if given.get("LD_BIND_NOW") else "it was linked with -z now"
        remedy = "unset LD_BIND_NOW" if given.get("LD_BIND_NOW") else "link it with -Wl,-z,lazy"
        return (
            f"{name} is bound at load time ({cause}), and of its calls none was counted: {remedy}, "
            "or use --tool perf"
        )
    if not library.lazy_calls:
        return (
            f"{name} calls no other library through a linkage table (it has no DT_JMPREL), and the "
            "loader profiles only those that do: use --tool perf"
        )
    return f"{name} was loaded, but no sample fell into it and nobody called it by its table"
