# SPDX-License-Identifier: Apache-2.0
"""weft.optim beside torch: tiny gradients, GradScaler, clipping, means over ranks."""

import math

import pytest
import ranks

torch = pytest.importorskip("torch")

import weft  # noqa: E402
import weft.optim  # noqa: E402

ROWS, WIDTH = 9, 4


def start():
    return torch.randn((ROWS, WIDTH), generator=torch.Generator().manual_seed(5))


def embedding(**more):
    emb = weft.nn.Embedding(ROWS, WIDTH, **more)
    emb.load_state_dict({"weight": start()})
    return emb


# Tiny gradients: eps is as large as what it is added to.

COUNTERPARTS = [
    ("Adam", "SparseAdam", {"lr": 0.01}),
    ("Adam", "SparseAdam", {"lr": 0.01, "betas": (0.5, 0.9), "eps": 1e-4}),
    ("Adam", "Adam", {"lr": 0.01, "weight_decay": 1e-6}),
    ("AdamW", "AdamW", {"lr": 0.01, "weight_decay": 0.0}),
    ("LazyAdam", "Adam", {"lr": 0.01}),
    ("SGD", "SGD", {"lr": 10.0}),
    ("Adagrad", "Adagrad", {"lr": 0.01}),
    ("Adagrad", "Adagrad", {"lr": 0.01, "lr_decay": 0.1, "eps": 1e-6}),
    ("RMSprop", "RMSprop", {"lr": 0.01}),
]


def by_torch(kind, options, gradients):
    """The weights after torch's optimizer has seen all these, each of all rows."""
    weights = torch.nn.Parameter(start())
    optimizer = getattr(torch.optim, kind)([weights], **options)
    rows = torch.arange(ROWS)[None]
    for gradient in gradients:
        weights.grad = gradient
        if kind == "SparseAdam":
            weights.grad = torch.sparse_coo_tensor(
                rows, gradient, weights.shape, check_invariants=True
            )
        optimizer.step()
    return weights.detach()


def by_weft(kind, options, gradients):
    emb = embedding()
    optimizer = getattr(weft.optim, kind)(emb, **options)
    for gradient in gradients:
        optimizer.zero_grad()
        (emb(torch.arange(ROWS)) * gradient).sum().backward()
        optimizer.step()
    return emb.weight.clone()


@pytest.mark.parametrize("size", [1e-2, 1e-4, 1e-7, 1e-10, 1e-15])
def test_many_steps_with_tiny_gradients_are_those_of_torch(alone, size):
    random = torch.Generator().manual_seed(3)
    gradients = [size * torch.randn((ROWS, WIDTH), generator=random) for _ in range(40)]
    for ours, theirs, options in COUNTERPARTS:
        got = by_weft(ours, options, gradients)
        expected = by_torch(theirs, options, gradients)
        moved = (expected - start()).abs().max().item()
        error = (got - expected).abs().max().item()
        # Weights are rounded in each step.
        assert error < 1e-4 * moved + 40 * 2**-24, (ours, theirs, options, moved, error)


@pytest.mark.parametrize("size", [1.0, 1e-4, 1e-10])
def test_row_wise_adagrad_keeps_the_mean_of_squares_of_tiny_gradients(alone, size):
    random = torch.Generator().manual_seed(4)
    gradients = [size * torch.randn((ROWS, WIDTH), generator=random) for _ in range(40)]
    weights, state = start().double(), torch.zeros(ROWS, 1, dtype=torch.float64)
    for gradient in gradients:
        state += gradient.double().square().mean(1, keepdim=True)
        weights -= 0.01 * gradient.double() / (state.sqrt() + 1e-10)
    got = by_weft("RowWiseAdagrad", {"lr": 0.01}, gradients)
    assert (got - weights).abs().max() < 1e-5


# GradScaler.


def model_and_parts():
    emb = embedding()
    head = torch.nn.Linear(WIDTH, 1)
    torch.nn.init.constant_(head.weight, 0.5)
    torch.nn.init.zeros_(head.bias)
    return emb, head


