# SPDX-License-Identifier: Apache-2.0
"""PyTorch as it is installed and as it is loaded, which need not be the same."""

import ctypes
import dataclasses
import importlib.util
import json
import os
import re
import resource
import signal
import subprocess
import sys
from typing import Any

from weft.blas import libraries
from weft.doctor import Fact, Page, read

OLDEST = (2, 11)
LIBRARIES = re.compile(
    r"lib(mkl\w*|openblas\w*|scipy_openblas\w*|blis\w*|atlas\w*|blas|cblas|lapack\w*|dnnl|gomp|iomp5)"
    r"[-.\w]*\.so"
)


class _Symbol(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def page() -> Page:
    if importlib.util.find_spec("torch") is None:
        return Page("PyTorch", [Fact("version", "not installed", False)])
    try:
        import torch
    except Exception as error:  # a broken installation can raise anything
        return _broken(str(error))
    facts = [_version(torch), Fact("where", os.path.dirname(torch.__file__))]
    facts += [_threads(torch), _blas(torch), _libraries(), _onednn(torch), _cuda(torch)]
    facts += [_distributed(torch), _shim(torch), _abi(torch), _build(torch)]
    return Page("PyTorch", facts)


def page_apart() -> Page:
    """The same, found out by another process: a broken PyTorch may end the one that imports it."""
    code = f"import sys; sys.path[:] = {sys.path!r}; import weft.doctor.pytorch as p; p.tell()"
    start = [sys.executable, "-c", code]
    try:
        done = subprocess.run(
            start, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError:  # no more processes can be had
        return page()
    try:
        return Page("PyTorch", [Fact(**fact) for fact in json.loads(done.stdout.splitlines()[-1])])
    except (IndexError, ValueError):
        end = f"exit status {done.returncode}"
        if done.returncode < 0:
            end = signal.strsignal(-done.returncode) or f"signal {-done.returncode}"
        return _broken(": ".join([end, *done.stderr.strip().splitlines()[-1:]]))


def tell() -> None:
    """The page as a line of JSON."""
    print("\n" + json.dumps([dataclasses.asdict(fact) for fact in page().facts]))


def _broken(why: str) -> Page:
    remedy = f"repair the PyTorch installation: python -c 'import torch' fails: {why}"
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        remedy = f"allow more address space (ulimit -v) or {remedy}"
    return Page("PyTorch", [Fact("version", f"import fails: {why}", remedy=remedy)])


def _version(torch: Any) -> Fact:
    numbers = tuple(int(n) for n in re.findall(r"\d+", torch.__version__)[:2])
    text = torch.__version__
    if numbers < OLDEST:
        return Fact("version", text, remedy=f"weft needs torch {OLDEST[0]}.{OLDEST[1]} or later")
    table = "__dlpack_c_exchange_api__"
    return Fact("version", text + ("" if hasattr(torch.Tensor, table) else f", without {table}"))


def _threads(torch: Any) -> Fact:
    inside, between = torch.get_num_threads(), torch.get_num_interop_threads()
    backend = re.search(r"ATen parallel backend: (.*)", torch.__config__.parallel_info())
    text = f"{inside} in an operator, {between} between operators"
    return Fact(
        "threads",
        text + (f" ({backend[1]})" if backend else ""),
        {"intra": inside, "inter": between, "backend": backend and backend[1]},
    )


def symbol_file(library: str, name: str) -> str | None:
    """The file that a call of `name` from `library` really ends up in.

    The loader looks in the global scope first, where preloaded libraries are,
    and then in the library and what it depends on.
    """
    libc = ctypes.CDLL(None)
    for scope in (libc, ctypes.CDLL(library)):
        try:
            address = ctypes.cast(getattr(scope, name), ctypes.c_void_p)
        except AttributeError:
            continue
        found = _Symbol()
        if libc.dladdr(address, ctypes.byref(found)) and found.file:
            return os.path.realpath(found.file.decode())
    return None


def _blas(torch: Any) -> Fact:
    library = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
    said = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    built = f"built with {said[1] if said else 'unknown'}"
    try:
        file = symbol_file(library, "sgemm_")
    except OSError as error:
        return Fact("BLAS", f"cannot look: {error}", False)
    data: dict[str, Any] = {"sgemm_": file, "built_with": said and said[1]}
    if file is None:
        return Fact("BLAS", f"not by the name sgemm_; {built}", data)
    if file == os.path.realpath(library):
        return Fact("BLAS", f"sgemm_ is inside libtorch_cpu.so; {built}", data)
    where = f"sgemm_ is in {file}"
    if file == os.path.realpath(libraries.SHIM):  # it passes calls on
        file = os.path.realpath(os.environ.get("WEFTBLAS_LIBRARY", ""))
        where = f"sgemm_ is passed on to {file}"
    known = next((one for one in libraries.libraries() if one.file == file), None)
    data |= {"library": file, "name": known and known.name, "version": known and known.version}
    name = f" ({known.name} {known.version or ''}".rstrip() + ")" if known else ""
    return Fact("BLAS", f"{where}{name}; {built}", data)


def mapped() -> list[str]:
    """The files that this process has loaded."""
    lines = [line.split(maxsplit=5) for line in read("/proc/self/maps").splitlines()]
    return sorted({words[5] for words in lines if len(words) == 6 and words[5].startswith("/")})


def _libraries() -> Fact:
    found = [file for file in mapped() if LIBRARIES.match(os.path.basename(file))]
    names = ", ".join(os.path.basename(file) for file in found)
    return Fact("math libraries loaded", names or "none of their own", found)


def _onednn(torch: Any) -> Fact:
    version = re.search(r"(?:oneDNN|MKL-DNN) v([\d.]+)", torch.__config__.show())
    if not torch.backends.mkldnn.is_available():
        return Fact("oneDNN", "no", False)
    return Fact("oneDNN", version[1] if version else "yes")


def _cuda(torch: Any) -> Fact:
    if torch.version.cuda is None:
        return Fact("CUDA", "not in this build", None)
    cudnn = torch.backends.cudnn.version()
    devices = torch.cuda.device_count()
    text = f"{torch.version.cuda}, cuDNN {cudnn}, {devices} devices"
    return Fact("CUDA", text, {"cuda": torch.version.cuda, "cudnn": cudnn, "devices": devices})


def _distributed(torch: Any) -> Fact:
    dist = torch.distributed
    if not dist.is_available():
        return Fact("torch.distributed", "not in this build", {})
    has = {
        name: bool(getattr(dist, f"is_{name}_available", lambda: False)())
        for name in ("gloo", "nccl", "mpi", "ucc")
    }
    words = [f"{name} {'yes' if yes else 'no'}" for name, yes in has.items()]
    data: dict[str, Any] = dict(has)
    if has["nccl"] and torch.version.cuda is not None:
        data["nccl_version"] = ".".join(map(str, torch.cuda.nccl.version()))
        words.append(f"NCCL {data['nccl_version']}")
    return Fact("torch.distributed", ", ".join(words), data)


def _shim(torch: Any) -> Fact:
    """What init_process_group("weft") and weft.mpi need: it is good for one torch only."""
    if not torch.distributed.is_available():
        return Fact("shim of weft", "needs torch.distributed", False)
    from weft.torch import build

    file = build.find()
    return Fact("shim of weft", str(file or f"not built; {build.COMMAND} does it"), bool(file))


def _abi(torch: Any) -> Fact:
    """What an extension in C++ has to be compiled for, to be loaded beside this torch."""
    new = bool(torch.compiled_with_cxx11_abi())
    compiler = re.search(r"^\s*-\s*((?:GCC|clang|Clang) [\d.]+)", torch.__config__.show(), re.M)
    file = next((f for f in mapped() if os.path.basename(f).startswith("libstdc++.so")), None)
    offers = _newest(file) if file else None
    words = [f"_GLIBCXX_USE_CXX11_ABI={int(new)}"]
    words += [f"compiled by {compiler[1]}"] if compiler else []
    words += [f"loaded {file}" + (f", up to {offers}" if offers else "")] if file else []
    data = {"cxx11": new, "compiler": compiler and compiler[1], "libstdc++": file, "offers": offers}
    return Fact("C++ ABI", "; ".join(words), data)


def _newest(file: str) -> str | None:
    """The last version of symbols that a C++ library has: an extension may need no later one."""
    try:
        with open(file, "rb") as opened:
            found = re.findall(rb"\0GLIBCXX_(\d+(?:\.\d+)+)(?=\0)", opened.read())
    except OSError:
        return None
    latest = max((tuple(map(int, one.split(b"."))) for one in found), default=None)
    return None if latest is None else "GLIBCXX_" + ".".join(map(str, latest))


def _build(torch: Any) -> Fact:
    lines = [line.strip(" -\n") for line in torch.__config__.show().splitlines()[1:]]
    kept = [line for line in lines if line and not line.startswith("Build settings")]
    return Fact("built", "; ".join(kept), lines)
