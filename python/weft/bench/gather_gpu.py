# SPDX-License-Identifier: Apache-2.0
"""Gather, scatter and sparse optimizers on a GPU against torch and a device copy.

`run(quick)` gives the rows of `weft bench gather` that need a GPU, and the marks G3a to G5. As a
program of its own: python3 gather_gpu.py [--quick] [--build DIR] [--json FILE].

Every result is checked bit for bit before it is timed. Systems take turns, one call between two
events; a figure is the median of these, low and high its 10th and 90th percentile. Rates count
the bytes of gathered rows once, as the copy's do.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

try:
    from . import cuda_calls
except ImportError:  # started by its path, without the package around it
    import cuda_calls  # type: ignore[import-not-found, no-redef]

GIB = 1 << 30
SIZES = (16, 20, 32, 36, 48, 64, 100, 112, 128, 256, 500, 512, 1024, 2048, 4096)
ODD_SIZES = {20: 32, 36: 48, 100: 112, 500: 512}  # and the next multiple of 16
HOST_SIZES = (64, 128, 256, 512, 1024)
UPDATE_SIZES = (128, 256, 512)
COPY_GOALS = {64: 0.60, 128: 0.80, 256: 0.90, 512: 0.90, 1024: 0.90, 2048: 0.90, 4096: 0.90}
TORCH_GOALS = {64: 11.0, 128: 7.0, 512: 2.0}
HOST_GOALS = {64: 3.0, 128: 3.0, 256: 3.0, 512: 1.7}
UPDATE_GOAL = 1.3
ODD_GOAL = 1.25
MARKS = ("G3a", "G3b", "G4", "G5")
LIBRARY = "libweft_cuda.so"


def unavailable() -> str | None:
    """Why nothing can be measured here; None if it can."""
    try:
        import torch
    except ImportError:
        return "no torch"
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    return None


def find_library(build: Path | None = None) -> Path | None:
    """The kernels: in a build folder, or beside the installed package's libweft."""
    folders = [build] if build else [Path(__file__).resolve().parents[1]]
    return next((f / LIBRARY for f in folders if (f / LIBRARY).is_file()), None)


@dataclass
class Times:
    """Microseconds of one system in one case."""

    us: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.us)

    def at(self, share: float) -> float:
        return sorted(self.us)[round(share * (len(self.us) - 1))]


@dataclass
class Bench:
    """What all measurements share."""

    kernels: cuda_calls.Kernels
    quick: bool
    show: bool = False  # print each row as it comes
    failed: dict[str, str] = field(default_factory=dict)
    rows: list[dict] = field(default_factory=list)
    seconds: float = 0.15  # for the timed calls of one system in one case

    def times(self, calls: dict[str, Callable[[], Any]], inner: int = 1) -> dict[str, Times]:
        """Time each of `calls` in turn, `inner` at a time."""
        import torch

        found: dict[str, Times] = {name: Times() for name in calls}
        for call in calls.values():
            call()
        torch.cuda.synchronize()
        began = time.monotonic()
        for call in calls.values():
            call()
        torch.cuda.synchronize()
        once = max(time.monotonic() - began, 1e-4)
        least = 20 if once * inner < 0.1 else 7
        turns = int(max(least, min(50, self.seconds * len(calls) / (once * inner))))
        pairs: list[tuple[str, Any, Any]] = []
        for _ in range(turns):
            for name, call in calls.items():
                begin = torch.cuda.Event(enable_timing=True)
                end = torch.cuda.Event(enable_timing=True)
                begin.record()
                for _ in range(inner):
                    call()
                end.record()
                pairs.append((name, begin, end))
        torch.cuda.synchronize()
        for name, begin, end in pairs:
            found[name].us.append(begin.elapsed_time(end) * 1000 / inner)
        return found

    def note(self, op: str, size: int, payload: int, found: dict[str, Times]) -> None:
        """Keep a row for each system; `payload` is the bytes that a call moves."""
        for system, times in found.items():
            self.rows.append(
                {
                    "bench": "gather",
                    "case": op,
                    "system": system,
                    "ranks": 1,
                    "bytes": size,
                    "value": times.median,
                    "unit": "us",
                    "low": times.at(0.1),
                    "high": times.at(0.9),
                    "op": op,
                    "placement": "any",
                    "cores": None,
                    "blocks": len(times.us),
                    "gb_per_s": payload / times.median / 1e3,
                }
            )
            row = self.rows[-1]
            self.tell(
                f"{op:28} {size:5} B  {system:16} {times.median:10.1f} us "
                f"({row['low']:.1f} to {row['high']:.1f})  {row['gb_per_s']:8.1f} GB/s"
            )

    def tell(self, text: str) -> None:
        if self.show:
            print(text, flush=True)

    def attempt(self, what: Callable[..., Any], *arguments: Any) -> Any:
        """A measurement that may fail without keeping the others from being made; {} then."""
        import torch

        try:
            return what(self, *arguments)
        except Exception as error:
            self.failed[what.__name__] = f"{what.__name__}: {error}"
            self.tell(f"FAILED {self.failed[what.__name__]}")
            return {}
        finally:
            torch.cuda.empty_cache()