def scaled_steps_are_plain_ones():
    """With float16 gradients, ranks without ids, and a scale that is far from 1."""
    rank = weft.init().rank
    results = []
    for scale in (None, 2.0**14):
        emb, head = model_and_parts()
        sparse = weft.optim.Adam(emb, lr=0.1)
        dense = torch.optim.SGD(head.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
        for step in range(4):
            sparse.zero_grad()
            dense.zero_grad()
            ids = torch.tensor([step, 3, 3] if rank != 1 or step else [], dtype=torch.int64)
            loss = head(emb(ids)).sum() * 1e-3
            scaler.scale(loss).backward()
            if step % 2:
                scaler.unscale_(sparse)
            scaler.step(sparse)
            scaler.step(dense)
            scaler.update()
        assert scale is None or scaler.get_scale() == scale
        results.append((weft.gather(emb.rows, torch.arange(ROWS)), head.weight.detach().clone()))
        emb.comm.barrier()
    for plain, scaled in zip(*results, strict=True):
        torch.testing.assert_close(plain, scaled)
    assert not torch.equal(results[0][0], start())


def test_steps_of_a_grad_scaler_are_those_without_one(alone):
    scaled_steps_are_plain_ones()


def infinity_of_one_rank(bad):
    """All ranks leave the step out and lower the scale; the next step is taken by all."""
    rank, size = weft.init().rank, weft.size()
    emb, other = embedding(), embedding()
    sparse = weft.optim.SGD([emb, other], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for factor, scale in ((math.inf, 512.0), (math.nan, 256.0), (1.0, 256.0)):
        before = weft.gather(emb.rows, torch.arange(ROWS))
        emb.comm.barrier()
        sparse.zero_grad()
        mine = factor if rank == bad else 1.0
        loss = (emb(torch.tensor([2])) * mine).sum() + other(torch.tensor([rank])).sum()
        scaler.scale(loss).backward()
        scaler.step(sparse)
        scaler.update()
        after = weft.gather(emb.rows, torch.arange(ROWS))
        assert scaler.get_scale() == scale
        if factor != 1.0:
            assert torch.equal(before, after) and sparse.state_dict()["state"][0]["step"] == 0
        else:
            assert torch.allclose(after[2], before[2] - size)
        emb.comm.barrier()


def test_an_infinity_leaves_out_the_step(alone):
    infinity_of_one_rank(0)


def test_gradients_of_float16_tables_are_unscaled_in_float32(alone):
    emb = embedding(dtype=torch.float16)
    before = emb.weight.float()
    sparse = weft.optim.SGD(emb, lr=2.0**20)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    # Too small for a float16, and not when it is scaled.
    scaler.scale(emb(torch.tensor([1])).float().sum() * 2.0**-30).backward()
    scaler.step(sparse)
    assert torch.allclose(emb.weight[1].float(), before[1] - 2.0**-10, atol=2e-3)
    assert not torch.equal(emb.weight[1].float(), before[1])


def test_unscaling_leaves_the_callers_gradients_alone(alone):
    emb = embedding()
    rows = emb(torch.tensor([4, 4]))
    rows.retain_grad()
    sparse = weft.optim.SGD(emb, lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(rows.sum()).backward()
    scaler.unscale_(sparse)
    assert (rows.grad == 8).all()
    assert emb.grad.to_dense()[4].tolist() == [2.0] * WIDTH


# Clipping.


def norms_count_tables(norm, average):
    """Against torch, on the gradients that a step uses."""
    rank, size = weft.init().rank, weft.size()
    emb, head = model_and_parts()
    model = torch.nn.ModuleDict({"emb": emb, "head": head})
    sparse = weft.optim.SGD(model, lr=1.0, average=average)
    dense = torch.nn.Parameter(start())
    total = torch.zeros(ROWS, WIDTH)
    for who in range(size):
        ids = torch.tensor([who, 3, 3])
        if who == rank:
            (emb(ids) * (who + 1)).sum().backward()
        total.index_add_(0, ids, torch.full((3, WIDTH), who + 1.0))
    dense.grad = total / size if average else total
    head.weight.grad = torch.full_like(head.weight, 2.0)
    copy = torch.nn.Parameter(head.weight.detach().clone())
    copy.grad = head.weight.grad.clone()
    expected = torch.nn.utils.clip_grad_norm_([dense, copy], 1.5, norm)
    got = weft.nn.clip_grad_norm_(model, 1.5, norm)
    assert torch.allclose(got.float(), expected)
    assert torch.allclose(head.weight.grad, copy.grad)
    sparse.step()
    rows = weft.gather(emb.rows, torch.arange(ROWS))
    assert torch.allclose(rows, start() - dense.grad, atol=1e-5)
    emb.comm.barrier()


def all_norms():
    for norm in (2.0, 1.0, 3.0, math.inf):
        for average in (False, True):
            norms_count_tables(norm, average)


def test_clipping_counts_tables_as_torch_counts_parameters(alone):
    all_norms()


def test_clipping_leaves_small_gradients_alone_and_tells_of_infinities(alone):
    emb = embedding()
    assert float(weft.nn.clip_grad_norm_(emb, 1.0)) == 0
    emb(torch.tensor([1])).sum().backward()
    assert float(weft.nn.clip_grad_norm_([emb, emb], 100.0)) == pytest.approx(2.0)
    assert emb.grad.to_dense()[1].tolist() == [1.0] * WIDTH
    (emb(torch.tensor([2])) * math.inf).sum().backward()
    with pytest.raises(RuntimeError, match="non-finite"):
        weft.nn.clip_grad_norm_(emb, 1.0, error_if_nonfinite=True)
    with pytest.raises(TypeError, match="not str"):
        weft.nn.clip_grad_norm_(["emb"], 1.0)


# Means.


def averages():
    rank, size = weft.init().rank, weft.size()
    for more in ({"average": True}, {"average": False}, {}):
        for group in (False, True):
            emb = embedding()
            given = [{"params": [emb], **more}] if group else emb
            sparse = weft.optim.SGD(given, lr=1.0, **({} if group else more))
            assert emb.average is more.get("average", False)
            emb(torch.tensor([1, 1, rank + 2])).sum().backward()
            sparse.step()
            parts = size if more.get("average") else 1
            expected = start()
            expected[1] -= 2 * size / parts
            expected[2 : 2 + size] -= 1 / parts
            got = weft.gather(emb.rows, torch.arange(ROWS))
            assert torch.allclose(got, expected)
            emb.comm.barrier()


def test_a_mean_over_one_rank_is_the_gradient(alone):
    averages()


def all_of_it():
    scaled_steps_are_plain_ones()
    infinity_of_one_rank(2)
    all_norms()
    averages()


def test_scaled_steps_infinities_norms_and_means_are_those_of_all_ranks():
    ranks.run(3, all_of_it)
