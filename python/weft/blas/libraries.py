# SPDX-License-Identifier: Apache-2.0
"""The BLAS libraries on this machine: where they are, what they say of themselves, how a
program is started so that one of them serves PyTorch's calls.

Names: "openblas-pthread" is a kind and its threads, "openblas" the best of a kind, "reference",
"mkl" and "atlas" have no variants; any other library is named by its path. When two files
would have one name, the environment's own comes before the system's, and the other is named
by its path; the best of a kind is the environment's own if it has one.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..build import installed

PROBE = Path(__file__).with_name("probe.py")
SHIM = Path(__file__).with_name("libweftblas.so")
FILES = ("libopenblas*.so*", "libblis*.so*", "libmkl_rt.so*", "libblas*.so*", "librefblas*.so*")
# The order in which the best of a kind is chosen: a library that uses all cores by itself, one that
# shares the OpenMP runtime of PyTorch, a serial one.
THREADS = ("pthread", "openmp", "serial", None)


class NotFound(Exception):
    """There is no such library; the text names those that are there."""


class Refused(Exception):
    """The library is there and cannot serve PyTorch; the text says why."""


@dataclass(frozen=True)
class Library:
    """A BLAS library."""

    name: str  # what a user types
    file: str  # its real path
    version: str | None
    threads: str | None  # "pthread", "openmp" or "serial"
    ilp64: bool  # integers of 64 bits: of no use to PyTorch, which passes 32
    lapack: bool
    kind: str = ""  # "openblas", "blis", "mkl", "atlas", "reference" or what the file is called
    prefix: str = ""  # what stands before the routines' names, as in scipy_sgemm_


def libraries() -> list[Library]:
    """All BLAS libraries that can be found here, the active environment's first."""
    return _named(_ask(_candidates()))


def find(name: str) -> Library:
    """The library of that name or path; NotFound with the names that are there, or why not."""
    if os.sep in name:
        return _at(name)
    known = libraries()
    for library in known:
        if library.name == name:
            return library
    of_kind = [library for library in known if library.kind == name and not library.ilp64]
    if of_kind:
        own = set(map(os.path.realpath, _own_folders()))
        return min(of_kind, key=lambda one: (os.path.dirname(one.file) not in own, _order(one)))
    names = ", ".join(library.name for library in known) or "none was found"
    raise NotFound(f"there is no BLAS library {name!r} here; known: {names}, or a path to one")


def _order(library: Library) -> int:
    return THREADS.index(library.threads)


def _at(path: str) -> Library:
    built = os.path.join(path, "lib", "libopenblas.so")
    if os.path.exists(built):  # an environment that weft build has installed into
        path = built
    if not os.path.exists(path):
        raise NotFound(f"{path}: there is no such file")
    file = os.path.realpath(path)
    said = _ask([file]).get(file, {"error": "it crashes or hangs when it is loaded"})
    if "error" in said:
        raise NotFound(f"{path} is not a BLAS library: {said['error']}")
    return _library(path, said)


def _candidates() -> list[str]:
    """Files that look like a BLAS, each once. Of each folder of Debian's alternatives there is one,
    by whatever way it was found."""
    debian = [os.path.realpath(file) for file in _debian()]
    folders = {os.path.dirname(file) for file in debian}
    elsewhere = [file for folder in _environment_folders() for file in _in_folder(folder)]
    cached = map(os.path.realpath, _loader_cache())
    found = [file for file in elsewhere if os.path.dirname(file) not in folders]
    found += debian
    found += [file for file in cached if os.path.dirname(file) not in folders]
    found += map(os.path.realpath, _wheels())
    found += map(os.path.realpath, _built())
    return list(dict.fromkeys(found))


def _in_folder(folder: str) -> Iterator[str]:
    for pattern in FILES:
        yield from map(os.path.realpath, sorted(glob.glob(f"{glob.escape(folder)}/{pattern}")))


def _own_folders() -> Iterator[str]:
    """Of the active environment."""
    yield os.path.join(sys.prefix, "lib")
    if conda := os.environ.get("CONDA_PREFIX"):
        yield os.path.join(conda, "lib")


def _environment_folders() -> Iterator[str]:
    yield from _own_folders()
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    yield "/usr/local/lib"


def _debian() -> Iterator[str]:
    """The whole library rather than its libblas.so.3, which takes what it lacks from whichever
    libopenblas.so.0 the alternatives name."""
    for folder in sorted(glob.glob("/usr/lib/*/*/")):
        whole = glob.glob(f"{folder}libopenblas*.so.[0-9]") + glob.glob(
            f"{folder}libblis*.so.[0-9]"
        )
        thin = glob.glob(f"{folder}libblas*.so.3")
        yield from (whole or thin)[:1]


