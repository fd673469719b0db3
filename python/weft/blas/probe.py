# SPDX-License-Identifier: Apache-2.0
"""Ask shared libraries whether they are a BLAS, and of which kind.

It runs as a program of its own, `python -I -S probe.py FILE...`, and forks once more for
each file: a library that crashes or hangs while it is loaded ends that process only. It
prints one line of JSON for each file; a file without a line could not even say that it failed.
"""

import ctypes
import json
import os
import signal
import sys

SECONDS = 20  # a library that takes longer to load hangs
AFFIXES = [(front, back) for front in ("", "scipy_") for back in ("", "64_")]


def call(library, name, result, *arguments):
    """What a function says, or None if the library does not have it."""
    function = getattr(library, name, None)
    if function is None:
        return None
    function.restype = result
    return function(*arguments)


def text(library, *names):
    for name in names:
        said = call(library, name, ctypes.c_char_p)
        if said is not None:
            return said.decode(errors="replace")
    return None


def affixes(library):
    """What the names of Fortran's routines begin and end with, or None if there is no sgemm."""
    for front, back in AFFIXES:
        if hasattr(library, f"{front}sgemm_{back}"):
            return front, back
    return None


def wide_integers(library, front, back):
    """Whether integers are of 64 bits.

    A length of 1 whose upper half is filled is negative for routines with 64-bit integers,
    which then have nothing to add up.
    """
    length = (ctypes.c_int32 * 2)(1, -1)
    stride = (ctypes.c_int32 * 2)(1, 0)
    value = ctypes.c_double(1.0)
    total = call(
        library,
        f"{front}dasum_{back}",
        ctypes.c_double,
        length,
        ctypes.byref(value),
        stride,
    )
    return total is not None and total != 1.0


def openblas(library, front, back):
    names = [f"{front}openblas_get_config{back}", f"{front}openblas_get_config"]
    config = text(library, *names)
    if config is None:
        return None
    kinds = {0: "serial", 1: "pthread", 2: "openmp"}
    for name in (f"{front}openblas_get_parallel{back}", f"{front}openblas_get_parallel"):
        parallel = call(library, name, ctypes.c_int)
        if parallel is not None:
            break
    words = config.split()
    version = words[1] if len(words) > 1 else None
    return {
        "kind": "openblas",
        "version": version,
        "threads": kinds.get(parallel),
        "ilp64": "USE64BITINT" in words,
    }


def blis(library):
    version = text(library, "bli_info_get_version_str")
    if version is None:
        return None
    threads = "serial"
    for kind, name in (("openmp", "openmp"), ("pthread", "pthreads")):
        if call(library, f"bli_info_get_enable_{name}", ctypes.c_int64):
            threads = kind
    size = call(library, "bli_info_get_blas_int_type_size", ctypes.c_int64)
    return {"kind": "blis", "version": version, "threads": threads, "ilp64": size == 64}


def mkl(library):
    if not hasattr(library, "mkl_get_version_string"):
        return None
    line = ctypes.create_string_buffer(200)
    library.mkl_get_version_string(line, 199)
    words = line.value.decode(errors="replace").split()
    version = next((word.split("-")[0] for word in words if word[:1].isdigit()), None)
    layer = os.environ.get("MKL_THREADING_LAYER", "").upper()
    threads = "serial" if layer == "SEQUENTIAL" else "openmp"
    return {"kind": "mkl", "version": version, "threads": threads}


def atlas(library):
    if not hasattr(library, "ATL_buildinfo"):
        return None
    return {"kind": "atlas"}


def ask(file):
    try:
        library = ctypes.CDLL(file)
    except OSError as error:
        return {"file": file, "error": str(error)}
    found = affixes(library)
    if found is None:
        return {"file": file, "error": "it has no routine sgemm_"}
    said = openblas(library, *found) or blis(library) or mkl(library) or atlas(library) or {}
    wide = found[1] != "" or said.get("ilp64", False) or wide_integers(library, *found)
    lapack = hasattr(library, f"{found[0]}sgetrf_{found[1]}")
    return {"kind": None, "version": None, "threads": None} | said | {
        "file": file, "prefix": found[0], "ilp64": wide, "lapack": lapack,
    }  # fmt: skip


def main():
    for file in sys.argv[1:]:
        if os.fork() == 0:
            signal.alarm(SECONDS)
            # One write: what a library prints while it is loaded cannot get in between.
            os.write(1, ("\n" + json.dumps(ask(file)) + "\n").encode())
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main()
