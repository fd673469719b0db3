# SPDX-License-Identifier: Apache-2.0
"""Compile the drivers, once for each machine and library, into the user's cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "driver"
# What every program of the collectives has, and what measures calls of a backend.
COMMON = ("main.c", "page.c", "op.c")
MEASURE = (*COMMON, "measure.c", "call.c", "data.c", "timed.c", "cycle.c")


@dataclass(frozen=True)
class Driver:
    """What is compiled for the ranks of a family, from files of `driver`."""

    name: str
    units: tuple[str, ...]
    flags: tuple[str, ...] = ("-O3",)
    libweft: bool = False  # linked with it; its ranks are told of their job


# What ranks in Python meet on.
PAGE = Driver("page", ("page.c",), ("-O2", "-shared", "-fPIC"))


class BuildError(Exception):
    """A driver could not be built; the text says why."""


def _package_folders() -> list[Path]:
    """Where an installed weft lies: an editable install has its sources elsewhere."""
    folders = [Path(__file__).parents[1]]
    for name in ("platlib", "purelib"):
        folders.append(Path(sysconfig.get_path(name)) / "weft")
    return folders


def find_library() -> tuple[Path, Path]:
    """libweft and the folder of its headers: installed with the package, or in a source tree."""
    source = Path(__file__).parents[3]
    includes = [folder / "include" for folder in _package_folders()]
    includes.append(source / "include")
    include = next((path for path in includes if (path / "weft" / "weft.h").is_file()), None)
    for folder in _package_folders():
        for name in ("libweft.so.0", "lib/libweft.so.0", "libweft.so"):
            if include is not None and (folder / name).is_file():
                return folder / name, include
    built = sorted(source.glob("build/**/libweft.so.0"), key=lambda p: p.stat().st_mtime)
    if include is not None and built:
        return built[-1], include
    raise BuildError("libweft is neither in the package nor in a build folder of its source tree")


def cache_folder() -> Path:
    """The user's cache, or a folder of the user's own under TMPDIR where that is read-only."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "weft" / "bench"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    folder = Path(tempfile.gettempdir()) / f"weft-bench-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise BuildError(f"{folder} belongs to somebody else")
    return folder


def _cpu_flags() -> bytes:
    """A cache may be shared by machines; -march=native is not for all of them."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return b""
    return next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")


def _key(command: list[str], include: Path | None) -> str:
    digest = hashlib.sha256(" ".join(command).encode())
    digest.update(_cpu_flags())
    files = sorted(SOURCES.glob("*.[ch]"))
    if include is not None:
        files += sorted(include.glob("weft/*.h"))
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def build(driver: Driver, compiler: str, library: tuple[Path, Path] | None = None) -> Path:
    """The program or library of `driver`, compiled now unless the cache has it."""
    flags = ["-std=gnu11", *driver.flags]
    units = [str(SOURCES / unit) for unit in driver.units]
    include = None
    tail: list[str] = []
    if driver.libweft:
        path, include = library or find_library()
        flags.append(f"-I{include}")
        tail = [str(path), f"-Wl,-rpath,{path.parent}"]
    command = [compiler, *flags, *units, *tail]
    target = cache_folder() / f"{driver.name}-{_key(command, include)}"
    if not target.exists():
        _compile(command, target)
    return target


def _compile(command: list[str], target: Path) -> None:
    # Under a name of its own first: another run may be building the same thing.
    fd, fresh = tempfile.mkstemp(prefix=target.name, dir=target.parent)
    os.close(fd)
    try:
        done = subprocess.run(
            [*command, "-o", fresh], capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode != 0:
            lines = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()
            raise BuildError(f"{command[0]} failed: {lines[-1]}")
        Path(fresh).chmod(0o755)
        os.replace(fresh, target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} failed: {error}") from error
    finally:
        Path(fresh).unlink(missing_ok=True)
