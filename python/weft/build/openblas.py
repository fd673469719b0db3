# SPDX-License-Identifier: Apache-2.0
"""OpenBLAS: what it is built with so that PyTorch can use it."""

from __future__ import annotations

import functools
import glob
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from . import Failed, Refused
from .fetch import source_steps
from .recipe import Step, Wanted, compiler

name = "openblas"
marks: tuple[str, ...] = ("Makefile.rule", "Makefile.system", "cblas.h")
release: str | None = None
space = 500 << 20

# What may be set, and what it is for; the values are OpenBLAS's own.
KNOWN = {
    "TARGET": "the CPU, as HASWELL or SKYLAKEX (default: this machine's)",
    "DYNAMIC_ARCH": "1: kernels for all CPUs, chosen at run time; takes ten times as long",
    "DYNAMIC_OLDER": "1: with DYNAMIC_ARCH, also for old CPUs",
    "DYNAMIC_LIST": "with DYNAMIC_ARCH, for these CPUs only",
    "USE_OPENMP": "1: threads of OpenMP, as PyTorch's own; 0: its own threads",
    "USE_THREAD": "0: no threads",
    "NUM_THREADS": "how many threads it can use at most",
    "NO_LAPACK": "1: BLAS only",
    "NO_CBLAS": "1: Fortran's names only",
    "NOFORTRAN": "1: without a Fortran compiler",
    "NO_AVX2": "1: no AVX2",
    "NO_AVX512": "1: no AVX-512",
    "NO_AFFINITY": "1: threads are not bound to cores",
    "NO_STATIC": "1: no libopenblas.a",
    "SMALL_MATRIX_OPT": "0: no kernels of their own for small matrices",
    "BUILD_SINGLE": "1: float32; when one of these four is given, the others are left out",
    "BUILD_DOUBLE": "1: float64",
    "BUILD_COMPLEX": "1: complex64",
    "BUILD_COMPLEX16": "1: complex128",
    "BUILD_BFLOAT16": "1: bfloat16",
    "COMMON_OPT": "the compiler's optimisation, as -O2",
    "CC": "the C compiler",
    "FC": "the Fortran compiler",
    "DEBUG": "1: with what a debugger needs",
}

# PyTorch runs on OpenMP: with threads of its own OpenBLAS would start as many once more.
DEFAULTS = {
    "USE_OPENMP": "1",
    "NUM_THREADS": "64",
    "NO_AFFINITY": "1",
    "NO_STATIC": "1",
    "NO_LAPACKE": "1",
}


def options(given: Mapping[str, str]) -> dict[str, str]:
    """All options for make, our defaults first; Refused for one that is not OpenBLAS's."""
    for option, value in given.items():
        if option == "INTERFACE64":
            raise Refused("INTERFACE64 makes an ILP64 library; PyTorch passes 32-bit integers")
        if option not in KNOWN and option not in DEFAULTS:
            raise Refused(f"OpenBLAS has no option {option} here; known: {', '.join(KNOWN)}")
        if not re.fullmatch(r"[\w+.,=/ -]*", value):
            raise Refused(f"--option {option}={value}: there is no such value")
    chosen = {**DEFAULTS, **given}
    if chosen.get("USE_THREAD") == "0" and "USE_OPENMP" not in given:
        chosen["USE_OPENMP"] = "0"
    return chosen


def check(wanted: Wanted) -> list[str]:
    """What a build needs; notes on what is done without."""
    if shutil.which("make") is None:
        raise Refused("there is no make: apt-get install make")
    compiler("CC", ("cc", "gcc"), "gcc libc6-dev")
    notes = []
    if not _fortran(wanted.options):
        notes.append("no Fortran compiler: what needs one is left out (NOFORTRAN=1)")
    asked = wanted.options.get("NO_LAPACK")
    if asked != "1" and not _lapack(wanted.source.folder, wanted.options):
        if asked == "0":
            raise Refused(
                "there is no LAPACK in this source: apt-get install liblapack-dev gfortran"
            )
        notes.append("BLAS only: no LAPACK in this source, and no liblapack-dev (NO_LAPACK=1)")
    return notes


