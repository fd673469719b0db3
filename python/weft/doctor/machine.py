# SPDX-License-Identifier: Apache-2.0
"""The machine: what the ranks of a job run on and may use."""

import ctypes
import glob
import mmap
import os
import re
import resource

from weft import _core
from weft.doctor import Fact, Page, bytes_text, read

UNITS = {  # as src/base/cpu.c chooses
    "avx512": {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq"},
    "avx2": {"avx2", "fma", "f16c"},
}


def page(settings: dict[str, tuple[str, str]]) -> Page:
    """`settings` is each setting's value and source, to tell what was asked for."""
    facts = [_cores(), _numa(), _caches(), _vector_unit(settings), _memory(), _cgroup()]
    facts += [_memfd(), _huge(settings), _thp(), _cma(settings), *_limits(), _gpus()]
    return Page("machine", facts)


def _cores() -> Fact:
    usable = len(os.sched_getaffinity(0))
    model = re.search(r"model name\s*: (.*)", read("/proc/cpuinfo"))
    smt = {"0": "no SMT", "1": "SMT on"}.get(read("/sys/devices/system/cpu/smt/active"), "")
    words = [f"{usable} of {os.cpu_count()} usable", model and model[1], smt]
    return Fact("cores", ", ".join(w for w in words if w), {"usable": usable, "smt": smt})


def _numa() -> Fact:
    nodes = {
        os.path.basename(path): read(path + "/cpulist")
        for path in sorted(glob.glob("/sys/devices/system/node/node[0-9]*"))
    }
    return Fact("NUMA", "; ".join(f"{n}: cpus {c}" for n, c in nodes.items()) or "unknown", nodes)


def _caches() -> Fact:
    found = []
    for path in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*")):
        level, kind, size, shared = (
            read(f"{path}/{name}") for name in ("level", "type", "size", "shared_cpu_list")
        )
        if kind != "Instruction":
            found.append(f"L{level} {size} (cpus {shared})")
    return Fact("caches of cpu 0", ", ".join(found) or "unknown", found)


def _vector_unit(settings: dict[str, tuple[str, str]]) -> Fact:
    text = read("/proc/cpuinfo")
    words = re.search(r"flags\s*: (.*)", text)
    flags = set(words[1].split()) if words else set()
    best = next((name for name, needs in UNITS.items() if needs <= flags), "plain")
    asked = settings.get("WEFT_CPU", ("auto", "default"))[0]
    order = ["plain", *reversed(UNITS)]
    if asked not in ("auto", *order):
        known = ", ".join(["auto", *order])
        return Fact("reduce kernels", best, remedy=f"WEFT_CPU={asked} is none of {known}")
    if not text:
        return Fact("reduce kernels", "unknown: there is no /proc/cpuinfo")
    if asked in order and order.index(asked) > order.index(best):
        return Fact("reduce kernels", best, remedy=f"this CPU has no {asked}: unset WEFT_CPU")
    return Fact("reduce kernels", asked if asked in order else best)


def _memory() -> Fact:
    info = dict(re.findall(r"(\w+):\s+(\d+) kB", read("/proc/meminfo")))
    total, free = (int(info.get(key, 0)) * 1024 for key in ("MemTotal", "MemAvailable"))
    text = f"{bytes_text(free)} available of {bytes_text(total)}" if total else "unknown"
    return Fact("memory", text, {"total": total, "available": free})


def _cgroup() -> Fact:
    """As the library counts it before it takes memory."""
    _, limit, room = _core.memory()
    text = "no limit"
    if limit is not None and room is not None:
        text = f"{bytes_text(room)} left of {bytes_text(limit)}"
    return Fact("control group", f"memory: {text}", {"memory": limit, "left": room})


def _memfd() -> Fact:
    try:
        os.close(os.memfd_create("weft-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    except OSError as error:
        return Fact(
            "shared memory",
            f"memfd_create: {error.strerror}",
            remedy="shared memory needs memfd_create: ask whoever set up this sandbox to allow it",
        )
    return Fact("shared memory", "memfd works")


def _huge(settings: dict[str, tuple[str, str]]) -> Fact:
    info = dict(re.findall(r"(\w+):\s+(\d+)", read("/proc/meminfo")))
    free, size = int(info.get("HugePages_Free", 0)), int(info.get("Hugepagesize", 0)) * 1024
    text = f"{free} of {bytes_text(size)} free" if free else "none reserved"
    remedy = None
    if settings.get("WEFT_HUGE", ("", ""))[0] == "hugetlb" and free == 0:
        remedy = "WEFT_HUGE=hugetlb needs reserved pages: sysctl vm.nr_hugepages=N, as root"
    return Fact("huge pages", text, {"free": free, "bytes": size}, remedy)


def _thp() -> Fact:
    where = "/sys/kernel/mm/transparent_hugepage"
    chosen = {
        kind: (re.findall(r"\[(\w+)\]", read(f"{where}/{name}")) or ["unknown"])[0]
        for kind, name in (("private", "enabled"), ("shared", "shmem_enabled"))
    }
    text = ", ".join(f"{kind} memory: {value}" for kind, value in chosen.items())
    return Fact("transparent huge pages", text, chosen)


def _cma(settings: dict[str, tuple[str, str]]) -> Fact:
    allowed = may_read_other_process()
    scope = read("/proc/sys/kernel/yama/ptrace_scope")
    text = "allowed" if allowed else "denied; large messages go through shared memory"
    remedy = None
    if not allowed and settings.get("WEFT_SHM_CMA", ("1", "default")) == ("1", "environment"):
        remedy = "WEFT_SHM_CMA=1 needs process_vm_readv: sysctl kernel.yama.ptrace_scope=0"
        if scope in ("", "0"):
            remedy = "WEFT_SHM_CMA=1 needs process_vm_readv, which this sandbox filters"
    return Fact("reading another process", text, {"allowed": allowed, "yama": scope}, remedy)


def may_read_other_process() -> bool:
    """Have a child read a word of ours, as one rank would read another's."""
    libc = ctypes.CDLL(None, use_errno=True)
    word, copy = ctypes.c_uint64(0x77656674), ctypes.c_uint64(0)
    if not hasattr(libc, "process_vm_readv"):
        return False
    there = (ctypes.c_void_p * 2)(ctypes.addressof(word), ctypes.sizeof(word))
    here = (ctypes.c_void_p * 2)(ctypes.addressof(copy), ctypes.sizeof(copy))
    parent = os.getpid()
    try:
        child = os.fork()
    except OSError:  # no more processes can be had
        return False
    if child == 0:
        got = libc.process_vm_readv(parent, here, 1, there, 1, 0)
        os._exit(0 if got == ctypes.sizeof(word) and copy.value == word.value else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _limits() -> list[Fact]:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return [
        Fact("open files", f"{files} a process", files),
        _bytes_limit("address space", resource.RLIMIT_AS),
        _bytes_limit("locked memory", resource.RLIMIT_MEMLOCK),
        Fact("page size", bytes_text(mmap.PAGESIZE), mmap.PAGESIZE),
    ]


def _bytes_limit(name: str, which: int) -> Fact:
    limit = resource.getrlimit(which)[0]
    return Fact(name, "no limit" if limit == resource.RLIM_INFINITY else bytes_text(limit), limit)


def _gpus() -> Fact:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Fact("GPUs", "no CUDA driver", [])
    count = ctypes.c_int(0)
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return Fact("GPUs", "the CUDA driver finds none", [])
    found = []
    for index in range(count.value):
        name, device = ctypes.create_string_buffer(128), ctypes.c_int()
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, len(name), device)
        flags = []
        for what, number in (("virtual memory", 102), ("file descriptors", 103)):
            value = ctypes.c_int(0)
            cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
            flags.append(f"{what} {'yes' if value.value else 'no'}")
        found.append(f"{name.value.decode(errors='replace')} ({', '.join(flags)})")
    return Fact("GPUs", "; ".join(found) or "none", found)
