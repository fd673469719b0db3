#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernels for GPUs against torch: python3 test_rows_cuda.py BUILD_DIR

Needs torch with a GPU and libweft_cuda.so in BUILD_DIR; nothing else. Every check is named; a
check that fails does not keep the others from running. Exit code 1: one failed. 77: no GPU.
"""

import ctypes
import sys
import time
import traceback
from pathlib import Path

try:
    import torch
except ImportError:
    print("no torch here")
    sys.exit(77)

from weft.bench.gather import cuda_calls as calls
from weft.bench.gather import structs

ROOT = Path(__file__).resolve().parents[2]
CUDA = "cuda"
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
IDS = (torch.int32, torch.int64)
# Rows of 16-byte chunks, of less, and longer than a block has at a time.
WIDTHS = (1, 3, 4, 5, 9, 16, 25, 32, 125, 128, 1000, 9001)


kernels = None
build = Path()


def numbers(shape, dtype, device=CUDA, seed=0):
    """Any bits that are no NaN: equal bits are then equal numbers."""
    made = torch.Generator(device).manual_seed(seed)
    values = torch.randint(-100, 100, shape, generator=made, device=device)
    return values > 0 if dtype == torch.bool else values.to(dtype)


def random_ids(n, rows, dtype=torch.int64, seed=1, low=0):
    made = torch.Generator("cpu").manual_seed(seed)
    return torch.randint(low, rows, (n,), generator=made).to(dtype).to(CUDA)


def distinct_ids(n, rows, dtype=torch.int64, seed=1):
    made = torch.Generator("cpu").manual_seed(seed)
    return torch.randperm(rows, generator=made)[:n].to(dtype).to(CUDA)


def same_bits(got, want):
    got, want = got.contiguous(), want.contiguous().to(got.device)
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.numel() == 0:
        return
    wrong = (got.view(torch.uint8) != want.view(torch.uint8)).sum().item()
    assert wrong == 0, f"{wrong} of {got.numel() * got.element_size()} bytes differ"


def near(got, want, tolerance):
    got, want = got.double().cpu(), want.double().cpu()
    worst = ((got - want).abs() / want.abs().clamp(min=1)).max().item() if got.numel() else 0
    assert worst <= tolerance, f"differs by {worst:.3g}, may by {tolerance:.3g}"


def gather_is_index_select():
    for dtype in FLOATS + INTEGERS + COMPLEX:
        for width in WIDTHS:
            table = numbers((203, width), dtype)
            for id_type in IDS:
                for n in (0, 1, 7, 1000):
                    ids = random_ids(n, 203, id_type)
                    out = numbers((n, width), dtype, seed=9)
                    kernels.gather(table, ids, out)
                    same_bits(out, table.index_select(0, ids))


def gather_of_many_rows():
    for width, n in ((4, 1_000_003), (5, 500_009), (25, 300_007), (128, 200_003)):
        table = torch.randn(100_003, width, device=CUDA)
        ids = random_ids(n, 100_003)
        want = table.index_select(0, ids)
        for tune in (0, 1, 2, 4, 8):
            out = torch.full((n, width), 7.0, device=CUDA)
            kernels.gather(table, ids, out, tune=tune)
            same_bits(out, want)


def gather_beyond_four_gib():
    table = torch.zeros(6 << 30, dtype=torch.uint8, device=CUDA).view(-1, 64)
    rows = table.shape[0]
    ids = torch.arange(rows - 1000, rows, device=CUDA)
    table[rows - 1000 :] = numbers((1000, 64), torch.uint8)
    out = torch.empty(1000, 64, dtype=torch.uint8, device=CUDA)
    kernels.gather(table, ids, out)
    same_bits(out, table[rows - 1000 :])


def gather_of_a_few_long_rows():
    for dtype in (torch.uint8, torch.float32):
        for width in (300_000, 300_001, 5_000_000):
            table = numbers((5, width), dtype)
            ids = torch.tensor([4, 0, 4], device=CUDA)
            out = numbers((3, width), dtype, seed=2)
            kernels.gather(table, ids, out)
            same_bits(out, table[ids])


def gather_of_columns_into_strides():
    for dtype in (torch.uint8, torch.float16, torch.float32, torch.float64):
        for skip, width, wide_out in (
            (0, 16, 24),
            (1, 15, 17),
            (2, 14, 20),
            (4, 12, 16),
            (8, 8, 9),
        ):
            whole = numbers((99, 32), dtype)
            view = whole[:, skip : skip + width]
            ids = random_ids(500, 99)
            room = numbers((500, wide_out), dtype, seed=4)
            want = room.clone()
            want[:, 1 : 1 + width] = view.index_select(0, ids)
            kernels.gather(view, ids, room[:, 1 : 1 + width])
            same_bits(room, want)


def gather_of_rows_at_any_byte():
    """Rows one after the other that no vector fits: both sides begin anywhere."""
    for width in (64, 65, 66, 77, 100, 250, 256, 260, 500, 501, 502, 4093):
        for skip in (0, 1, 2, 4, 8, 15):
            whole = numbers((103, width + 16), torch.uint8)
            packed = whole[:, skip : skip + width].contiguous()
            for table in (packed, whole[:, skip : skip + width]):
                for n in (1, 3, 1001):
                    ids = random_ids(n, 110, low=-9, seed=skip)
                    out = numbers((n, width), torch.uint8, seed=3)
                    want = out.clone()
                    kept = (ids >= 0) & (ids < 103)
                    want[kept] = table[ids[kept]]
                    kernels.gather(table, ids, out, bounds="skip")
                    same_bits(out, want)
    for width in (125, 333):
        table = torch.randn(50_001, width, device=CUDA)
        ids = random_ids(200_003, 50_001, torch.int32)
        out = torch.zeros(200_003, width, device=CUDA)
        kernels.gather(table, ids, out)
        same_bits(out, table.index_select(0, ids))


def negative_ids_leave_the_row():
    for dtype in (torch.uint8, torch.float32):
        for id_type in IDS:
            table = numbers((50, 20), dtype)
            ids = random_ids(400, 50, id_type, low=-50)
            out = numbers((400, 20), dtype, seed=5)
            want = out.clone()
            want[ids >= 0] = table.index_select(0, ids[ids >= 0])
            kernels.gather(table, ids, out)
            same_bits(out, want)
            rows = numbers((400, 20), dtype, seed=6)
            want = table.clone()
            for i, r in enumerate(ids.tolist()):
                if r >= 0:
                    want[r] = rows[i]
            kernels.scatter(table, ids, rows)
            same_bits(table, want)
    assert kernels.check().seen == 0


def ids_past_the_end():
    table = numbers((50, 8), torch.float32)
    ids = torch.tensor([3, 50, 7, 1 << 40, 49], device=CUDA)
    good = torch.tensor([0, 2, 4], device=CUDA)
    for bounds in ("skip", "error"):
        out = numbers((5, 8), torch.float32, seed=5)
        want = out.clone()
        want[good] = table.index_select(0, ids[good])
        kernels.gather(table, ids, out, bounds=bounds)
        bad = kernels.check()
        same_bits(out, want)
        assert bad.seen == (bounds == "error")
        if bad.seen:
            assert (bad.id, bad.at, bad.rows) in ((50, 1, 50), (1 << 40, 3, 50)), bad.id
    before = table.clone()
    for call in (kernels.scatter, kernels.scatter_add):
        call(table, ids[1:2], torch.ones(1, 8, device=CUDA), bounds="error")
        assert kernels.check().seen == 1
    kernels.scatter_add(
        table, ids[1:2], torch.ones(1, 8, device=CUDA), bounds="error", deterministic=True
    )
    assert kernels.check().seen == 1
    same_bits(table, before)
    assert kernels.check().seen == 0


def conversions():
    for group in (FLOATS, INTEGERS, COMPLEX):
        for source in group:
            for target in group:
                table = numbers((60, 13), source)
                ids = distinct_ids(40, 60)
                out = numbers((40, 13), target, seed=5)
                kernels.gather(table, ids, out)
                same_bits(out, table.index_select(0, ids).to(target))
                rows = numbers((40, 13), target, seed=6)
                want = table.clone()
                want[ids] = rows.to(source)
                kernels.scatter(table, ids, rows)
                same_bits(table, want)
    table = torch.randn(60, 13, dtype=torch.float64, device=CUDA) * 1e3
    ids = random_ids(100, 60)
    for target in FLOATS:
        out = torch.zeros(100, 13, dtype=target, device=CUDA)
        kernels.gather(table, ids, out)
        same_bits(out, table.index_select(0, ids).to(target))


def scatter_of_distinct_ids():
    for dtype in (torch.uint8, torch.bfloat16, torch.float32, torch.int64):
        for width in WIDTHS:
            for id_type in IDS:
                table = numbers((300, width), dtype)
                ids = distinct_ids(200, 300, id_type)
                rows = numbers((200, width), dtype, seed=5)
                want = table.clone()
                want[ids.long()] = rows
                kernels.scatter(table, ids, rows)
                same_bits(table, want)


def last_of(ids):
    """For each id that occurs, the last place that has it."""
    last = {}
    for place, i in enumerate(ids.tolist()):
        last[i] = place
    rows = torch.tensor(list(last.keys()), device=CUDA)
    return rows, torch.tensor(list(last.values()), device=CUDA)


def scatter_of_equal_ids_keeps_the_last():
    for n, count in ((2, 1), (1000, 1), (1000, 30), (200_000, 5), (200_000, 50_000)):
        for id_type in IDS:
            table = numbers((50_000, 6), torch.float32)
            ids = random_ids(n, count, id_type)
            rows = torch.arange(n * 6, device=CUDA).float().view(n, 6)
            want = table.clone()
            into, place = last_of(ids)
            want[into] = rows[place]
            kernels.scatter(table, ids, rows)
            same_bits(table, want)


def scatter_of_many_into_more_rows():
    """So many that it is found out first which rows are named more than once."""
    n, count = 300_007, 1_000_003
    for ids in (random_ids(n, count, low=-50), random_ids(n, count, torch.int32)):
        table = numbers((count, 2), torch.float32)
        rows = torch.arange(n * 2, device=CUDA).float().view(n, 2)
        want = table.clone()
        into, place = last_of(ids)
        want[into[into >= 0]] = rows[place[into >= 0]]
        kernels.scatter(table, ids, rows)
        same_bits(table, want)
    ids = distinct_ids(n, count)
    kernels.scatter(table, ids, rows)
    same_bits(table[ids], rows)


def scatter_add_of_exact_numbers():
    for dtype in (
        *FLOATS,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        *COMPLEX,
    ):
        for width in (1, 3, 4, 8, 16, 33, 128):
            for id_type in IDS:
                table = (
                    numbers((40, width), dtype) % 4
                    if dtype not in COMPLEX
                    else numbers((40, width), dtype)
                )
                ids = random_ids(300, 40, id_type)
                rows = (torch.arange(300 * width, device=CUDA) % 3).view(300, width).to(dtype)
                want = table.clone().index_add_(0, ids.long(), rows)
                for deterministic in (False, True):
                    got = table.clone()
                    kernels.scatter_add(got, ids, rows, deterministic=deterministic)
                    same_bits(got, want)


def scatter_add_in_order():
    for dtype in FLOATS:
        table = torch.randn(100, 37, device=CUDA).to(dtype)
        ids = random_ids(2000, 100)
        rows = torch.randn(2000, 37, device=CUDA).to(dtype)
        want, rows_here = table.cpu().clone(), rows.cpu()
        for i, r in enumerate(ids.tolist()):
            want[r] += rows_here[i]
        got = table.clone()
        kernels.scatter_add(got, ids, rows, deterministic=True)
        same_bits(got, want)
        loose = table.clone()
        kernels.scatter_add(loose, ids, rows)
        near(loose, want, 0.3 if dtype == torch.bfloat16 else 0.05)


def scatter_add_of_many_to_one_row():
    table = torch.zeros(3, 64, device=CUDA)
    ids = torch.full((100_000,), 1, device=CUDA)
    kernels.scatter_add(table, ids, torch.ones(100_000, 64, device=CUDA))
    assert table[1].eq(100_000).all() and table[0].eq(0).all()


def host_tables():
    for width in (3, 16, 32, 200):
        table = torch.randn(20_000, width).pin_memory()
        ids = random_ids(50_000, 20_000, low=-5)
        good = ids >= 0
        for sort in (-1, 0, 1):
            out = torch.full((50_000, width), 7.0, device=CUDA)
            want = out.clone()
            want[good] = table.cuda().index_select(0, ids[good])
            kernels.gather(table, ids, out, sort=sort)
            same_bits(out, want)
        rows = torch.randn(50_000, width, device=CUDA)
        into, place = last_of(ids)
        keep = into >= 0
        for sort in (-1, 1):
            target = table.clone().pin_memory()
            want = table.clone()
            want[into[keep].cpu()] = rows[place[keep]].cpu()
            kernels.scatter(target, ids, rows, sort=sort)
            torch.cuda.synchronize()
            same_bits(target, want)


def host_tables_add():
    for dtype in (*FLOATS, torch.int32, torch.int64, torch.uint8):
        table = numbers((100, 10), dtype, "cpu") % 4
        table = table.pin_memory()
        ids = random_ids(300, 100)
        rows = numbers((300, 10), dtype, seed=3) % 3
        want = table.clone().index_add_(0, ids.cpu(), rows.cpu())
        kernels.scatter_add(table, ids, rows)
        torch.cuda.synchronize()
        same_bits(table, want)


def tables_in_parts():
    for width in (5, 16):
        parts = [torch.randn(n, width, device=CUDA) for n in (7, 100, 1, 40)]
        whole = torch.cat(parts)
        table = calls.table_of(whole, parts)
        ids = random_ids(1000, 148, low=-3)
        out = torch.full((1000, width), 7.0, device=CUDA)
        want = out.clone()
        want[ids >= 0] = whole[ids[ids >= 0]]
        kernels.gather(table, ids, out)
        same_bits(out, want)
        rows = torch.randn(1000, width, device=CUDA)
        kernels.scatter(table, ids, rows)
        kernels.scatter(whole, ids, rows)
        same_bits(torch.cat(parts), whole)
        for deterministic in (False, True):
            ints = (rows * 4).round()
            before = torch.cat(parts).round()
            for part, start in zip(parts, (0, 7, 107, 108), strict=True):
                part.copy_(before[start : start + part.shape[0]])
            kernels.scatter_add(table, ids, ints, deterministic=deterministic)
            kept = ids >= 0
            same_bits(torch.cat(parts), before.index_add_(0, ids[kept], ints[kept]))


def tables_dealt_in_turns():
    for run in (1, 3):
        for ranks in (1, 2, 5):
            rows = 100
            whole = torch.randn(rows, 12, device=CUDA)
            turn = torch.arange(rows, device=CUDA) // run
            room = (rows // (run * ranks) + 1) * run
            parts = [torch.zeros(room, 12, device=CUDA) for _ in range(ranks)]
            for g in range(rows):
                t = int(turn[g])
                parts[t % ranks][t // ranks * run + g % run] = whole[g]
            for first in (0, 11):
                table = calls.table_of(whole, parts, run, first)
                table.rows = rows - first
                ids = random_ids(400, rows - first)
                out = torch.zeros(400, 12, device=CUDA)
                kernels.gather(table, ids, out)
                same_bits(out, whole[ids + first])


def side_streams_are_in_order():
    side = torch.cuda.Stream()
    table = torch.zeros(1000, 64, device=CUDA)
    ids = torch.zeros(5000, dtype=torch.int64, device=CUDA)
    out = torch.zeros(5000, 64, device=CUDA)
    fresh = torch.randn(1000, 64, device=CUDA)
    wanted = random_ids(5000, 1000)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        table.copy_(fresh)
        ids.copy_(wanted)
        kernels.gather(table, ids, out)
        kernels.scatter(table, ids, out * 2)
        got = out.clone()
        assert kernels.check().seen == 0
    same_bits(got, fresh[wanted])
    doubled = fresh.clone()
    doubled[wanted] *= 2
    same_bits(table, doubled)


def graphs_replay():
    table = torch.randn(1000, 64, device=CUDA)
    host = torch.randn(1000, 16).pin_memory()
    ids = random_ids(20_000, 1000)
    out = torch.zeros(20_000, 64, device=CUDA)
    from_host = torch.zeros(20_000, 16, device=CUDA)
    target = torch.zeros(1000, 64, device=CUDA)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels.gather(table, ids, out)
        kernels.gather(host, ids, from_host, sort=1)
        kernels.scatter(target, ids, out)
    # Scratch of the same calls outside must not be that of the graph.
    kernels.scatter(
        target.clone(), random_ids(500_000, 1000, seed=8), torch.randn(500_000, 64, device=CUDA)
    )
    for seed in (5, 6):
        ids.copy_(random_ids(20_000, 1000, seed=seed))
        target.zero_()
        graph.replay()
        torch.cuda.synchronize()
        same_bits(out, table[ids])
        same_bits(from_host, host.cuda()[ids])
        want = torch.zeros_like(target)
        want[ids] = table[ids]
        same_bits(target, want)


def states_for(kind, rows, width):
    full = torch.zeros(rows, width, device=CUDA)
    one = torch.zeros(rows, 1, device=CUDA)
    return {
        "sgd": [],
        "adagrad": [full],
        "rowwise_adagrad": [one],
        "rmsprop": [full],
        "adam": [full, full.clone()],
        "lazy_adam": [full, full.clone(), one.to(torch.int32)],
    }[kind]


def torch_optimizer(kind, weight, numbers_, decoupled):
    import torch.optim as o

    lr, wd = numbers_["lr"], numbers_["weight_decay"]
    if kind == "sgd":
        return o.SGD([weight], lr=lr, weight_decay=wd)
    if kind == "adagrad":
        return o.Adagrad([weight], lr=lr, weight_decay=wd, eps=1e-8)
    if kind == "rmsprop":
        return o.RMSprop([weight], lr=lr, weight_decay=wd, eps=1e-8)
    which = o.AdamW if decoupled else o.Adam
    return which([weight], lr=lr, weight_decay=wd, eps=1e-8)


def optimizers_are_those_of_torch():
    for kind in ("sgd", "adagrad", "rmsprop", "adam", "lazy_adam"):
        for width in (1, 7, 64):
            for wd in (0.0, 0.1):
                for decoupled in (0, 1) if "adam" in kind else (0,):
                    weight = torch.randn(50, width, device=CUDA)
                    dense = torch.nn.Parameter(weight.double())
                    settings = {"lr": 0.03, "weight_decay": wd}
                    peer = torch_optimizer(kind, dense, settings, decoupled)
                    state = states_for(kind, 50, width)
                    for step in range(1, 6):
                        grads = torch.randn(50, width, device=CUDA)
                        ids = distinct_ids(50, 50, IDS[step % 2], seed=step)
                        dense.grad = torch.zeros_like(dense)
                        dense.grad[ids.long()] = grads.double()
                        peer.step()
                        rule = calls.update_rule(kind, decoupled=decoupled, step=step, **settings)
                        kernels.update(weight, state, ids, grads, rule)
                    near(weight, dense.detach(), 2e-6)


def updates_touch_named_rows_only():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for kind in structs.OPTIMIZERS:
            for width in (6, 32):
                weight = torch.randn(60, width, device=CUDA).to(dtype)
                state = states_for(kind, 60, width)
                before = weight.clone()
                ids = distinct_ids(20, 60)
                ids[3] = -1
                grads = torch.randn(20, width, device=CUDA)
                kernels.update(weight, state, ids, grads, calls.update_rule(kind, lr=0.1))
                touched = torch.zeros(60, dtype=torch.bool, device=CUDA)
                touched[ids[ids >= 0]] = True
                same_bits(weight[~touched], before[~touched])
                assert not weight[touched].eq(before[touched]).all(dim=1).any()
                for s in state:
                    assert s[~touched].eq(0).all()
                if kind == "lazy_adam":
                    assert state[2][touched].eq(1).all()


def rowwise_adagrad():
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.bfloat16, 4e-2)):
        for width in (1, 5, 16, 20, 32, 64, 128, 132, 300):
            weight = torch.randn(400, width, device=CUDA).to(dtype)
            want = weight.double()
            total = torch.zeros(400, 1, dtype=torch.float64, device=CUDA)
            state = states_for("rowwise_adagrad", 400, width)
            for step in range(3):
                ids = distinct_ids(301, 400, IDS[step % 2], seed=step)
                rows = ids.long()
                grads = torch.randn(301, width, device=CUDA)
                g = grads.double() + 0.1 * want[rows]
                total[rows] += (g * g).mean(dim=1, keepdim=True)
                want[rows] -= 0.05 * g / (total[rows].sqrt() + 1e-8)
                rule = calls.update_rule("rowwise_adagrad", lr=0.05, weight_decay=0.1)
                kernels.update(weight, state, ids, grads, rule)
            near(weight, want, tolerance)
            near(state[0], total, 1e-5 if dtype == torch.float32 else 2e-2)


def lazy_adam_counts_its_own_steps():
    weight = torch.randn(10, 8, device=CUDA)
    alone = weight[3:4].clone()
    state, state_alone = states_for("lazy_adam", 10, 8), states_for("adam", 1, 8)
    for step in range(1, 8):
        grads = torch.randn(10, 8, device=CUDA)
        ids = torch.arange(10, device=CUDA) if step % 3 == 0 else torch.arange(3, device=CUDA)
        kernels.update(weight, state, ids, grads[: len(ids)], calls.update_rule("lazy_adam"))
        if step % 3 == 0:
            rule = calls.update_rule("adam", step=step // 3)
            kernels.update(
                alone, state_alone, torch.zeros(1, dtype=torch.int64, device=CUDA), grads[3:4], rule
            )
    near(weight[3:4], alone, 1e-6)
    assert state[2].view(-1).tolist() == [7, 7, 7, 2, 2, 2, 2, 2, 2, 2]
    # Rows that share a block, a row that has one of its own.
    for n, width in ((4999, 1), (4999, 4), (5000, 5), (5000, 32), (300, 128), (7, 9000)):
        weight = torch.randn(n, width, device=CUDA)
        usual = weight.clone()
        state, state_usual = states_for("lazy_adam", n, width), states_for("adam", n, width)
        ids = distinct_ids(n, n)
        for step in range(1, 4):
            grads = torch.randn(n, width, device=CUDA)
            kernels.update(weight, state, ids, grads, calls.update_rule("lazy_adam"))
            kernels.update(usual, state_usual, ids, grads, calls.update_rule("adam", step=step))
        near(weight, usual, 1e-6)
        assert state[2].eq(3).all()


def unique_sums():
    for grad_type in (torch.float32, torch.float16, torch.bfloat16):
        for id_type in IDS:
            for n, top, width, bound in (
                (1, 5, 4, 0), (1000, 50, 7, 50), (5000, 2, 33, 0), (3000, 3000, 64, 3000),
                (100_000, 20, 16, 1 << 33),
            ):  # fmt: skip
                ids = random_ids(n, top, id_type, low=-1)
                grads = torch.randn(n, width, device=CUDA).to(grad_type)
                out_ids = torch.full((n,), 77, dtype=id_type, device=CUDA)
                sums = torch.full((n, width), 7.0, device=CUDA)
                count = torch.zeros(1, dtype=torch.int64, device=CUDA)
                kernels.unique(ids, grads, out_ids, sums, count, rows=bound)
                kept = ids >= 0
                want, inverse = torch.unique(ids[kept], return_inverse=True)
                k = want.numel()
                assert count.item() == k, f"{count.item()} ids, not {k}"
                same_bits(out_ids[:k], want)
                assert out_ids[k:].eq(-1).all()
                exact = torch.zeros(k, width, dtype=torch.float64, device=CUDA)
                exact.index_add_(0, inverse, grads[kept].double())
                near(sums[:k], exact, 1e-5 * max(1, n / top / 100))
                again = torch.zeros_like(sums)
                kernels.unique(ids, grads, out_ids, again, count, rows=bound)
                same_bits(again[:k], sums[:k])


def nothing_to_do():
    table = torch.randn(5, 4, device=CUDA)
    none = torch.zeros(0, dtype=torch.int64, device=CUDA)
    for call in (kernels.gather, kernels.scatter, kernels.scatter_add):
        call(table, none, torch.zeros(0, 4, device=CUDA))
        call(table[:, :0], random_ids(3, 5), torch.zeros(3, 0, device=CUDA))
    count = torch.ones(1, dtype=torch.int64, device=CUDA)
    kernels.unique(
        none, torch.zeros(0, 4, device=CUDA), none, torch.zeros(0, 4, device=CUDA), count
    )
    assert count.item() == 0
    empty = torch.zeros(0, 4, device=CUDA)
    out = torch.full((3, 4), 7.0, device=CUDA)
    kernels.gather(empty, random_ids(3, 5), out, bounds="skip")
    assert out.eq(7).all()


USED_NOW = 7  # CU_MEMPOOL_ATTR_USED_MEM_CURRENT


def pool_bytes_used():
    """Of the pool that scratch comes from. What the device has free says less: a pool gives whole
    blocks back, and other streams have scratch in them."""
    driver = ctypes.CDLL("libcuda.so.1")
    pool, used = ctypes.c_void_p(), ctypes.c_uint64()
    device = torch.cuda.current_device()
    assert driver.cuDeviceGetMemPool(ctypes.byref(pool), ctypes.c_int(device)) == 0
    assert driver.cuMemPoolGetAttribute(pool, USED_NOW, ctypes.byref(used)) == 0
    return used.value


def scratch_is_given_back():
    table = torch.randn(1000, 16, device=CUDA)
    ids = random_ids(1_000_000, 1000)
    kernels.scatter(table, ids, torch.randn(1_000_000, 16, device=CUDA))
    torch.cuda.synchronize()
    held = pool_bytes_used()
    kernels.trim()
    left = pool_bytes_used()
    assert left <= held - 8 * ids.numel(), f"{held} bytes were used, now {left}"


def through_libweft():
    """The public calls find the kernels beside the library, and say what is wrong."""
    weft = ctypes.CDLL(str(build / "libweft.so"))
    weft.weft_error_detail.restype = ctypes.c_char_p
    stream = torch.cuda.current_stream().cuda_stream
    options = structs.WeftOptions(size=ctypes.sizeof(structs.WeftOptions), stream=stream)
    table = torch.randn(100, 16, device=CUDA)
    ids = random_ids(500, 60)
    out = torch.zeros(500, 16, device=CUDA)

    def gather(source, which, **more):
        return weft.weft_rows_gather(
            ctypes.byref(calls.weft_table_of(source, **more)), ctypes.byref(calls.ids_of(which)),
            ctypes.byref(calls.rows_of(out)), ctypes.byref(options),
        )  # fmt: skip

    assert gather(table, ids, first=30, limit=60) == 0, weft.weft_error_detail()
    same_bits(out, table[ids + 30])
    pinned = table.cpu().pin_memory()
    assert gather(pinned, ids) == 0, weft.weft_error_detail()
    same_bits(out, table[ids])
    assert gather(table, ids + 50) == 0
    assert weft.weft_rows_check(ctypes.c_void_p(stream)) == -1
    assert b"out of range" in weft.weft_error_detail(), weft.weft_error_detail()
    assert weft.weft_rows_check(ctypes.c_void_p(stream)) == 0
    assert gather(torch.randn(100, 16), ids) == -1
    assert b"GPUs cannot access" in weft.weft_error_detail(), weft.weft_error_detail()


CHECKS = (
    gather_is_index_select,
    gather_of_many_rows,
    gather_beyond_four_gib,
    gather_of_a_few_long_rows,
    gather_of_columns_into_strides,
    gather_of_rows_at_any_byte,
    negative_ids_leave_the_row,
    ids_past_the_end,
    conversions,
    scatter_of_distinct_ids,
    scatter_of_equal_ids_keeps_the_last,
    scatter_of_many_into_more_rows,
    scatter_add_of_exact_numbers,
    scatter_add_in_order,
    scatter_add_of_many_to_one_row,
    host_tables,
    host_tables_add,
    tables_in_parts,
    tables_dealt_in_turns,
    side_streams_are_in_order,
    graphs_replay,
    optimizers_are_those_of_torch,
    updates_touch_named_rows_only,
    rowwise_adagrad,
    lazy_adam_counts_its_own_steps,
    unique_sums,
    nothing_to_do,
    scratch_is_given_back,
    through_libweft,
)


def main():
    global kernels, build
    if not torch.cuda.is_available():
        print("no GPU here")
        return 77
    build = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    kernels = calls.Kernels(build / "libweft_cuda.so")
    failed = []
    for check in CHECKS:
        began = time.monotonic()
        torch.manual_seed(3)
        try:
            check()
            torch.cuda.synchronize()
            result = "ok"
        except Exception as error:
            failed.append(check.__name__)
            where = traceback.extract_tb(error.__traceback__)
            lines = ", ".join(f"{f.name}:{f.lineno}" for f in where[1:4])
            result = f"FAILED {type(error).__name__}: {str(error)[:300]} ({lines})"
        print(f"{time.monotonic() - began:6.2f} s  {check.__name__}: {result}", flush=True)
        if "illegal memory access" in result or "misaligned" in result:
            print("the GPU's context is lost; the checks that follow cannot run")
            break
    print(f"{len(CHECKS) - len(failed)} of {len(CHECKS)} checks passed; failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
