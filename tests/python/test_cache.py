# SPDX-License-Identifier: Apache-2.0
"""weft.Cache: rows through it are those of the table, and hot ones stay."""

import pytest

torch = pytest.importorskip("torch")

import weft  # noqa: E402
import weft.optim  # noqa: E402


def table(rows=500, width=3, dtype=torch.float32):
    t = weft.zeros((rows, width), dtype)
    t.copy_(torch.arange(rows * width).reshape(rows, width))
    return t


def skewed(n, rows, seed):
    """Mostly small numbers."""
    random = torch.Generator().manual_seed(seed)
    return (torch.rand(n, generator=random) ** 4 * rows).long()


@pytest.mark.parametrize("write", ["through", "back", "read-only"])
@pytest.mark.parametrize("room", [{"rows": 1}, {"ratio": 0.2}, {"rows": 64}, {"ratio": 1.0}])
def test_rows_are_those_of_the_table_whatever_is_read_and_written(alone, write, room):
    t = table()
    truth = t.clone()
    cache = weft.Cache(t, **room, device="cpu", write=write)
    for step in range(30):
        ids = skewed(200, 500, step)
        assert torch.equal(cache.gather(ids), truth[ids])
        if write != "read-only":
            ids = skewed(20, 500, 1000 + step)
            rows = torch.randn(20, 3)
            cache.scatter(ids, rows)
            for i, row in zip(ids.tolist(), rows, strict=True):
                truth[i] = row  # the last wins
    if write == "through":
        assert torch.equal(t, truth)
    cache.flush()
    assert torch.equal(t, truth)
    stats = cache.stats()
    assert stats.rows <= cache.capacity and stats.misses > 0 and stats.hits > 0
    assert (stats.written_back > 0) == (write == "back")


def test_hot_rows_stay_and_are_counted(alone):
    t = table(1024)
    cache = weft.Cache(t, ratio=1 / 16, device="cpu")
    hot = torch.arange(64)
    for _ in range(5):
        cache.gather(hot)
    before = cache.stats()
    assert (before.hits, before.misses, before.rows) == (256, 64, 64)
    assert before.hit_rate == 0.8
    cache.gather(torch.arange(64, 1024))  # rows that come once do not push them out
    cache.gather(hot)
    after = cache.stats()
    assert after.hits - before.hits == 64 and after.evictions == 0
    for _ in range(20):
        cache.gather(torch.arange(500, 564))  # those that are wanted more often do
    assert cache.stats().evictions > 0
    old = cache.stats()
    cache.gather(torch.arange(500, 564))
    assert cache.stats().hits - old.hits == 64


def test_a_zipf_stream_hits_more_than_its_share(alone):
    cache = weft.Cache(table(4096), ratio=0.1, device="cpu")
    for step in range(40):
        cache.gather(skewed(512, 4096, step))
    assert cache.stats().hit_rate > 0.45


def test_old_uses_fade(alone):
    cache = weft.Cache(table(64), rows=32, device="cpu")
    for _ in range(40):
        cache.gather(torch.arange(32))
    assert int(cache._uses.max()) < 40


def test_what_others_write_is_seen_after_drop(alone):
    t = table()
    cache = weft.Cache(t, ratio=1.0, device="cpu", write="back")
    ids = torch.tensor([7, 8])
    cache.gather(ids)
    t[7] = 100
    assert torch.equal(cache.gather(ids)[0], torch.tensor([21.0, 22.0, 23.0]))
    cache.scatter(torch.tensor([8]), torch.full((1, 3), 5.0))
    assert t[8, 0] == 24
    cache.drop()
    assert t[8, 0] == 5
    assert cache.gather(ids)[:, 0].tolist() == [100, 5]
    assert cache.stats().rows == 2


