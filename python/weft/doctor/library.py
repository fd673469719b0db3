# SPDX-License-Identifier: Apache-2.0
"""weft itself: which library is loaded, what it can use, how it is set."""

import ctypes
import os
import re

from weft import _boot, _core
from weft.doctor import Fact, Page, read


def settings() -> dict[str, tuple[str, str]]:
    """Each setting's value and source."""
    return {name: (value, source) for name, value, source, _, _ in _core.settings()}


def page(machine: Page) -> Page:
    facts = [
        Fact("version", _core.version()),
        Fact("library", _loaded() or "linked into the module"),
        Fact("launcher", _core.launcher()),
        *_transports(machine),
        _gpu_kernels(),
        _unknown_settings(),
        _changed_settings(),
        _usable_settings(),
    ]
    return Page("weft", facts)


def settings_page() -> Page:
    facts = []
    for name, value, source, fallback, text in _core.settings():
        shown = f"{value or '(empty)'}  [{source}]  {text}"
        data = {"value": value, "source": source, "default": fallback, "help": text}
        facts.append(Fact(name, shown, data))
    return Page("settings", facts)


def _loaded() -> str | None:
    match = re.search(r"(/\S*libweft\.so\S*)", read("/proc/self/maps"))
    return os.path.realpath(match[1]) if match else None


def _transports(machine: Page) -> list[Fact]:
    memfd = next(fact for fact in machine.facts if fact.name == "shared memory")
    shm = "yes, between ranks of this host" if memfd.remedy is None else f"no: {memfd.text}"
    later = "no: this version does not have it"
    ways = {"self": "yes, always", "shm": shm, "ucx": later, "mpi": later}
    return [Fact(f"transport {name}", text) for name, text in ways.items()]


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


def _usable_settings() -> Fact:
    """Whether a world can be made with them: a job of one rank tells."""
    try:
        _core.create(boot=_boot.Alone()).close()
    except _core.Error as error:
        return Fact("settings", f"refused: {error}", False, f"correct it: {error}")
    return Fact("settings", "all can be used", True)
