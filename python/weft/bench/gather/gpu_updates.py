# SPDX-License-Identifier: Apache-2.0
"""Sparse optimizers on a GPU, and the sums of gradients that come before them.

What a step reads and writes at the speed of a copy is the time it is compared with.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from . import cuda_calls

if TYPE_CHECKING:
    from .gpu_timing import Bench

UPDATE_SIZES = (128, 256, 512)


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
