# SPDX-License-Identifier: Apache-2.0
"""weft.nn.StoreEmbedding and IntentLoader: a store in a model."""

import itertools
import threading

import pytest
import ranks

torch = pytest.importorskip("torch")

import weft  # noqa: E402


def pair(rows=11, width=4, **more):
    """Ours and torch's, with the same weights."""
    ours = weft.nn.StoreEmbedding(rows, width, **more)
    theirs = torch.nn.Embedding(rows, width, padding_idx=more.get("padding_idx"))
    theirs.weight.data.copy_(ours.worker.pull(torch.arange(rows)))
    return ours, theirs


def test_rows_of_any_shape_of_ids_are_those_of_torch(alone):
    ours, theirs = pair(lr=0.1)
    for shape in ((), (0,), (3,), (2, 5), (2, 0, 3)):
        for kind in (torch.int32, torch.int64, torch.uint8):
            ids = torch.randint(11, shape, dtype=kind)
            assert torch.equal(ours(ids), theirs(ids.long()))
    assert (ours.num_embeddings, ours.embedding_dim) == (11, 4)
    assert "11, 4, lr=0.1" in repr(ours)
    assert list(ours.parameters()) == [] and list(ours.state_dict()) == []
    for bad in (11, -1):
        with pytest.raises(weft.InvalidError, match=f"key {bad}"):
            ours(torch.tensor([bad]))