def _must_equal(got: Any, want: Any, what: str) -> None:
    import torch

    a, b = got.contiguous().view(torch.uint8), want.contiguous().view(torch.uint8)
    if a.shape != b.shape or not torch.equal(a, b):
        raise RuntimeError(f"{what}: the result is wrong")


def _fill(tensor: Any) -> None:
    """Random bits; compared as bytes, so that a NaN is as good as any."""
    import torch

    flat = tensor.view(-1)
    step = GIB
    for at in range(0, flat.numel(), step):
        flat[at : at + step].view(torch.int64).random_()


def _as_rows(memory: Any, size: int) -> Any:
    """Bytes as a table of f32 with rows of `size` bytes."""
    import torch

    count = memory.numel() // size
    return memory[: count * size].view(torch.float32).view(count, size // 4)


def _random_ids(n: int, rows: int, zipf: bool = False) -> Any:
    import torch

    if not zipf:
        return torch.randint(0, rows, (n,), device="cuda")
    # Numbers of a Zipf law of exponent 1, spread over the table.
    rank = torch.exp(torch.rand(n, device="cuda", dtype=torch.float64) * math.log(rows)).long()
    return (rank * 2654435761) % rows


def hbm(bench: Bench, memory: Any, payload: int) -> dict[int, dict[str, float]]:
    """Gather out of the GPU's own memory. Returns medians by row size and system."""
    import torch

    k = bench.kernels
    medians: dict[int, dict[str, float]] = {}
    out_bytes = torch.empty(payload, dtype=torch.uint8, device="cuda")
    copied = torch.empty_like(out_bytes)
    _fill(copied)
    sizes = (64, 128, 256, 512, 20, 32) if bench.quick else SIZES
    for size in sizes:
        table = _as_rows(memory, size)
        # The same number of rows for an odd size and the next multiple of 16.
        n = payload // ((size + 15) // 16 * 16)
        ids = _random_ids(n, table.shape[0])
        out = out_bytes[: n * size].view(torch.float32).view(n, size // 4)
        source = copied[: n * size]
        out.fill_(7)
        k.gather(table, ids, out)
        _must_equal(out, table.index_select(0, ids), f"gather of {size} B")
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


def _variants(bench: Bench, table: Any, ids: Any, out: Any) -> None:
    """Other ways to the same rows: what tuning, narrow and crowded ids do."""
    k = bench.kernels
    size = out.shape[1] * 4
    if size not in (64, 128, 256, 512, 4096):
        return
    small = ids.int()
    crowded = _random_ids(ids.numel(), table.shape[0], zipf=True)
    prepared = {f"weft flight {t}": k.prepare(table, ids, out, tune=t) for t in (1, 2, 4, 8)}
    prepared["weft int32"] = k.prepare(table, small, out)
    prepared["weft unchecked"] = k.prepare(table, ids, out, bounds="unchecked")
    prepared["weft zipf"] = k.prepare(table, crowded, out)
    found = bench.times({name: k.caller("gather", call) for name, call in prepared.items()})
    bench.note("gather HBM", size, out.numel() * 4, found)


L2_FETCH = 5  # CU_LIMIT_MAX_L2_FETCH_GRANULARITY


def fetch_sizes(bench: Bench, memory: Any, payload: int) -> None:
    """What the least number of bytes that L2 fetches does to short rows. It is a setting of the
    whole context, so that it is measured here and left as it was."""
    import torch

    k = bench.kernels
    driver = ctypes.CDLL("libcuda.so.1")
    usual = ctypes.c_size_t()
    driver.cuCtxGetLimit(ctypes.byref(usual), L2_FETCH)
    bench.tell(f"L2 fetches {usual.value} bytes at least")
    for size in (16, 32, 64, 128):
        table, n = _as_rows(memory, size), payload // size
        ids = _random_ids(n, table.shape[0])
        out = torch.empty(n, size // 4, device="cuda")
        call = k.prepare(table, ids, out)
        for fetch in (32, 64, 128):
            driver.cuCtxSetLimit(L2_FETCH, ctypes.c_size_t(fetch))
            found = bench.times({f"weft fetch {fetch}": k.caller("gather", call)})
            bench.note("gather HBM", size, n * size, found)
        driver.cuCtxSetLimit(L2_FETCH, usual)


def writes(bench: Bench, memory: Any, payload: int) -> None:
    """Scatter and adding scatter, on rows that differ."""
    import torch

    k = bench.kernels
    for size in (64, 512):
        part = memory[: 4 * GIB]
        table = _as_rows(part, size)
        table.copy_(torch.randint(0, 9, table.shape, device="cuda").float())
        n = payload // size
        ids = torch.randperm(table.shape[0], device="cuda")[:n]
        rows = torch.randint(0, 9, (n, size // 4), device="cuda").float()
        before = table.index_select(0, ids)
        k.scatter_add(table, ids, rows)
        _must_equal(table.index_select(0, ids), before + rows, "scatter_add")
        k.scatter(table, ids, rows)
        _must_equal(table.index_select(0, ids), rows, "scatter")
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


def small_batches(bench: Bench, memory: Any) -> None:
    """Rows of 512 B in calls that the launch bounds, one by one and out of a graph."""
    import torch

    k = bench.kernels
    table = _as_rows(memory, 512)
    inner = 50
    for n in (1024, 16384) if bench.quick else (1, 1024, 4096, 16384, 262144):
        ids = _random_ids(n, table.shape[0])
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


def host(bench: Bench, table_bytes: int) -> dict[int, dict[str, float]]:
    """Gather out of pinned host memory, ids in order of pages or as they come."""
    import torch

    k = bench.kernels
    n = 4 << 20
    medians: dict[int, dict[str, float]] = {}
    memory = torch.empty(table_bytes, dtype=torch.uint8, pin_memory=True)
    mirror = torch.empty(table_bytes, dtype=torch.uint8, device="cuda")
    _fill(mirror)
    memory.copy_(mirror)
    for size in (128, 512) if bench.quick else HOST_SIZES:
        table, twin = _as_rows(memory, size), _as_rows(mirror, size)
        ids = _random_ids(n, table.shape[0])
        out = torch.empty(n, size // 4, device="cuda")
        want = twin.index_select(0, ids)
        prepared = {}
        for name, sort in (("weft sorted", 1), ("weft unsorted", -1), ("weft", 0)):
            out.fill_(7)
            k.gather(table, ids, out, sort=sort)
            _must_equal(out, want, f"{name} host gather of {size} B")
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


def updates(bench: Bench, payload: int) -> dict[tuple[str, int], float]:
    """Sparse optimizers: time over that of their bytes at the speed of a copy."""
    import torch

    k = bench.kernels
    ratios = {}
    for size in (512,) if bench.quick else UPDATE_SIZES:
        width, n = size // 4, payload // size
        rows = 4 * n
        weights = torch.randn(rows, width, device="cuda")
        state = [torch.zeros_like(weights), torch.zeros_like(weights)]
        steps = torch.zeros(rows, 1, dtype=torch.int32, device="cuda")
        grads = torch.randn(n, width, device="cuda")
        ids = torch.randperm(rows, device="cuda")[:n]
        other = torch.empty_like(grads)
        copy = bench.times({"copy": partial(other.copy_, grads)})["copy"]
        bytes_per_us = 2 * n * size / copy.median
        kinds = {"adagrad": (5, state[:1]), "adam": (7, state), "lazy_adam": (7, [*state, steps])}
        if not bench.quick:
            kinds["sgd"] = (3, [])
            kinds["rowwise_adagrad"] = (3, [torch.zeros(rows, 1, device="cuda")])
        for kind, (passes, tables) in kinds.items():
            rule = cuda_calls.update_rule(kind, lr=1e-3)
            _check_update(bench, (weights, tables, ids, grads), rule)
            call = k.prepare_update(weights, tables, ids, grads, rule)
            found = bench.times({"weft": k.caller("update", call)})
            moved = n * (passes * size + 8)
            bench.note(f"update {kind}", size, moved, found)
            ratios[kind, size] = found["weft"].median / (moved / bytes_per_us)
            bench.tell(f"{'':28} {size:5} B  {ratios[kind, size]:.3f}x its bytes at copy speed")
        _unique(bench, ids, grads, other)
    k.trim()
    return ratios


def _unique(bench: Bench, ids: Any, grads: Any, sums: Any) -> None:
    """Sums of gradients where each id is there twice."""
    import torch

    k, n = bench.kernels, ids.numel()
    twice = torch.cat([ids[: n // 2], ids[: n - n // 2]])
    out_ids = torch.empty_like(ids)
    count = torch.zeros(1, dtype=torch.int64, device="cuda")
    found = bench.times({"weft": partial(k.unique, twice, grads, out_ids, sums, count, rows=4 * n)})
    bench.note("unique, each id twice", grads.shape[1] * 4, grads.numel() * 4, found)


def _check_update(bench: Bench, call: tuple[Any, list, Any, Any], rule: cuda_calls.Update) -> None:
    """The first rows against the formula in double; others are tested elsewhere."""
    weights, tables, ids, grads = call
    for table in tables:
        table.zero_()
    some = ids[:1000]
    w = weights[some].double()
    g = grads[:1000].double()
    s = [t[some].double() for t in tables]
    kind = cuda_calls.OPTIMIZERS[rule.kind]
    if kind == "sgd":
        want = w - rule.lr * g
    elif kind == "adagrad":
        want = w - rule.lr * g / ((s[0] + g * g).sqrt() + rule.eps)
    elif kind == "rowwise_adagrad":
        want = w - rule.lr * g / ((s[0] + (g * g).mean(1, keepdim=True)).sqrt() + rule.eps)
    else:
        t = 1 if kind == "adam" else s[2] + 1
        m = rule.beta1 * s[0] + (1 - rule.beta1) * g
        v = rule.beta2 * s[1] + (1 - rule.beta2) * g * g
        want = w - rule.lr / (1 - rule.beta1**t) * m / ((v / (1 - rule.beta2**t)).sqrt() + rule.eps)
    bench.kernels.update(weights, tables, ids, grads, rule)
    worst = (weights[some].double() - want).abs().max().item()
    if not worst <= 2e-6 * max(1.0, want.abs().max().item()):
        raise RuntimeError(f"{kind}: differs from its formula by {worst:.3g}")


def through_libweft(bench: Bench, memory: Any, library: Path) -> None:
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
    table = _as_rows(memory, 512)
    ids = _random_ids(1024, table.shape[0])
    out = torch.empty(1024, 128, device="cuda")
    options = cuda_calls.WeftOptions(
        size=ctypes.sizeof(cuda_calls.WeftOptions), stream=torch.cuda.current_stream().cuda_stream
    )
    structs = (cuda_calls.weft_table_of(table), cuda_calls.ids_of(ids), cuda_calls.rows_of(out))
    arguments = [ctypes.byref(a) for a in (*structs, options)]

    def call() -> None:
        if weft.weft_rows_gather(*arguments) != 0:
            raise RuntimeError(weft.weft_error_detail().decode())

    call()
    _must_equal(out, table.index_select(0, ids), "weft_rows_gather")
    bench.note("gather 1024 rows", 512, 1024 * 512, bench.times({"libweft": call}, 50))


def _mark(name: str, judged: Iterable[tuple[str, float, float, str]], direction: str) -> dict:
    """A row for a mark: the worst of (case, ratio, goal, against)."""

    def badness(one: tuple[str, float, float, str]) -> float:
        return one[1] / one[2] if direction == "<=" else one[2] / one[1]

    found = list(judged)
    if not found:
        return unjudged(name, "not measured")
    case, ratio, goal, against = max(found, key=badness)
    met = all(badness(one) <= 1 for one in found)
    return {
        "mark": name, "ratio": ratio, "goal": goal, "direction": direction, "met": met,
        "placement": "any", "case": case, "ranks": 1, "against": against, "reason": "",
    }  # fmt: skip


def unjudged(name: str, reason: str) -> dict:
    """A mark that this machine cannot judge."""
    return {
        "mark": name, "ratio": None, "goal": {"G5": UPDATE_GOAL}.get(name, 1.0), "direction": ">=",
        "met": None, "placement": "any", "case": "-", "ranks": 1, "against": "-", "reason": reason,
    }  # fmt: skip


def _marks(
    near: dict[int, dict[str, float]],
    far: dict[int, dict[str, float]],
    ratios: dict[tuple[str, int], float],
) -> list[dict]:
    copy = [
        (f"gather {size} B", near[size]["copy"] / near[size]["weft"], goal, "copy")
        for size, goal in COPY_GOALS.items()
        if size in near
    ]
    peers = [
        (f"gather {size} B", near[size]["torch"] / near[size]["weft"], goal, "torch")
        for size, goal in TORCH_GOALS.items()
        if size in near
    ]
    # Told as rates, like the others: of the next size's, at least 1 / 1.25.
    odd = [
        (f"gather {a} B", near[b]["weft"] / near[a]["weft"], 1 / ODD_GOAL, f"{b} B")
        for a, b in ODD_SIZES.items()
        if a in near and b in near
    ]
    host_ = [
        (f"host {s} B", far[s]["weft unsorted"] / far[s]["weft sorted"], goal, "unsorted")
        for s, goal in HOST_GOALS.items()
        if s in far
    ]
    fused = [
        (f"{kind} {size} B", ratio, UPDATE_GOAL, "bytes at copy speed")
        for (kind, size), ratio in ratios.items()
        if kind in ("adagrad", "adam")
    ]
    rows = [_mark("G3a", copy, ">="), _mark("G3b", [*peers, *odd], ">=")]
    rows += [_mark("G4", host_, ">="), _mark("G5", fused, "<=")]
    for row, everything in zip(rows, (copy, [*peers, *odd], host_, fused), strict=True):
        row["all"] = [{"case": c, "ratio": r, "goal": g, "against": a} for c, r, g, a in everything]
    return rows


def run(quick: bool, build: Path | None = None, show: bool = False) -> list[dict]:
    """All rows and marks; marks without a verdict where there is no GPU or no library."""
    why = unavailable()
    library = None if why else find_library(build)
    if why is None and library is None:
        why = f"no {LIBRARY}: install nvcc and build weft again"
    if why is not None or library is None:
        return [unjudged(name, why or "") for name in MARKS]
    import torch

    bench = Bench(cuda_calls.Kernels(library), quick, show)
    free = torch.cuda.mem_get_info()[0]
    payload = GIB if free > 40 * GIB else GIB // 8
    table_bytes = min(32 * GIB, free // 2 // GIB * GIB)
    if table_bytes < 32 * GIB:
        bench.tell(f"the table has {table_bytes / GIB:.0f} GiB only: the GPU has no more")
    memory = torch.empty(table_bytes, dtype=torch.uint8, device="cuda")
    _fill(memory)
    near = bench.attempt(hbm, memory, payload)
    bench.attempt(small_batches, memory)
    bench.attempt(through_libweft, memory, library)
    if not quick:
        bench.attempt(fetch_sizes, memory, payload)
        bench.attempt(writes, memory, payload)
    del memory
    torch.cuda.empty_cache()
    ratios = bench.attempt(updates, payload)
    far = bench.attempt(host, (1 if quick else 8) * GIB)
    marks = _marks(near, far, ratios)
    for mark, what in zip(marks, ("hbm", "hbm", "host", "updates"), strict=True):
        mark["reason"] = bench.failed.get(what, mark["reason"])
    return [*bench.rows, *marks]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--build", type=Path, help=f"the folder with {LIBRARY}")
    parser.add_argument("--json", type=Path, help="where the rows go")
    args = parser.parse_args(argv)
    began = time.monotonic()
    rows = run(args.quick, args.build, show=True)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    words = {True: "met", False: "NOT MET", None: "not judged"}
    for row in rows:
        if "mark" in row:
            for one in row.get("all", []):
                print(
                    f"  {row['mark']:4} {one['case']:18} {one['ratio']:8.3f} {row['direction']} "
                    f"{one['goal']:.3g}  / {one['against']}"
                )
            print(f"{row['mark']}: {words[row['met']]} {row['reason']}")
    print(f"{time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
