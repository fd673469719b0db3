# SPDX-License-Identifier: Apache-2.0
"""PyTorch: configured so that its dense linear algebra goes to the OpenBLAS just built."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from . import Failed, Refused
from .environment import python_of
from .fetch import is_empty, source_steps
from .recipe import Step, Wanted, compiler

name = "pytorch"
marks: tuple[str, ...] = ("setup.py", "torch/CMakeLists.txt", "aten", "version.txt")
# Debian 12 has PyTorch 1.13, from before 2.0.
release: str | None = "trixie"
space = 1 << 30

# A small PyTorch for CPUs, in which convolutions go the way of im2col and gemm: without oneDNN
# they end in the BLAS. `--option USE_MKLDNN=1` and so on add what is wanted.
DEFAULTS = {
    "BLAS": "OpenBLAS",
    "USE_CUDA": "0",
    "USE_ROCM": "0",
    "USE_XPU": "0",
    "USE_DISTRIBUTED": "0",
    "USE_FBGEMM": "0",
    "USE_ITT": "0",
    "USE_KINETO": "0",
    "USE_MAGMA": "0",
    "USE_MKLDNN": "0",
    "USE_NNPACK": "0",
    "USE_NUMA": "0",
    "USE_PYTORCH_QNNPACK": "0",
    "USE_XNNPACK": "0",
    "BUILD_TEST": "0",
}
# Passed to CMake by PyTorch's setup.py beside USE_*, BUILD_* and CMAKE_*.
OTHERS = ("BLAS", "OpenBLAS_HOME", "ATEN_THREADING", "DEBUG", "REL_WITH_DEB_INFO", "WERROR")
MODULES = {"yaml": "pyyaml", "typing_extensions": "typing_extensions", "setuptools": "setuptools"}
# Debian's source has no third_party/: it is built with these packages.
PACKAGES = (
    "libcpp-httplib-dev",
    "libcpuinfo-dev",
    "libeigen3-dev",
    "libflatbuffers-dev",
    "libfmt-dev",
    "libfp16-dev",
    "libfxdiv-dev",
    "libonnx-dev",
    "libprotobuf-dev",
    "libpsimd-dev",
    "libpthreadpool-dev",
    "libsleef-dev",
    "nlohmann-json3-dev",
    "protobuf-compiler",
    "pybind11-dev",
)


def options(given: Mapping[str, str]) -> dict[str, str]:
    for option in given:
        if option not in OTHERS and not option.startswith(("USE_", "BUILD_", "CMAKE_")):
            kinds = "USE_*, BUILD_*, CMAKE_*"
            raise Refused(f"PyTorch has no option {option}; known: {kinds}, {', '.join(OTHERS)}")
    return {**DEFAULTS, **given}


def check(wanted: Wanted) -> list[str]:
    for tool in ("cmake", "make"):
        if shutil.which(tool) is None:
            raise Refused(f"there is no {tool}: apt-get install {tool}")
    compiler("CC", ("cc", "gcc"), "gcc libc6-dev")
    compiler("CXX", ("c++", "g++"), "g++")
    _check_openblas(wanted)
    _check_modules(python_of(wanted.prefix), wanted.configure_only)
    if _system_libraries(wanted):
        _check_packages()
    ninja = shutil.which("ninja")
    return [] if ninja else ["no ninja: make builds PyTorch, which takes longer"]


def steps(wanted: Wanted, work: Path) -> list[Step]:
    tree, stage = work / "source", work / "stage"
    python, env = python_of(wanted.prefix), _environment(wanted)
    setup = functools.partial(Step, cwd=tree, env=env)
    found = [
        *source_steps(name, wanted.source, work),
        setup(
            "configure",
            "configuring PyTorch",
            (python, "setup.py", "build", "--cmake-only"),
            fresh=(tree / "build",),
        ),
        Step(
            "chosen",
            "looking which BLAS CMake chose",
            ("grep", "OpenBLAS_LIB", str(tree / "build" / "CMakeCache.txt")),
            work,
            action=functools.partial(_check_chosen, tree, wanted),
        ),
    ]
    if wanted.configure_only:
        return found
    put = ("--no-deps", "--no-index", "--no-compile", "--ignore-installed", "--root", str(stage))
    pip = f"{python} -m pip install {' '.join(put)} --prefix {wanted.prefix} dist/*.whl"
    return [
        *found,
        setup("build", "compiling PyTorch", (python, "setup.py", "bdist_wheel")),
        Step("stage", "staging PyTorch", ("sh", "-c", pip), tree, fresh=(stage,)),
    ]


def version(tree: Path) -> str:
    return (tree / "version.txt").read_text().strip()


def chosen(tree: Path) -> dict[str, str]:
    """What CMake found, from its cache."""
    found = {}
    for line in (tree / "build" / "CMakeCache.txt").read_text().splitlines():
        entry = re.match(r"(BLAS|OpenBLAS_LIB|OpenBLAS_INCLUDE_DIR):\w+=(.*)$", line)
        if entry:
            found[entry[1]] = entry[2]
    return found


def openblas_home(wanted: Wanted) -> Path:
    return Path(wanted.options.get("OpenBLAS_HOME") or wanted.prefix)


def _environment(wanted: Wanted) -> dict[str, str]:
    """setup.py takes its options from the environment."""
    env = {**wanted.options, "MAX_JOBS": str(wanted.jobs)}
    if wanted.options["BLAS"] == "OpenBLAS":
        home = str(openblas_home(wanted))
        # PyTorch looks into OpenBLAS_HOME last, after the system's folders; CMake into this first.
        paths = [home, *filter(None, [wanted.options.get("CMAKE_PREFIX_PATH")])]
        env |= {"OpenBLAS_HOME": home, "CMAKE_PREFIX_PATH": ";".join(paths)}
    if _system_libraries(wanted):
        env["USE_SYSTEM_LIBS"] = "1"
    return env


def _system_libraries(wanted: Wanted) -> bool:
    """Whether PyTorch's dependencies are the system's and not those in third_party/."""
    if "USE_SYSTEM_LIBS" in wanted.options:
        return wanted.options["USE_SYSTEM_LIBS"] not in ("0", "OFF", "")
    folder = wanted.source.folder
    if folder is None:
        return True
    if not is_empty(folder / "third_party" / "onnx"):
        return False
    if (folder / "debian" / "patches").is_dir():
        return True
    raise Refused(
        f"{folder}/third_party/onnx is empty: run git submodule update --init --recursive there, "
        "or build with the system's libraries: --option USE_SYSTEM_LIBS=1"
    )


def _check_openblas(wanted: Wanted) -> None:
    if wanted.options["BLAS"] != "OpenBLAS":
        return
    home = openblas_home(wanted)
    for part in ("lib/libopenblas.so", "include/cblas.h"):
        if not (home / part).exists():
            raise Refused(f"there is no {home / part}: run weft build openblas first")


def _check_modules(python: str, configure_only: bool) -> None:
    modules = MODULES if configure_only else {**MODULES, "pip": "pip"}
    code = (
        "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if not u.find_spec(n)))"
    )
    done = subprocess.run(
        [python, "-c", code, *modules], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Refused(f"{python} does not run: {done.stderr.strip().splitlines()[-1:]}")
    missing = [modules[module] for module in done.stdout.split()]
    if missing:
        raise Refused(f"PyTorch's setup.py needs {python} -m pip install {' '.join(missing)}")


def _check_packages() -> None:
    if shutil.which("dpkg-query") is None:
        return
    done = subprocess.run(
        ["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n", *PACKAGES],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    here = {line.split()[0] for line in done.stdout.splitlines() if line.endswith(" installed")}
    missing = [package for package in PACKAGES if package not in here]
    if missing:
        raise Refused(
            f"this source is built with the system's libraries: apt-get install {' '.join(missing)}"
        )


def _check_chosen(tree: Path, wanted: Wanted) -> None:
    """Another OpenBLAS in CMake's way must not be taken for the one that was asked for."""
    if wanted.options["BLAS"] != "OpenBLAS":
        return
    home = os.path.realpath(openblas_home(wanted))
    found = chosen(tree)
    for entry in ("OpenBLAS_LIB", "OpenBLAS_INCLUDE_DIR"):
        path = found.get(entry, "nothing")
        if not os.path.realpath(path).startswith(home + os.sep):
            raise Failed(f"CMake chose {path} as {entry}, not the OpenBLAS in {home}")