def _loader_cache() -> Iterator[str]:
    for ldconfig in ("ldconfig", "/sbin/ldconfig"):
        try:
            done = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False)
        except OSError:
            continue
        names = r"lib(?:openblas|blis|mkl_rt|blas|refblas|armpl_lp64|nvpl_blas_lp64)[^/\s]*\.so"
        yield from re.findall(rf"^\s*{names}\S* .*=> (\S+)$", done.stdout, re.MULTILINE)
        return


def _wheels() -> Iterator[str]:
    for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        yield from sorted(glob.glob(f"{site}/*.libs/lib*openblas*.so*"))
        yield from sorted(glob.glob(f"{site}/scipy_openblas*/lib/lib*openblas*.so*"))


def _built() -> Iterator[str]:
    """What `weft build` installed into environments that are not active."""
    for prefix in installed.prefixes():
        yield from sorted(glob.glob(f"{prefix}/lib/libopenblas*.so*"))


def _ask(files: Iterable[str]) -> dict[str, dict]:
    """What each file says of itself; a file that ends the process that loads it is left out."""
    hidden = {"LD_PRELOAD", "LD_DEBUG", "LD_PROFILE"}
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    clean |= {"OPENBLAS_NUM_THREADS": "1", "BLIS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-I", "-S", str(PROBE), *files]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=clean
    )
    answers = {}
    for line in done.stdout.splitlines():
        with contextlib.suppress(ValueError):
            answer = json.loads(line)
            answers[answer["file"]] = answer
    return answers


def _library(name: str, said: dict) -> Library:
    file = said["file"]
    return Library(
        name=name,
        file=file,
        version=said["version"] or _version_of(file),
        threads=said["threads"] or ("serial" if _kind(said) == "reference" else None),
        ilp64=said["ilp64"],
        lapack=said["lapack"],
        kind=_kind(said),
        prefix=said["prefix"],
    )


def _version_of(file: str) -> str | None:
    """Reference BLAS has no routine that says it; its file's name ends with it."""
    found = re.search(r"\.so\.(\d+\.\d+[\d.]*)$", file)
    return found[1] if found else None


def _kind(said: dict) -> str:
    if said["kind"] is not None:
        return said["kind"]
    stem = re.sub(r"^lib|[-.].*$", "", os.path.basename(said["file"]))
    return "reference" if re.fullmatch(r"(ref)?blas(64)?", stem) else stem


def _named(answers: dict[str, dict]) -> list[Library]:
    taken: set[str] = set()
    known = []
    for said in answers.values():
        if "error" in said:
            continue
        name = _kind(said)
        if name in ("openblas", "blis") and said["threads"]:
            name += f"-{said['threads']}"
        if said["ilp64"]:
            name = name.replace("-", "64-") if "-" in name else f"{name}64"
        if name in taken:
            name = said["file"]
        taken.add(name)
        known.append(_library(name, said))
    return known


def refusal(library: Library, lapack: bool = False) -> str | None:
    """Why PyTorch cannot call this library, or None."""
    if library.ilp64:
        return (
            f"{library.name} is an ILP64 library ({library.file}): it takes 64-bit integers, "
            "PyTorch passes 32-bit ones; use its LP64 build"
        )
    if lapack and (library.prefix or not library.lapack):
        return (
            f"{library.name} has no LAPACK under the names that PyTorch calls; leave out --lapack"
        )
    return None


def environment(
    library: Library, threads: int | None = None, lapack: bool = False
) -> dict[str, str]:
    """What a child's environment needs on top of ours, so that this library serves PyTorch's
    calls in it; with `threads`, PyTorch and the library use that many, not the product.

    The library itself is not preloaded, as its LAPACK would come along: that is `lapack`.
    """
    if (why := refusal(library, lapack)) is not None:
        raise Refused(why)
    files = [str(SHIM), *([library.file] if lapack else [])]
    given = {
        "LD_PRELOAD": _preload(*files),
        "WEFTBLAS_LIBRARY": library.file,
        "WEFTBLAS_PREFIX": library.prefix,
    }
    if threads is not None:
        for runtime in ("OMP", "OPENBLAS", "BLIS", "MKL"):
            given[f"{runtime}_NUM_THREADS"] = str(threads)
    return given


def _preload(*files: str) -> str:
    """Behind what is preloaded already: a sanitizer has to come first."""
    for file in files:
        if re.search(r"[\s:]", file):
            raise Refused(f"{file}: the loader cannot preload a file with a space or colon in it")
    earlier = [os.environ["LD_PRELOAD"]] if os.environ.get("LD_PRELOAD") else []
    return ":".join([*earlier, *files])