def test_rows_begin_as_init_says_and_padding_as_zeros(alone):
    torch.manual_seed(5)
    emb = weft.nn.StoreEmbedding(1000, 8, padding_idx=-1, lr=0.1)
    rows = emb(torch.arange(1000)).detach()
    assert not rows[999].any() and rows[:999].unique(dim=0).shape[0] == 999
    assert abs(float(rows.std()) - 1) < 0.1
    torch.manual_seed(5)
    other = weft.nn.StoreEmbedding(1000, 8, lr=0.1)
    assert torch.equal(other(torch.arange(999)), rows[:999])
    ones = weft.nn.StoreEmbedding(7, 2, lr=0.1, init=torch.nn.init.ones_)
    assert (ones(torch.arange(7)) == 1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_plain_step_is_that_of_sgd(alone, dtype):
    ours, theirs = pair(padding_idx=2, lr=0.5, dtype=dtype)
    theirs = theirs.to(dtype)
    sgd = torch.optim.SGD(theirs.parameters(), lr=0.5)
    ids = torch.tensor([[1, 9, 1], [3, 2, 10]])
    for _ in range(3):
        factor = torch.randn(2, 3, 4, dtype=dtype)
        sgd.zero_grad()
        for module in (ours, theirs):
            (module(ids) * factor).sum().backward()
        sgd.step()
    loose = {"rtol": 0.03, "atol": 0.03} if dtype == torch.bfloat16 else {}
    assert torch.allclose(ours(torch.arange(11)), theirs.weight, **loose)
    assert ours.worker.stats()["pushes"] == 3 * 4 + 11  # each row once, and the first rows


@pytest.mark.parametrize("kind", ["adagrad", "adam"])
def test_the_stores_optimizer_takes_the_step(alone, kind):
    ours, theirs = pair(optimizer={"kind": kind, "lr": 0.1})
    dense = {"adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam}[kind]
    trained = dense(theirs.parameters(), lr=0.1)
    ids = torch.arange(11).repeat(2)
    for _ in range(3):
        factor = torch.randn(22, 4)
        trained.zero_grad()
        for module in (ours, theirs):
            (module(ids) * factor).sum().backward()
        trained.step()
    assert torch.allclose(ours(ids), theirs(ids), atol=1e-5)


def test_nothing_is_pushed_where_nothing_is_trained(alone):
    store = weft.Store(5, 2, init=1)
    frozen = weft.nn.StoreEmbedding.from_store(store, freeze=True)
    assert not frozen(torch.tensor([1])).requires_grad
    emb = weft.nn.StoreEmbedding.from_store(store, lr=1.0, padding_idx=-2)
    with torch.no_grad():
        assert not emb(torch.tensor([1])).requires_grad
    emb(torch.tensor([3, 3])).sum().backward()
    emb(torch.zeros((2, 0), dtype=torch.int64)).sum().backward()
    assert (store.pull(range(5)) == 1).all()
    emb.lr = 0.25
    emb(torch.tensor([4, 4])).sum().backward()
    emb.wait()
    assert store.pull([4]).tolist() == [[0.5, 0.5]]


def test_keys_of_a_hashed_store_may_be_negative(alone):
    store = weft.Store(5, 2, hashed=True)
    emb = weft.nn.StoreEmbedding.from_store(store, lr=1.0)
    ids = torch.tensor([-7, 10**12, -7])
    emb(ids).sum().backward()
    assert emb(ids).tolist() == [[-2, -2], [-1, -1], [-2, -2]]


def test_what_does_not_fit_is_told(alone):
    with pytest.raises(weft.InvalidError, match="lr, or a store with an optimizer"):
        weft.nn.StoreEmbedding(5, 2)
    with pytest.raises(weft.InvalidError, match="lr, or a store with an optimizer"):
        weft.nn.StoreEmbedding(5, 2, lr=0.1, optimizer="sgd")
    with pytest.raises(weft.InvalidError, match="lr, or a store with an optimizer"):
        weft.nn.StoreEmbedding.from_store(weft.Store(5, 2))
    with pytest.raises(weft.InvalidError, match="floating rows"):
        weft.nn.StoreEmbedding.from_store(weft.Store(5, 2, dtype="int64"), lr=0.1)
    with pytest.raises(weft.InvalidError, match="floating rows"):
        weft.nn.StoreEmbedding(5, 2, lr=0.1, dtype=torch.int64)
    with pytest.raises(weft.InvalidError, match="padding_idx"):
        weft.nn.StoreEmbedding(5, 2, padding_idx=5, lr=0.1)
    with pytest.raises(weft.InvalidError, match="padding_idx must be an int or None, not 'x'"):
        weft.nn.StoreEmbedding(5, 2, padding_idx="x", lr=0.1)
    with pytest.raises(TypeError, match="colour"):
        weft.nn.StoreEmbedding(5, 2, lr=0.1, colour="red")
    emb = weft.nn.StoreEmbedding(5, 2, lr=0.1)
    ids = torch.tensor([1, 2])
    out = emb(ids)
    ids += 1
    with pytest.raises(RuntimeError, match="inplace"):
        out.sum().backward()
    emb.worker.finalize()
    assert "finalized" in repr(emb)


def test_a_compiled_model_takes_it_as_it_is(alone):
    emb = weft.nn.StoreEmbedding(5, 2, lr=1.0, init=torch.nn.init.zeros_)
    compiled = torch.compile(lambda ids: emb(ids) * 2, backend="eager")
    compiled(torch.tensor([4, 0])).sum().backward()
    assert emb(torch.tensor([4, 1])).tolist() == [[-2, -2], [0, 0]]


def test_threads_train_one_store_with_a_worker_each(alone):
    store = weft.Store(6, 2)

    def train():
        emb = weft.nn.StoreEmbedding.from_store(store.worker(), lr=1.0)
        for _ in range(50):
            emb(torch.tensor([1, 4, 1])).sum().backward()
        emb.wait()

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.pull([1, 4])[:, 0].tolist() == [-300, -150]


class Recorder:
    """A worker that notes what it is told."""

    def __init__(self):
        self.current_clock = 0
        self.intents = []

    def intent(self, keys, start, end):
        self.intents.append((keys.tolist(), start, end, self.current_clock))

    def advance_clock(self):
        self.current_clock += 1
        return self.current_clock


@pytest.mark.parametrize("ahead", [0, 1, 3, 20])
def test_each_batch_is_announced_before_it_is_used(ahead):
    worker = Recorder()
    batches = [torch.tensor([i, i + 1]) for i in range(7)]
    loader = weft.nn.IntentLoader(batches, worker, lambda batch: batch, ahead)
    assert len(loader) == 7
    for epoch in range(2):
        for number, batch in enumerate(loader):
            clock = 7 * epoch + number
            assert torch.equal(batch, batches[number]) and worker.current_clock == clock
            told = min(7 * epoch + 7, clock + ahead + 1)
            assert len(worker.intents) == told
        assert worker.current_clock == 7 * (epoch + 1)
    for clock, (keys, start, end, when) in enumerate(worker.intents):
        assert keys == [clock % 7, clock % 7 + 1] and (start, end) == (clock, clock + 1)
        assert when <= start


def test_a_loop_that_is_left_early_leaves_no_intent_behind():
    worker = Recorder()
    endless = (torch.tensor([i]) for i in itertools.count())
    loader = weft.nn.IntentLoader(endless, worker, lambda batch: batch, 4)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    batches.close()
    assert worker.current_clock == max(end for _, _, end, _ in worker.intents)
    with pytest.raises(TypeError, match="generator has no length"):
        len(loader)
    with pytest.raises(weft.InvalidError, match="ahead"):
        weft.nn.IntentLoader([], worker, tuple, -1)


def test_a_data_loader_is_looked_through(alone):
    data = torch.utils.data.TensorDataset(torch.arange(20) % 7, torch.arange(20))
    emb = weft.nn.StoreEmbedding(7, 2, lr=0.1)
    loader = torch.utils.data.DataLoader(data, batch_size=6)
    batches = weft.nn.IntentLoader(loader, emb, lambda batch: batch[0], ahead=2)
    assert len(batches) == 4 and sum(len(x) for x, _ in batches) == 20
    assert emb.worker.current_clock == 4


def test_one_loader_announces_to_several_stores():
    ours, theirs = Recorder(), Recorder()
    theirs.current_clock = 10
    batches = [torch.tensor([i]) for i in range(3)]
    for _ in weft.nn.IntentLoader(batches, [ours, theirs], lambda batch: (batch, -batch), 2):
        pass
    assert [told[:3] for told in ours.intents] == [([i], i, i + 1) for i in range(3)]
    assert [told[:3] for told in theirs.intents] == [([-i], 10 + i, 11 + i) for i in range(3)]
    assert (ours.current_clock, theirs.current_clock) == (3, 13)
    with pytest.raises(weft.InvalidError, match="1 arrays of keys for 2 workers"):
        next(iter(weft.nn.IntentLoader(batches, [ours, theirs], lambda batch: (batch,))))


@pytest.mark.parametrize("ahead", [0, 2, 20])
def test_a_loader_prepares_samples_with_each_batch(alone, ahead):
    store = weft.Store(50, 2, init=lambda keys: keys[:, None].expand(-1, 2))
    store.enable_sampling("preloc", "uniform")
    batches = [torch.tensor([i]) for i in range(6)]
    seen = []
    for batch, sample in weft.nn.IntentLoader(
        batches, store, lambda batch: batch, ahead, samples=(store, 8)
    ):
        keys, rows = store.pull_sample(sample, 8)
        assert torch.equal(rows, keys[:, None].expand(-1, 2).float())
        seen.append(int(batch))
        with pytest.raises(weft.InvalidError):  # all of it was used
            store.pull_sample(sample, 1)
    assert seen == list(range(6)) and store.current_clock == 6


def test_samples_of_batches_that_are_not_used_are_let_go(alone):
    store = weft.Store(50, 2)
    store.enable_sampling("naive", "uniform")
    batches = [torch.tensor([i]) for i in range(6)]
    taken = iter(weft.nn.IntentLoader(batches, [store], None, 3, samples=(store, 8)))
    _, first = next(taken)
    store.pull_sample(first, 8)
    taken.close()
    assert store.current_clock == 4  # passed, though nothing was announced
    for id in range(first, first + 4):
        with pytest.raises(weft.InvalidError, match="sample"):
            store.pull_sample(id, 1)
    other = weft.Store(50, 2)
    with pytest.raises(weft.InvalidError, match="one of the workers"):
        weft.nn.IntentLoader(batches, store, None, samples=(other, 8))
    with pytest.raises(weft.InvalidError, match=r"\(worker, n\)"):
        weft.nn.IntentLoader(batches, store, None, samples=8)


def trains_on_all_ranks():
    comm = weft.init(timeout=60).comm
    torch.manual_seed(comm.rank)
    emb = weft.nn.StoreEmbedding(40, 8, optimizer=weft.optim.Adagrad(lr=0.3))
    head = torch.nn.Linear(8, 1)
    for p in head.parameters():
        comm.broadcast(p.data)
    sums = torch.stack([p.sum() for p in head.parameters()] + [emb(torch.arange(40)).sum()])
    every = torch.empty(comm.size, 3)
    comm.allgather(sums.detach(), every)
    assert (every == every[0]).all(), "all ranks see the same rows"
    with torch.no_grad():  # before anybody trains
        ids = torch.arange(40)
        first = (head(emb(ids)).squeeze(-1) - ids % 2).square().mean().item()
    comm.barrier()
    data = [(torch.arange(40)[i % 5 :: 5], None) for i in range(20 + 10 * comm.rank)]
    last = first
    for ids, _ in weft.nn.IntentLoader(data, emb, lambda batch: batch[0], ahead=5):
        loss = (head(emb(ids)).squeeze(-1) - ids % 2).square().mean()
        loss.backward()  # ranks take unequal numbers of steps, and wait for nobody
        last = loss.item()
    assert last < 0.2 * first
    emb.wait()
    emb.worker.finalize()


@pytest.mark.parametrize("size", [1, 2])
def test_ranks_train_one_store_each_at_its_own_pace(size, request):
    if size == 1:
        request.getfixturevalue("alone")
        weft.finalize()
        trains_on_all_ranks()
    else:
        ranks.run(size, trains_on_all_ranks)


def test_a_wrong_argument_is_named(alone):
    emb = weft.nn.StoreEmbedding(10, 2, lr=0.1)
    keys = torch.tensor([1, 2])
    for text, bad in (
        ("lr is 'x'", lambda: weft.nn.StoreEmbedding(10, 2, lr="x")),
        ("lr is -1", lambda: weft.nn.StoreEmbedding(10, 2, lr=-1)),
        ("lr is nan", lambda: weft.nn.StoreEmbedding.from_store(emb.worker, lr=float("nan"))),
        ("dtype is 'float32'", lambda: weft.nn.StoreEmbedding(10, 2, lr=0.1, dtype="float32")),
        ("init is 5", lambda: weft.nn.StoreEmbedding(10, 2, lr=0.1, init=5)),
        ("from_store", lambda: weft.nn.StoreEmbedding(10, 2, lr=0.1, hashed=True)),
        ("embedding_dim must be", lambda: weft.nn.StoreEmbedding(10, 2.5, lr=0.1)),
        ("num_embeddings must be", lambda: weft.nn.StoreEmbedding("10", 2, lr=0.1)),
        ("worker is 5", lambda: weft.nn.StoreEmbedding.from_store(5, lr=0.1)),
        ("ids must be whole numbers", lambda: emb("x")),
        ("grads have 3 elements", lambda: emb.push_gradients(keys, torch.ones(3))),
        ("ahead must be a whole", lambda: weft.nn.IntentLoader([], emb, list, ahead="x")),
        ("keys_of is 5", lambda: weft.nn.IntentLoader([], emb, 5)),
        ("worker is 5", lambda: weft.nn.IntentLoader([], [emb, 5], list)),
    ):
        with pytest.raises((weft.InvalidError, TypeError), match=text):
            bad()
    loader = weft.nn.IntentLoader([keys], (emb, emb.worker), lambda batch: (batch, batch))
    assert len(list(loader)) == 1
