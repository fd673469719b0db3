# SPDX-License-Identifier: Apache-2.0
"""weft.optim: one step on the rows that were touched, as torch would take it."""

import contextlib
import gc
import json
import os
import pathlib

import pytest
import ranks

torch = pytest.importorskip("torch")

import weft  # noqa: E402
import weft.optim  # noqa: E402

ROWS, WIDTH, STEPS = 23, 5, 5
EQUAL = 1e-6

# The name of the class, here and there, and its options.
CASES = {
    "SGD": ("SGD", {"lr": 0.1, "weight_decay": 0.01}),
    "Adagrad": ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    "Adagrad, decay": ("Adagrad", {"lr": 0.05, "weight_decay": 0.02}),
    "RMSprop": ("RMSprop", {"lr": 0.01, "alpha": 0.9, "weight_decay": 0.01}),
    "Adam": ("Adam", {"lr": 0.01, "weight_decay": 0.01}),
    "AdamW": ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
}


def batch(rank, step, few=False):
    """Ids with duplicates, of unequal number on each rank; rank 1 has none in step 2."""
    random = torch.Generator().manual_seed(1000 * step + rank)
    n = 0 if (rank, step) == (1, 2) else 7 + 3 * rank
    ids = torch.randint(6 if few else ROWS, (n,), generator=random)
    return ids, torch.randn((n, WIDTH), generator=random)


def dense_gradient(size, step, few=False):
    total = torch.zeros((ROWS, WIDTH), dtype=torch.float64)
    for rank in range(size):
        ids, grads = batch(rank, step, few)
        total.index_add_(0, ids, grads.double())
    return total.float()


def touched(size, step):
    return torch.cat([batch(rank, step)[0] for rank in range(size)]).unique()


def start():
    return torch.randn((ROWS, WIDTH), generator=torch.Generator().manual_seed(5))


def embedding(partition="equal", **more):
    emb = weft.nn.Embedding(ROWS, WIDTH, partition=partition, **more)
    emb.load_state_dict({"weight": start()})
    return emb


def train(emb, optimizer, steps=range(STEPS), few=False):
    """Each rank backpropagates its batch in two pieces."""
    rank = weft.rank()
    for step in steps:
        optimizer.zero_grad()
        ids, grads = batch(rank, step, few)
        for half in (slice(0, 4), slice(4, None)):
            (emb(ids[half]) * grads[half]).sum().backward()
        optimizer.step()


def partition_of(name):
    size = weft.init().size
    if name == "given":  # rank 0 owns nothing, if it is not alone
        return [0, ROWS, *[0] * (size - 2)] if size > 1 else [ROWS]
    return tuple(name) if isinstance(name, list) else name


def by_torch_rows(kind, options, size):
    """What torch's optimizer does to each row by itself, as often as the row is touched."""
    weights = [torch.nn.Parameter(row.clone()) for row in start()]
    optimizers = [getattr(torch.optim, kind)([w], **options) for w in weights]
    for step in range(STEPS):
        total = dense_gradient(size, step)
        for row in touched(size, step).tolist():
            weights[row].grad = total[row].clone()
            optimizers[row].step()
    return torch.stack([w.detach() for w in weights])


