# SPDX-License-Identifier: Apache-2.0
"""Gather and scatter on a GPU against torch and a device copy.

Every result is checked bit for bit before it is timed. Rates count the bytes of gathered rows once,
as the copy's do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from . import cuda_calls, structs
from . import gpu_timing as timing

SIZES = (16, 20, 32, 36, 48, 64, 100, 112, 128, 256, 500, 512, 1024, 2048, 4096)
HOST_SIZES = (64, 128, 256, 512, 1024)
L2_FETCH = 5  # CU_LIMIT_MAX_L2_FETCH_GRANULARITY


def hbm(bench: timing.Bench, memory: Any, payload: int) -> dict[int, dict[str, float]]:
    """Gather out of the GPU's own memory. Returns medians by row size and system."""
    import torch

    k = bench.kernels
    medians: dict[int, dict[str, float]] = {}
    out_bytes = torch.empty(payload, dtype=torch.uint8, device="cuda")
    copied = torch.empty_like(out_bytes)
    timing.fill(copied)
    sizes = (64, 128, 256, 512, 20, 32) if bench.quick else SIZES
    for size in sizes:
        table = timing.as_rows(memory, size)
        # The same number of rows for an odd size and the next multiple of 16.
        n = payload // ((size + 15) // 16 * 16)
        ids = timing.random_ids(n, table.shape[0])
        out = out_bytes[: n * size].view(torch.float32).view(n, size // 4)
        source = copied[: n * size]
        out.fill_(7)
        k.gather(table, ids, out)
        timing.must_equal(out, table.index_select(0, ids), f"gather of {size} B")
        call = k.prepare(table, ids, out)
        calls: dict[str, Callable[[], Any]] = {
            "weft": k.caller("gather", call),
            "torch": partial(torch.index_select, table, 0, ids, out=out),
            "copy": partial(out.view(torch.uint8).view(-1).copy_, source),
        }
        found = bench.times(calls)
        bench.note("gather HBM", size, n * size, found)
        medians[size] = {name: times.median / n for name, times in found.items()}
        if not bench.quick:
            _variants(bench, table, ids, out)
        del ids
    return medians


def _variants(bench: timing.Bench, table: Any, ids: Any, out: Any) -> None:
    """Other ways to the same rows: what tuning, narrow and crowded ids do."""
    k = bench.kernels
    size = out.shape[1] * 4
    if size not in (64, 128, 256, 512, 4096):
        return
    small = ids.int()
    crowded = timing.random_ids(ids.numel(), table.shape[0], zipf=True)
    prepared = {f"weft flight {t}": k.prepare(table, ids, out, tune=t) for t in (1, 2, 4, 8)}
    prepared["weft int32"] = k.prepare(table, small, out)
    prepared["weft unchecked"] = k.prepare(table, ids, out, bounds="unchecked")
    prepared["weft zipf"] = k.prepare(table, crowded, out)
    found = bench.times({name: k.caller("gather", call) for name, call in prepared.items()})
    bench.note("gather HBM", size, out.numel() * 4, found)


def fetch_sizes(bench: timing.Bench, memory: Any, payload: int) -> None:
    """What the least number of bytes that L2 fetches does to short rows. It is a setting of the
    whole context, so that it is measured here and left as it was."""
    import torch

    k = bench.kernels
    driver = ctypes.CDLL("libcuda.so.1")
    usual = ctypes.c_size_t()
    driver.cuCtxGetLimit(ctypes.byref(usual), L2_FETCH)
    bench.tell(f"L2 fetches {usual.value} bytes at least")
    for size in (16, 32, 64, 128):
        table, n = timing.as_rows(memory, size), payload // size
        ids = timing.random_ids(n, table.shape[0])
        out = torch.empty(n, size // 4, device="cuda")
        call = k.prepare(table, ids, out)
        for fetch in (32, 64, 128):
            driver.cuCtxSetLimit(L2_FETCH, ctypes.c_size_t(fetch))
            found = bench.times({f"weft fetch {fetch}": k.caller("gather", call)})
            bench.note("gather HBM", size, n * size, found)
        driver.cuCtxSetLimit(L2_FETCH, usual)


def writes(bench: timing.Bench, memory: Any, payload: int) -> None:
    """Scatter and adding scatter, on rows that differ."""
    import torch

    k = bench.kernels
    for size in (64, 512):
        part = memory[: 4 * timing.GIB]
        table = timing.as_rows(part, size)
        table.copy_(torch.randint(0, 9, table.shape, device="cuda").float())
        n = payload // size
        ids = torch.randperm(table.shape[0], device="cuda")[:n]
        rows = torch.randint(0, 9, (n, size // 4), device="cuda").float()
        before = table.index_select(0, ids)
        k.scatter_add(table, ids, rows)
        timing.must_equal(table.index_select(0, ids), before + rows, "scatter_add")
        k.scatter(table, ids, rows)
        timing.must_equal(table.index_select(0, ids), rows, "scatter")
        call = k.prepare(table, ids, rows)
        ordered = k.prepare(table, ids, rows, deterministic=True)
        found = bench.times(
            {
                "weft": k.caller("scatter", call),
                "torch": partial(table.index_copy_, 0, ids, rows),
            }
        )
        bench.note("scatter HBM", size, n * size, found)
        found = bench.times(
            {
                "weft": k.caller("scatter_add", call),
                "weft in order": k.caller("scatter_add", ordered),
                "torch": partial(table.index_add_, 0, ids, rows),
            }
        )
        bench.note("scatter_add HBM", size, n * size, found)


def small_batches(bench: timing.Bench, memory: Any) -> None:
    """Rows of 512 B in calls that the launch bounds, one by one and out of a graph."""
    import torch

    k = bench.kernels
    table = timing.as_rows(memory, 512)
    inner = 50
    for n in (1024, 16384) if bench.quick else (1, 1024, 4096, 16384, 262144):
        ids = timing.random_ids(n, table.shape[0])
        out = torch.empty(n, 128, device="cuda")
        calls: dict[str, Callable[[], Any]] = {}
        call = k.prepare(table, ids, out)
        calls["weft"] = k.caller("gather", call)
        calls["torch"] = partial(torch.index_select, table, 0, ids, out=out)
        found = bench.times(calls, inner)
        bench.note(f"gather {n} rows", 512, n * 512, found)
        graphs: dict[str, Callable[[], Any]] = {}
        captured: dict[str, Callable[[], Any]] = {
            "weft graph": partial(k.gather, table, ids, out),
            "torch graph": calls["torch"],
        }
        for name, one in captured.items():
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(inner):
                    one()
            graphs[name] = graph.replay
        found = bench.times(graphs)
        for times in found.values():
            times.us = [us / inner for us in times.us]
        bench.note(f"gather {n} rows", 512, n * 512, found)


def host(bench: timing.Bench, table_bytes: int) -> dict[int, dict[str, float]]:
    """Gather out of pinned host memory, ids in order of pages or as they come."""
    import torch

    k = bench.kernels
    n = 4 << 20
    medians: dict[int, dict[str, float]] = {}
    memory = torch.empty(table_bytes, dtype=torch.uint8, pin_memory=True)
    mirror = torch.empty(table_bytes, dtype=torch.uint8, device="cuda")
    timing.fill(mirror)
    memory.copy_(mirror)
    for size in (128, 512) if bench.quick else HOST_SIZES:
        table, twin = timing.as_rows(memory, size), timing.as_rows(mirror, size)
        ids = timing.random_ids(n, table.shape[0])
        out = torch.empty(n, size // 4, device="cuda")
        want = twin.index_select(0, ids)
        prepared = {}
        for name, sort in (("weft sorted", 1), ("weft unsorted", -1), ("weft", 0)):
            out.fill_(7)
            k.gather(table, ids, out, sort=sort)
            timing.must_equal(out, want, f"{name} host gather of {size} B")
            prepared[name] = k.prepare(table, ids, out, sort=sort)
        del want
        source = memory[: n * size].view(torch.float32).view(n, size // 4)
        calls: dict[str, Callable[[], Any]] = {
            name: k.caller("gather", call) for name, call in prepared.items()
        }
        calls["copy"] = partial(out.copy_, source, non_blocking=True)
        found = bench.times(calls)
        bench.note("gather host", size, n * size, found)
        medians[size] = {name: times.median for name, times in found.items()}
    k.trim()
    return medians


def through_libweft(bench: timing.Bench, memory: Any, library: Path) -> None:
    """A small call as a program in C makes it, with all its checks of arguments."""
    import torch

    path = library.with_name("libweft.so")
    path = path if path.is_file() else library.with_name("libweft.so.0")
    if not path.is_file():
        return
    weft = ctypes.CDLL(str(path))
    if not hasattr(weft, "weft_rows_gather"):
        return
    weft.weft_error_detail.restype = ctypes.c_char_p
    table = timing.as_rows(memory, 512)
    ids = timing.random_ids(1024, table.shape[0])
    out = torch.empty(1024, 128, device="cuda")
    options = structs.WeftOptions(
        size=ctypes.sizeof(structs.WeftOptions), stream=torch.cuda.current_stream().cuda_stream
    )
    named = (cuda_calls.weft_table_of(table), cuda_calls.ids_of(ids), cuda_calls.rows_of(out))
    arguments = [ctypes.byref(a) for a in (*named, options)]

    def call() -> None:
        if weft.weft_rows_gather(*arguments) != 0:
            raise RuntimeError(weft.weft_error_detail().decode())

    call()
    timing.must_equal(out, table.index_select(0, ids), "weft_rows_gather")
    bench.note("gather 1024 rows", 512, 1024 * 512, bench.times({"libweft": call}, 50))
