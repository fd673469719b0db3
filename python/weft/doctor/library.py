# SPDX-License-Identifier: Apache-2.0
"""weft itself: which library is loaded, what it can use, how it is set."""

import contextlib
import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterator

from weft import _boot, _core
from weft.bench import peers
from weft.doctor import Fact, Page, read


def settings() -> dict[str, tuple[str, str]]:
    """Each setting's value and source."""
    return {name: (value, source) for name, value, source, _, _ in _core.settings()}


def page(machine: Page) -> Page:
    facts = [
        Fact("version", _core.version()),
        Fact("library", _loaded() or "linked into the module"),
        Fact("launcher", _core.launcher()[0]),
        *_transports(machine),
        _gpu_kernels(),
        _unknown_settings(),
        _changed_settings(),
        *_usable_settings(),
        _world(),
    ]
    return Page("weft", facts)


def peers_page(pytorch: Page) -> Page:
    """What `weft bench` would measure weft against."""
    said: dict = next((fact.data for fact in pytorch.facts if fact.name == "torch.distributed"), {})
    facts = []
    for peer in peers.peers(said):
        words = [f"yes, {peer.version}" if peer.version else "yes", peer.text]
        text = ", ".join(filter(None, words)) if peer.here else f"no: {peer.text}"
        data = {"here": peer.here, "version": peer.version, "text": peer.text}
        facts.append(Fact(peer.name, text, data))
    return Page("peers", facts)


def settings_page() -> Page:
    facts = []
    bad = refused()
    for name, value, source, fallback, text in _core.settings():
        shown = f"{value or '(empty)'}  [{source}]  {text}"
        data = {"value": value, "source": source, "default": fallback, "help": text}
        facts.append(Fact(name, shown, data, _correct(name, bad[name]) if name in bad else None))
    unknown = _unknown_settings()
    return Page("settings", [*facts, *([unknown] if unknown.remedy else [])])


def _loaded() -> str | None:
    match = re.search(r"(/\S*libweft\.so\S*)", read("/proc/self/maps"))
    return os.path.realpath(match[1]) if match else None


def _transports(machine: Page) -> list[Fact]:
    memfd = next(fact for fact in machine.facts if fact.name == "shared memory")
    shm = "yes, between ranks of this host" if memfd.remedy is None else f"no: {memfd.text}"
    known = {"self": "yes, always", "shm": shm, "ucx": _module("ucx"), "mpi": _mpi()}
    return [Fact(f"transport {name}", known.get(name, "yes")) for name in _core.transports()]


_PACKAGES = {  # what to install where the loader misses a library
    "libucp": "Debian: libucx0; PyPI: libucx-cu12",
    "libmpi.so": "Debian: libopenmpi3",
    "libmpich": "Debian: libmpich12",
}


def _module(name: str) -> str:
    """Whether a library of ours that needs a foreign one can be loaded, and which it lacks.

    Tried by a process of its own: what it loads would stay in this one.
    """
    file = os.path.join(os.path.dirname(_loaded() or ""), f"libweft_{name}.so")
    if not os.path.exists(file):
        return f"no: libweft_{name}.so was not built"
    body = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); ctypes.CDLL(sys.argv[2])"
    ours = _loaded() or ""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", body, ours, file],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return "yes, between hosts"
    reason = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
    missing = re.search(r"(lib\S+): cannot open", reason[0])
    if missing is None:
        return f"no: {reason[0]}"
    package = next((text for lib, text in _PACKAGES.items() if missing[1].startswith(lib)), "")
    return f"no: {missing[1]} was not found" + (f" ({package})" if package else "")


def _mpi() -> str:
    return "; ".join(f"{name}: {_module(f'mpi_{name}')}" for name in ("openmpi", "mpich"))


def _gpu_kernels() -> Fact:
    """Whether the library for GPUs can be loaded, the one that was named or the one beside ours."""
    named = settings()["WEFT_CUDA_LIBRARY"][0]
    file = os.path.join(os.path.dirname(_loaded() or ""), "libweft_cuda.so")
    if named == "auto" and not os.path.exists(file):
        return Fact("kernels for GPUs", "not built: they need nvcc", None)
    file = file if named == "auto" else named
    try:
        ctypes.CDLL(file)
    except OSError as error:
        remedy = f"correct or unset WEFT_CUDA_LIBRARY={named}: {error}" if named != "auto" else None
        return Fact("kernels for GPUs", f"cannot be loaded: {error}", None, remedy)
    return Fact("kernels for GPUs", f"in {file}", file)


def _unknown_settings() -> Fact:
    known = set(settings())
    unknown = sorted(name for name in os.environ if name.startswith("WEFT_") and name not in known)
    if not unknown:
        return Fact("environment", "no WEFT_ name that is unknown", [])
    remedy = f"{', '.join(unknown)}: no such setting; weft doctor --settings lists them"
    return Fact("environment", f"unknown: {', '.join(unknown)}", unknown, remedy)


def _changed_settings() -> Fact:
    changed = {
        name: value for name, (value, source) in settings().items() if source == "environment"
    }
    text = ", ".join(f"{name}={value}" for name, value in changed.items())
    return Fact("settings changed", text or "none", changed)


def refused() -> dict[str, str]:
    """What the library says of each setting in the environment that it does not take."""
    found = {}
    for name, (_, source) in settings().items():
        if source == "environment":
            try:
                with _alone_in_environment(name):
                    _core.create(boot=_boot.Alone()).close()
            except _core.InvalidError as error:
                found[name] = str(error)
            except _core.Error:
                pass  # no fault of the setting; _world tells
    return found


@contextlib.contextmanager
def _alone_in_environment(name: str) -> Iterator[None]:
    """Without the other settings, of which the library would tell the first that is wrong."""
    others = {other: os.environ.pop(other) for other in {*settings()} & {*os.environ} - {name}}
    try:
        yield
    finally:
        os.environ.update(others)


def _correct(name: str, why: str) -> str:
    return f"correct or unset {name}: {why}"


def _usable_settings() -> list[Fact]:
    bad = refused()
    text = f"refused: {', '.join(bad)}" if bad else "all can be used"
    facts = [Fact(name, f"refused: {why}", remedy=_correct(name, why)) for name, why in bad.items()]
    return [Fact("settings", text, not bad), *facts]


def _world() -> Fact:
    """Whether a job of one rank can be made without any settings."""
    try:
        with _alone_in_environment(""):
            _core.create(boot=_boot.Alone()).close()
    except _core.Error as error:
        return Fact("a job of one rank", f"fails: {error}", False, f"weft cannot start: {error}")
    return Fact("a job of one rank", "works", True)