def steps(wanted: Wanted, work: Path) -> list[Step]:
    tree, stage = work / "source", work / "stage"
    make = functools.partial(_make, wanted, tree)
    lapack = _lapack(wanted.source.folder, wanted.options)
    # Debian's makefile takes LAPACK out of an archive, into a folder that must not be there.
    unpacked = (tree / "lapack-netlib",) if lapack == "archive" else ()
    where = (f"DESTDIR={stage}", f"PREFIX={wanted.prefix}")
    # One after the other: OpenBLAS's makefile does not say that they depend on each other.
    return [
        *source_steps(name, wanted.source, work),
        make("clean", "cleaning the copy"),  # it may have been built in before
        make("libs", "compiling OpenBLAS"),
        make("netlib", "adding LAPACK", fresh=unpacked) if lapack else _without_lapack(tree),
        make("shared", "linking OpenBLAS"),
        make("install", "staging OpenBLAS", *where, fresh=(stage,)),
        Step(
            "check",
            "checking OpenBLAS",
            ("test", "-e", f"{stage}{wanted.prefix}/lib/libopenblas.so"),
            work,
            action=functools.partial(_check_staged, Path(f"{stage}{wanted.prefix}")),
        ),
    ]


def version(tree: Path) -> str:
    found = re.search(r"^VERSION\s*=\s*(\S+)", (tree / "Makefile.rule").read_text(), re.MULTILINE)
    return found[1] if found else "unknown"


def _without_lapack(tree: Path) -> Step:
    """Newer makefiles of Debian's unpack LAPACK when they link, unless its folder is there."""
    return Step("nolapack", "leaving out LAPACK", ("mkdir", "-p", "lapack-netlib"), tree)


def _make(
    wanted: Wanted, tree: Path, goal: str, what: str, *more: str, fresh: tuple[Path, ...] = ()
) -> Step:
    chosen = [f"{option}={value}" for option, value in _settings(wanted).items()]
    command = ("make", f"-j{wanted.jobs}", "MAKE_NB_JOBS=0", goal, *chosen, *more)
    count = ("make", "-n", "MAKE_NB_JOBS=0", goal, *chosen) if goal == "libs" else ()
    return Step(goal, what, command, tree, fresh=fresh, count=count)


def _settings(wanted: Wanted) -> dict[str, str]:
    """As make gets them. OpenBLAS asks whether NO_CBLAS is there, not what it is: a NO_X=0 must
    not reach it."""
    chosen = dict(wanted.options)
    if not _fortran(chosen):
        chosen["NOFORTRAN"] = "1"
    if not _lapack(wanted.source.folder, chosen):
        chosen["NO_LAPACK"] = "1"
    off = [option for option, value in chosen.items() if option[:2] == "NO" and value in ("0", "")]
    return {option: value for option, value in chosen.items() if option not in off}


def _fortran(chosen: Mapping[str, str]) -> bool:
    if chosen.get("NOFORTRAN", "0") == "1":
        return False
    named = chosen.get("FC") or os.environ.get("FC")
    return any(shutil.which(fc) for fc in ([named] if named else ["gfortran", "flang", "ifort"]))


def _lapack(folder: Path | None, chosen: Mapping[str, str]) -> str | None:
    """Where LAPACK comes from: OpenBLAS's own copy ("source"), or for Debian's source, which has
    none, the archive that Debian's liblapack-dev brings for this ("archive")."""
    if chosen.get("NO_LAPACK", "0") == "1":
        return None
    if folder is not None and (folder / "lapack-netlib").is_dir():
        return "source"
    patched = folder is None or "liblapack_pic" in (folder / "Makefile").read_text()
    archive = glob.glob("/usr/lib/*/liblapack_pic.a")
    return "archive" if patched and archive and _fortran(chosen) else None


def _check_staged(prefix: Path) -> None:
    """A library without the names that PyTorch calls must not get into an environment."""
    library = prefix / "lib" / "libopenblas.so"
    if not library.exists():
        raise Failed(f"the build made no {library}")
    if b"sgemm_" not in library.read_bytes():
        raise Failed(f"{library} has no sgemm_, which PyTorch calls: see BUILD_SINGLE")