def test_ids_of_any_shape_and_kind_go_through(alone):
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32):
        t = table(100, 2, dtype)
        cache = weft.Cache(weft.region(t), rows=32, device="cpu")
        for ids in (torch.tensor([[3, 4], [4, 99]], dtype=torch.int32), torch.tensor(5)):
            assert torch.equal(cache.gather(ids), t[ids.long()])
        assert cache.gather(torch.empty((0, 3), dtype=torch.int64)).shape == (0, 3, 2)
        got = cache.gather(torch.tensor([-1, 2]))
        assert not got[0].any() and torch.equal(got[1], t[2])
        out = torch.full((2, 2), 9, dtype=dtype)
        assert cache.gather(torch.tensor([-1, 2]), out) is out
        assert torch.equal(out[0], torch.full((2,), 9, dtype=dtype)) and torch.equal(out[1], t[2])
        cache.scatter(torch.tensor([-1]), out[:1])
        assert torch.equal(cache.gather(torch.tensor([0])), t[:1])


def test_wrong_arguments_are_told(alone):
    t = table()
    for bad, text in (
        ({}, "either rows or ratio"),
        ({"rows": 1, "ratio": 0.5}, "either rows or ratio"),
        ({"ratio": 0.0}, "ratio"),
        ({"rows": -1}, "negative"),
        ({"rows": 1, "policy": "lru"}, "lfu"),
        ({"rows": 1, "write": "never"}, "read-only"),
    ):
        with pytest.raises(weft.InvalidError, match=text):
            weft.Cache(t, device="cpu", **bad)
    with pytest.raises(weft.InvalidError, match="part of a region"):
        weft.Cache(t[1:], rows=1, device="cpu")
    if not torch.cuda.is_available():
        with pytest.raises(weft.UnsupportedError, match="no CUDA device"):
            weft.Cache(t, rows=1)
    cache = weft.Cache(t, rows=1, device="cpu", write="read-only")
    with pytest.raises(weft.InvalidError, match="read-only"):
        cache.scatter(torch.tensor([1]), torch.zeros(1, 3))
    with pytest.raises(weft.InvalidError, match="out of range"):
        cache.gather(torch.tensor([500]))
    with pytest.raises(TypeError, match="integers"):
        cache.gather(torch.tensor([1.7]))
    with pytest.raises(weft.InvalidError, match="2 ids"):
        weft.Cache(t, rows=1, device="cpu").scatter(torch.tensor([1, 2]), torch.zeros(1, 3))


@pytest.mark.parametrize("write", ["through", "back"])
def test_a_table_may_grow_and_shrink_under_its_cache(alone, write):
    found = weft.table((40, 3), torch.float32, max_rows=500)
    cache = weft.Cache(found, rows=64, device="cpu", write=write)
    ids = torch.tensor([3, 30])
    cache.scatter(ids, torch.ones(2, 3))
    found.resize(400)
    assert torch.equal(cache.gather(torch.tensor([399, 30])), torch.tensor([[0.0] * 3, [1.0] * 3]))
    cache.scatter(torch.tensor([399]), torch.full((1, 3), 2.0))
    found.resize(20)
    with pytest.raises(weft.InvalidError, match="out of range"):
        cache.gather(ids)
    cache.flush()
    found.resize(400)
    assert torch.equal(cache.gather(ids), torch.tensor([[1.0] * 3, [0.0] * 3]))
    assert torch.equal(weft.gather(found, ids), torch.tensor([[1.0] * 3, [0.0] * 3]))


def test_an_embedding_trains_through_its_cache(alone):
    plain, cached = (weft.nn.Embedding(200, 3, init=torch.nn.init.ones_) for _ in range(2))
    cached.cache = weft.Cache(cached.rows, rows=64, device="cpu")
    optimizers = [weft.optim.Adagrad(emb, lr=0.1) for emb in (plain, cached)]
    for step in range(4):
        ids = skewed(50, 200, step)
        for emb, optimizer in zip((plain, cached), optimizers, strict=True):
            optimizer.zero_grad()
            emb(ids).square().sum().backward()
            optimizer.step()
        assert torch.equal(plain(ids), cached(ids))
    assert cached.cache.stats().hits > 0