def equals_torch_where_all_steps_touch_the_same_rows(case, partition, **more):
    kind, options = CASES[case]
    weft.init()
    emb = embedding(partition_of(partition), **more)
    optimizer = getattr(weft.optim, kind)(emb, **options)
    size = weft.size()
    rows = torch.arange(ROWS)
    reference = torch.nn.Parameter(start())
    by_torch = getattr(torch.optim, kind)([reference], **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        by_torch.zero_grad()
        ids, grads = batch(weft.rank(), step)
        (emb(ids) * grads).sum().backward()
        if weft.rank() == size - 1:  # so that every row is touched in every step
            (emb(rows) * 0.01).sum().backward()
        optimizer.step()
        reference.grad = dense_gradient(size, step) + 0.01
        by_torch.step()
    got = weft.gather(emb.rows, rows)
    assert (got - reference).abs().max() < EQUAL, (case, partition)
    emb.comm.barrier()


def touches_only_rows_that_were_named():
    weft.init()
    size = weft.size()
    for kind, options, reference in (
        ("SGD", {"lr": 0.1, "weight_decay": 0.1}, "SGD"),
        ("Adagrad", {"lr": 0.1}, "Adagrad"),
        ("RMSprop", {"lr": 0.01}, "RMSprop"),
        ("LazyAdam", {"lr": 0.01, "weight_decay": 0.1}, "Adam"),
        ("LazyAdam", {"lr": 0.01, "weight_decay": 0.1, "adam_w": True}, "AdamW"),
    ):
        emb = embedding()
        optimizer = getattr(weft.optim, kind)([emb], **options)
        train(emb, optimizer)
        options.pop("adam_w", None)
        expected = by_torch_rows(reference, options, size)
        assert (emb.weight - expected).abs().max() < EQUAL, kind
        emb.comm.barrier()
    sparse_adam(size)
    row_wise(size)


def sparse_adam(size):
    """Adam counts steps for all rows, as torch.optim.SparseAdam."""
    emb = embedding()
    train(emb, weft.optim.Adam(emb, lr=0.01))
    reference = torch.nn.Parameter(start())
    by_torch = torch.optim.SparseAdam([reference], lr=0.01)
    for step in range(STEPS):
        rows = touched(size, step)
        grads = dense_gradient(size, step)[rows]
        reference.grad = torch.sparse_coo_tensor(rows[None], grads, reference.shape)
        by_torch.step()
    assert (emb.weight - reference).abs().max() < EQUAL
    emb.comm.barrier()


def row_wise(size):
    emb = embedding()
    train(emb, weft.optim.RowWiseAdagrad(emb, lr=0.1, eps=1e-8))
    w, s = start(), torch.zeros((ROWS, 1))
    for step in range(STEPS):
        g = dense_gradient(size, step)
        s += (g * g).mean(1, keepdim=True)
        moved = w - 0.1 * g / (s.sqrt() + 1e-8)
        rows = touched(size, step)
        w[rows] = moved[rows]
    assert (emb.weight - w).abs().max() < EQUAL
    emb.comm.barrier()


def gives_the_same_bits():
    """Whatever the order in which ranks arrive."""
    seen = []
    weft.init()
    for _ in range(2):
        emb = embedding(dtype=torch.bfloat16)
        train(emb, weft.optim.Adam(emb, lr=0.1), few=True)
        seen.append(emb.weight.clone())
        assert emb.weight.dtype is torch.bfloat16
        emb.comm.barrier()
    assert torch.equal(*seen)


def goes_on_from_what_was_kept(folder):
    weft.init()
    emb = embedding()
    optimizer = weft.optim.LazyAdam(emb, lr=0.02)
    train(emb, optimizer, range(2))
    emb.save(f"{folder}/table.weft")
    optimizer.save(f"{folder}/state")
    if weft.rank() == 0:
        torch.save([emb.state_dict(), optimizer.state_dict()], f"{folder}/both.pt")
    emb.comm.barrier()
    optimizer.param_groups[0]["lr"] = 0.02
    train(emb, optimizer, range(2, 4))
    if weft.rank() == 0:
        torch.save(emb.weight.clone(), f"{folder}/end.pt")
    for way in ("files", "state_dict"):
        again = embedding(partition="round_robin")
        other = weft.optim.LazyAdam(again, lr=0.5)
        if way == "files":
            again.load(f"{folder}/table.weft")
            other.load(f"{folder}/state")
        else:
            table, state = torch.load(f"{folder}/both.pt")
            again.load_state_dict(table)
            other.load_state_dict(state)
        assert other.param_groups[0]["lr"] == 0.02
        train(again, other, range(2, 4))
        emb.comm.barrier()
        assert torch.equal(again.state_dict()["weight"], emb.weight), way


def is_read_by_another_number_of_ranks(folder):
    weft.init()
    emb = embedding()
    optimizer = weft.optim.LazyAdam(emb, lr=0.5)
    emb.load(f"{folder}/table.weft")
    optimizer.load(f"{folder}/state")
    # Alone, with the batches of the two ranks that wrote it.
    for step in (2, 3):
        optimizer.zero_grad()
        for rank in range(2):
            ids, grads = batch(rank, step)
            (emb(ids) * grads).sum().backward()
        optimizer.step()
    end = torch.load(f"{folder}/end.pt")
    assert (emb.weight - end).abs().max() < EQUAL


def test_what_was_kept_goes_on_as_if_nothing_had_been(tmp_path, alone):
    ranks.run(2, goes_on_from_what_was_kept, str(tmp_path))
    about = json.loads((tmp_path / "state" / "optimizer.json").read_text())
    assert about["optimizer"] == "LazyAdam" and about["steps"] == [2]
    is_read_by_another_number_of_ranks(str(tmp_path))


def grows_with_its_table():
    weft.init()
    emb = weft.nn.Embedding(4, 3, max_rows=20, init=torch.nn.init.zeros_)
    optimizer = weft.optim.Adagrad(emb, lr=1.0)
    emb.rows.resize(9)
    emb.comm.barrier()
    optimizer.zero_grad()
    emb(torch.tensor([0, 8])).sum().backward()
    optimizer.step()
    assert (emb.weight[[0, 8]] == -1).all() and not emb.weight[1:8].any()
    emb.comm.barrier()


def all_of_it():
    """In one job, for ranks take their time to start."""
    for case in CASES:
        equals_torch_where_all_steps_touch_the_same_rows(case, "equal")
    for partition in ("given", "round_robin", ["round_robin", 4]):
        equals_torch_where_all_steps_touch_the_same_rows("Adagrad", partition)
    equals_torch_where_all_steps_touch_the_same_rows("Adam", "given", reach="distributed")
    touches_only_rows_that_were_named()
    gives_the_same_bits()
    grows_with_its_table()


@pytest.mark.parametrize("size", [2, 3, 5, 8] if os.environ.get("WT_FULL") else [2, 3])
def test_steps_equal_those_of_torch(size):
    ranks.run(size, all_of_it)


def test_steps_equal_those_of_torch_on_one_rank(alone):
    all_of_it()


def test_a_scheduler_of_torch_drives_it(alone):
    emb = embedding()
    optimizer = weft.optim.SGD(emb, lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    before = emb.weight.clone()
    for _ in range(2):
        optimizer.zero_grad()
        emb(torch.tensor([3])).sum().backward()
        optimizer.step()
        schedule.step()
    assert torch.allclose(before[3] - emb.weight[3], torch.tensor(1.5))
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_tables_of_a_model_are_found_and_dense_parameters_are_not(alone):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.users = weft.nn.Embedding(10, 4)
            self.items = weft.nn.EmbeddingBag(20, 4, mode="sum")
            self.frozen = weft.nn.Embedding.from_pretrained(weft.zeros((3, 4)))
            self.out = torch.nn.Linear(4, 1)

    model = Model()
    assert [p.shape for p in model.parameters()] == [(1, 4), (1,)]
    optimizer = weft.optim.SGD(model, lr=0.1)
    assert len(optimizer.param_groups[0]["params"]) == 2
    groups = weft.optim.SGD([{"params": [model.users], "lr": 1.0}, {"params": model.items}])
    assert [group["lr"] for group in groups.param_groups] == [1.0, 1e-3]


def test_what_it_cannot_train_is_told(alone):
    linear = torch.nn.Linear(2, 2)
    with pytest.raises(TypeError, match=r"dense parameters go to .* torch.optim"):
        weft.optim.SGD(linear.parameters())
    with pytest.raises(weft.InvalidError, match="no table"):
        weft.optim.SGD(linear)
    emb = embedding()
    with pytest.raises(weft.InvalidError, match="twice"):
        weft.optim.SGD([emb, emb])
    with pytest.raises(weft.InvalidError, match="float64"):
        weft.optim.SGD(weft.nn.Embedding(3, 2, dtype=torch.float64))
    for bad in ({"lr": -1}, {"betas": (0.9, 1.0)}, {"eps": float("nan")}):
        with pytest.raises(weft.InvalidError):
            weft.optim.Adam(emb, **bad)
    other = weft.optim.Adagrad(emb)
    with pytest.raises(weft.InvalidError, match="another optimizer"):
        other.load_state_dict(weft.optim.Adam(emb).state_dict())
    with pytest.raises(TypeError, match="not str"):
        weft.optim.SGD(["emb"])


def test_a_closure_is_called_and_its_loss_returned(alone):
    emb = embedding()
    optimizer = weft.optim.SGD(emb, lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = emb(torch.tensor([1, 1])).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == emb.weight[1].sum() * 2 + 0.2 * 2 * WIDTH


def one_rank_does_not_come():
    weft.init(timeout=60)
    emb = embedding()
    optimizer = weft.optim.SGD(emb)
    if weft.rank() == 1:
        with contextlib.suppress(weft.Error):
            emb.comm.barrier()
        return
    with pytest.raises(weft.Error):
        optimizer.step()


def test_a_step_that_one_rank_does_not_take_is_an_error():
    ranks.run(2, one_rank_does_not_come)


def one_rank_finds_no_file(folder):
    weft.init(timeout=60)
    emb = embedding()
    adam = weft.optim.Adam(emb, lr=torch.tensor(0.5))
    adam.save(folder)
    emb.comm.barrier()
    here = pathlib.Path(folder) / "nothing" if weft.rank() == 1 else folder
    with pytest.raises(weft.InvalidError, match=r"no optimizer\.json"):
        adam.load(here)
    (pathlib.Path(folder) / "file").touch()
    for place in ("file", "file/below"):
        with pytest.raises(weft.Error if weft.rank() != 1 else OSError):
            adam.save(pathlib.Path(folder) / (place if weft.rank() == 1 else "fine"))
    if weft.rank() == 0:
        (pathlib.Path(folder) / "optimizer.json").write_text("{")
    emb.comm.barrier()
    with pytest.raises(weft.InvalidError, match="damaged"):
        adam.load(folder)
    state = adam.state_dict()
    if weft.rank() == 1:
        del state["state"][0]["exp_avg"]
    with pytest.raises(weft.InvalidError, match="no 'exp_avg'"):
        adam.load_state_dict(state)
    emb.comm.barrier()  # nobody waits for anybody


def test_what_one_rank_cannot_save_or_load_is_told_to_all(tmp_path):
    ranks.run(3, one_rank_finds_no_file, str(tmp_path))


def regions_mapped():
    gc.collect()
    return pathlib.Path("/proc/self/maps").read_text().count("a weft region")


def test_tables_and_state_go_with_the_last_who_has_them(alone):
    before = regions_mapped()
    emb = embedding()
    optimizer = weft.optim.Adam(emb)
    for _ in range(3):
        optimizer.zero_grad()
        loss = emb(torch.tensor([1, 2])).sum()
        loss.backward()
        optimizer.step()
    assert regions_mapped() > before
    state = optimizer.state_dict()
    del emb, optimizer, loss
    assert float(state["state"][0]["exp_avg"].abs().sum()) > 0
    del state
    assert regions_mapped() == before
