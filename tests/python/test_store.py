# SPDX-License-Identifier: Apache-2.0
"""weft.Store: rows by keys, from torch, NumPy, threads and several ranks."""

import array
import gc
import os
import pickle
import threading
import time
import weakref

import numpy as np
import pytest
import ranks
import weft

torch = pytest.importorskip("torch")

TYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64")


def snapshot(store):
    return store.pull(np.arange(store.num_keys)).copy()


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_of_every_type_are_pulled_pushed_and_set(alone, dtype):
    kind = getattr(torch, dtype)
    for given in (dtype, kind):
        store = weft.Store(10, 3, dtype=given)
        assert (store.dtype, store.num_keys, store.value_length) == (dtype, 10, 3)
        for keys in (torch.tensor([7, 0, 7]), torch.tensor([7, 0, 7], dtype=torch.int32)):
            before = store.pull(keys)
            assert (before.dtype, before.shape) == (kind, (3, 3))
            ones = torch.ones(3, 3, dtype=kind)
            store.push(keys, ones)
            assert torch.equal(store.pull(keys[1:2]), before[1:2] + 1)
            assert torch.equal(store.pull(keys[:1]), before[:1] + 2)
        rows = torch.arange(6).reshape(2, 3).to(kind)
        store.set(torch.tensor([1, 2]), rows)
        assert torch.equal(store.pull(torch.tensor([2, 1])), rows.flip(0))


@pytest.mark.parametrize("dtype", [t for t in TYPES if t != "bfloat16"])
def test_numpy_keys_give_numpy_rows(alone, dtype):
    for given in (dtype, np.dtype(dtype), getattr(np, dtype)):
        store = weft.Store(10, 3, dtype=given)
        for kind in ("i4", "i8", "u1", ">i8"):
            keys = np.array([7, 0, 7], kind)
            before = store.pull(keys)
            assert isinstance(before, np.ndarray) and before.dtype == dtype
            store.push(keys, np.ones(9, dtype))
            assert (store.pull(keys) == before + np.array([[2], [1], [2]], dtype)).all()


def test_numpy_sees_bfloat16_as_its_bits(alone):
    store = weft.Store(4, 2, dtype=torch.bfloat16)
    store.set(
        np.array([1]),
        torch.tensor([1.5, -2.0], dtype=torch.bfloat16).view(torch.int16).numpy().view("u2"),
    )
    assert store.pull([1]).tolist() == [[1.5, -2.0]]
    found = store.pull(np.array([1]))
    assert found.dtype == np.uint16
    assert torch.from_numpy(found.view("i2")).view(torch.bfloat16).tolist() == [[1.5, -2.0]]


def test_keys_and_values_may_have_any_shape(alone):
    store = weft.Store(12, 2, init=torch.arange(24.0).reshape(12, 2))
    every = store.pull(range(12))
    assert every[:, 0].tolist() == [2.0 * i for i in range(12)]
    for keys in (torch.tensor(3), torch.arange(6).reshape(2, 3), torch.zeros(0, dtype=torch.int64)):
        assert torch.equal(store.pull(keys), every[keys])
    keys = torch.tensor([5, 1, 1, 4])
    for out in (torch.zeros(8), torch.zeros(2, 2, 2), torch.zeros(1, 8), np.zeros((2, 4), "f4")):
        assert store.pull(keys, out) is out
        assert torch.as_tensor(out).reshape(4, 2).tolist() == every[keys].tolist()
    assert store.pull(array.array("q", [5, 1])).tolist() == every[[5, 1]].tolist()
    assert store.pull([]).shape == (0, 2)


def test_what_is_not_contiguous_is_handled(alone):
    store = weft.Store(12, 2, init=np.arange(24.0))
    every = store.pull(range(12))
    keys = torch.arange(12)[::3]
    for out in (torch.zeros(2, 4).t(), torch.zeros(4, 4)[:, ::2], np.zeros((2, 4), "f4").T):
        assert store.pull(keys, out) is out
        assert torch.equal(torch.as_tensor(out), every[keys])
        store.push(np.arange(12)[::3], out)
        assert torch.equal(store.pull(keys), 2 * every[keys])
        store.set(keys, every[keys])
        request = store.pull(keys, out * 0, async_=True)
        assert torch.equal(torch.as_tensor(store.wait(request)), every[keys])
    assert torch.equal(store.pull(torch.arange(24).reshape(12, 2).t()[0, ::2] // 2), every[::2])


def test_rows_may_differ_in_length(alone):
    for lengths in (torch.tensor([3, 0, 1, 2]), np.array([3, 0, 1, 2], "i4"), [3, 0, 1, 2]):
        store = weft.Store(4, lengths, init=torch.arange(6.0))
        assert store.value_length is None
        assert [store.length(k) for k in range(4)] == [3, 0, 1, 2]
        assert store.pull([3, 0, 3]).tolist() == [4, 5, 0, 1, 2, 4, 5]
        store.push([2, 0], torch.ones(4))
        assert store.pull(np.array([2, 1, 0])).tolist() == [4, 1, 2, 3]
        with pytest.raises(weft.InvalidError, match="4 elements"):
            store.push([3], torch.ones(4))
        with pytest.raises(weft.InvalidError, match="key 4"):
            store.pull([4])
        store.finalize()
    with pytest.raises(weft.InvalidError, match="one for each of the 3 keys"):
        weft.Store(3, [1, 2])
    with pytest.raises(weft.InvalidError, match="key 1 is -2"):
        weft.Store(2, [1, -2])
    with pytest.raises(weft.InvalidError, match="must be integers"):
        weft.Store(2, torch.tensor([1.0, 2.0]))


def test_a_wrong_argument_is_named_and_changes_nothing(alone):
    store = weft.Store(10, 4, init=1)
    keys, rows = torch.tensor([1, 2]), torch.ones(2, 4)
    before = snapshot(store)
    ragged = weft.Store(2, [1, 3])

    def short():
        store.pull(keys, torch.ones(7))

    for text, bad in (
        ("key -1 at position 1", lambda: store.pull([2, -1])),
        ("key 10 at position 0", lambda: store.push([10, 2], rows)),
        (f"key {2**40}", lambda: store.set(torch.tensor([2, 2**40]), rows)),
        ("key -3", lambda: store.intent([-3], 0)),
        ("key 11", lambda: store.localize([11])),
        ("key 10", lambda: store.pull_if_local(np.array([10]))),
        ("key 10", lambda: store.length(10)),
        ("keys are of type torch.float32", lambda: store.pull(torch.ones(2))),
        ("keys are of type bool", lambda: store.pull(np.ones(2, bool))),
        ("keys must be whole numbers", lambda: store.pull("ab")),
        (f"{2**63}, at position 1 of keys", lambda: store.pull(np.array([1, 2**63], "u8"))),
        (f"{2**64 - 3}, at position 0", lambda: store.pull(torch.tensor([-3]).view(torch.uint64))),
        (f"{2**63}, at position 2 of keys", lambda: store.pull([1, 2, 2**63])),
        ("type of values is torch.float64", lambda: store.push(keys, rows.double())),
        ("type of values is int32", lambda: store.set(keys, np.ones((2, 4), "i4"))),
        ("type of out is torch.int64", lambda: store.pull(keys, rows.long())),
        ("values have 12 elements", lambda: store.push(keys, torch.ones(3, 4))),
        ("out has 7 elements, but the rows of the 2 keys have 8", short),
        ("out has 7 elements", lambda: store.pull(keys, torch.ones(7), async_=True)),
        ("out has 7 elements", lambda: store.pull_if_local(keys, torch.ones(7))),
        ("out has 3 elements", lambda: ragged.pull([0, 1], torch.ones(3))),
        ("key 2 at position 1", lambda: ragged.pull([0, 2], torch.ones(3))),
        ("request is 5; wait", lambda: store.wait(5)),
        ("request is 'x'; test", lambda: store.worker().test("x")),
        ("read-only", lambda: store.pull(keys, np.broadcast_to(np.float32(1), (2, 4)))),
        ("share memory", lambda: store.pull(keys, torch.zeros(1).expand(2, 4))),
        ("is on meta", lambda: store.push(keys, torch.ones(2, 4, device="meta"))),
        ("is on meta", lambda: store.pull(torch.ones(2, dtype=torch.int64, device="meta"))),
        ("start is -1", lambda: store.intent(keys, -1)),
        ("end 3 is not behind start 3", lambda: store.intent(keys, 3, 3)),
    ):
        with pytest.raises(weft.Error, match=text):
            bad()
        with pytest.raises(weft.Error):
            store.push([1, 10], rows, async_=True)
    with pytest.raises(TypeError, match="not list"):
        store.push(keys, [1.0] * 8)
    assert (snapshot(store) == before).all()


def test_a_wrong_option_is_named(alone):
    for text, more in (
        ("dtype is", {"dtype": "int8"}),
        ("dtype is", {"dtype": torch.complex64}),
        ("techniques is 'some'", {"techniques": "some"}),
        ("no optimizer 'sdg'", {"optimizer": "sdg"}),
        ("optimizer is 3", {"optimizer": 3}),
        ("lr is -1", {"optimizer": {"kind": "sgd", "lr": -1}}),
        ("lr_decay is 0.5", {"optimizer": {"kind": "adagrad", "lr_decay": 0.5}}),
        ("adam, adamw, lazy_adam, rmsprop, rowwise_adagrad$", {"optimizer": "sdg"}),
        ("dtype is int64; with an optimizer", {"optimizer": "sgd", "dtype": "int64"}),
        ("rounds is 'x'", {"rounds": "x"}),
        ("rounds is nan", {"rounds": float("nan")}),
        ("has 3 lengths; it must be .* each of the 10 keys", {"value_length": [1, 2, 3]}),
        ("lengths in value_length are of type", {"value_length": torch.ones(10)}),
        ("value_length must be one number", {"value_length": [4] * 10, "hashed": True}),
        ("returned 8 elements for keys 0 to 9, .* 40", {"init": lambda keys: torch.ones(2, 4)}),
        ("init returned must be numbers, not None", {"init": lambda keys: None}),
        ("init returned must be numbers, not 'x'", {"init": lambda keys: "x"}),
        ("num_keys is -1", {"num_keys": -1}),
        ("value_length is -1", {"value_length": -1}),
        ("cache is -1", {"cache": -1}),
        ("timeout is 0", {"timeout": 0}),
        ("init has 3 elements", {"init": torch.ones(3)}),
        ("init must be a number", {"init": [[1, 2], [3, 4]]}),
        ("init must be a number", {"init": "normal"}),
    ):
        with pytest.raises(weft.InvalidError, match=text):
            weft.Store(**{"num_keys": 10, "value_length": 4, **more})


@pytest.mark.parametrize("like", ["torch", "numpy"])
def test_each_row_begins_as_init_says(alone, like):
    def rows_of(keys):
        asked.extend(keys.tolist())
        rows = torch.stack([keys, -keys], 1)
        return rows if like == "torch" else rows.numpy()

    asked = []
    store = weft.Store(200_000, 2, init=rows_of)
    assert asked == list(range(200_000))
    assert store.pull([199_999, 3]).tolist() == [[199_999, -199_999], [3, -3]]
    assert (snapshot(weft.Store(5, 3, init=2.5)) == 2.5).all()
    assert (snapshot(weft.Store(5, 3, init=7, dtype="int64")) == 7).all()
    given = np.arange(10.0).reshape(5, 2)
    given = torch.from_numpy(given) if like == "torch" else given
    assert snapshot(weft.Store(5, 2, init=given)).tolist() == given.tolist()
    assert weft.Store(0, 2, init=1).num_keys == 0
    assert weft.Store(1, 2, dtype=None).dtype == "float32"
    with pytest.raises(ZeroDivisionError):
        weft.Store(5, 2, init=lambda keys: 1 / 0)


def test_asynchronous_operations_are_requests(alone):
    store = weft.Store(10, 2)
    keys = torch.tensor([1, 2])
    ones = torch.ones(2, 2)
    pushed = store.push(keys, ones, async_=True)
    ones.zero_()  # it was copied
    pulled = store.pull(keys, async_=True)
    assert torch.equal(pulled.wait(), torch.ones(2, 2)) and store.test(pulled)
    assert store.wait(pushed) is None and pushed.done
    assert store.wait(store.localize(keys, async_=True)) is None
    called = []
    request = store.set(keys, torch.zeros(2, 2), async_=True)
    request.add_done_callback(called.append)
    request.wait(timeout=5)
    assert called == [request] and "set, over" in repr(request)
    out = torch.ones(2, 2)
    assert store.pull(keys, out, async_=True).wait() is out and not out.any()
    store.wait_all()


def test_what_is_here_is_local_and_intents_are_accepted(alone):
    store = weft.Store(10, 2, init=3)
    assert store.pull_if_local([1, 9]).tolist() == [[3, 3], [3, 3]]
    out = torch.zeros(4)
    assert store.pull_if_local([1, 9], out) is out and out.tolist() == [3] * 4
    store.localize(torch.tensor([4, 5]))
    store.intent(np.array([1, 2, 2]), 0)
    store.intent([3], 5, 2**63 - 1)
    assert [store.current_clock, store.advance_clock(), store.current_clock] == [0, 1, 1]
    worker = store.worker()
    assert (worker.current_clock, worker.advance_clock(), store.current_clock) == (0, 1, 1)
    worker.wait_sync()
    worker.close()
    with pytest.raises(weft.ClosedError, match="worker was closed"):
        worker.pull([1])
    assert store.pull([1]).tolist() == [[3, 3]]


def test_stats_count_keys(alone):
    store = weft.Store(10, 2, init=1)
    with store.setup() as same:
        assert same is store
        store.push([1, 2], torch.ones(4))
    assert store.stats()["pulls"] == store.stats()["pushes"] == 0
    store.pull([1, 1, 3])
    store.worker().push([2], torch.ones(2))
    store.set([2, 3], torch.ones(4))
    found = store.stats()
    assert (found["pulls"], found["pushes"]) == (3, 3)
    assert (found["local_pulls"], found["local_pushes"], found["local_share"]) == (3, 3, 1.0)
    assert found["owned"] == 10 and found["moved_in"] == found["copies"] == 0
    store.reset_stats()
    assert store.stats()["pulls"] == 0


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_push_is_a_step_of_torchs_optimizer(alone, kind):
    torch.manual_seed(3)
    ours = next(found for name, found in vars(weft.optim).items() if name.lower() == kind)
    for optimizer in ({"kind": kind, "lr": 0.1}, ours(lr=0.1)):
        first = torch.randn(6, 5)
        store = weft.Store(6, 5, optimizer=optimizer, init=first)
        rows = [torch.nn.Parameter(row.clone()) for row in first]
        theirs = [OPTIMIZERS[kind]([row]) for row in rows]  # each row counts its own steps
        for step in range(4):
            keys = torch.tensor([0, 3, 5][: 1 + step % 3])
            grads = torch.randn(len(keys), 5)
            store.push(keys, grads)
            for key, grad in zip(keys.tolist(), grads, strict=True):
                rows[key].grad = grad
                theirs[key].step()
        wanted = torch.stack([row.detach() for row in rows])
        assert torch.allclose(store.pull(range(6)), wanted, atol=1e-6)


def test_an_optimizer_without_tables_only_describes(alone):
    weft.optim.SGD(weft.nn.Embedding(2, 2), lr=0.1)  # from now on torch wraps its step()
    with pytest.raises(weft.InvalidError, match="no tables"):
        weft.optim.SGD(lr=0.1).step()
    store = weft.Store(3, 2, optimizer="rowwise_adagrad")
    store.push([1], torch.tensor([3.0, 4.0]))
    root = 12.5**0.5
    assert torch.allclose(store.pull([1]), -0.01 * torch.tensor([[3.0, 4.0]]) / root)
    store.set([1], torch.zeros(2))  # the state begins again
    store.push([1], torch.tensor([3.0, 4.0]))
    assert torch.allclose(store.pull([1]), -0.01 * torch.tensor([[3.0, 4.0]]) / root)


def test_a_finalized_store_says_so(alone):
    store = weft.Store(5, 2)
    worker = store.worker()
    store.finalize()
    with pytest.raises(weft.ClosedError, match="finalized before"):
        store.finalize()
    rows = torch.ones(2)
    for bad in (
        lambda: store.pull([1]),
        lambda: store.push([1], rows),
        lambda: store.push([1], rows, async_=True),
        lambda: worker.set([1], rows),
        worker.advance_clock,
        lambda: worker.intent([1], 0),
        store.wait_sync,
        store.barrier,
        store.stats,
        lambda: store.num_keys,
        store.worker,
        lambda: store.save("nowhere"),
        lambda: store.prepare_sample(1, 0),
    ):
        with pytest.raises(weft.ClosedError, match="this store was finalized"):
            bad()
    assert store.closed and "finalized" in repr(store)
    with weft.Store(5, 2) as other:
        other.push([1], rows)
    assert other.closed
    with pytest.raises(KeyError), weft.Store(5, 2) as other:
        raise KeyError
    assert other.closed


def test_a_closed_store_says_so(alone):
    store = weft.Store(5, 2)
    worker = store.worker()
    store.close()
    store.close()
    for bad in (lambda: store.pull([1]), lambda: worker.pull([1]), store.worker, store.barrier):
        with pytest.raises(weft.ClosedError, match=r"this store was closed$"):
            bad()
    with pytest.raises(weft.ClosedError, match="this store was closed before"):
        store.finalize()
    assert repr(store) == "<weft.Store closed>"
    emb = weft.nn.StoreEmbedding(5, 2, lr=0.1)
    emb.worker.close()
    assert "closed" in repr(emb)
    store = weft.Store(5, 2)
    store.finalize()
    store.close()
    assert repr(store) == "<weft.Store finalized>"
    with pytest.raises(KeyError), weft.Store(5, 2) as store:
        raise KeyError
    assert repr(store) == "<weft.Store closed>"


def test_a_store_that_a_thread_is_inside_stays_as_it_is(alone):
    def draw():
        inside.set()
        go_on.wait()
        return 3

    inside, go_on = threading.Event(), threading.Event()
    store = weft.Store(10, 2)
    store.enable_sampling("naive", draw)
    workers = [store.worker() for _ in range(4)]
    thread = threading.Thread(target=workers[2].prepare_sample, args=(1, 0))
    thread.start()
    inside.wait()
    with pytest.raises(weft.InvalidError, match="a thread is inside"):
        store.close()
    for i in (0, 1, 3):
        workers[i].push([i], torch.ones(2))
    go_on.set()
    thread.join()
    assert store.pull([0, 1, 2, 3])[:, 0].tolist() == [1, 1, 0, 1]
    store.close()


def test_a_store_ends_with_its_job():
    weft.init("alone")
    store = weft.Store(5, 2)
    worker = store.worker()
    request = store.pull([1], async_=True)
    weft.finalize()
    for bad in (lambda: store.pull([1]), worker.advance_clock, store.finalize):
        with pytest.raises(weft.ClosedError):
            bad()
    assert request.wait().tolist() == [[0, 0]]
    weft.init("alone")
    try:
        with pytest.raises(weft.ClosedError, match="world is closed"):
            store.pull([1])
        assert weft.Store(5, 2).pull([1]).tolist() == [[0, 0]]
    finally:
        weft.finalize()


def test_a_store_that_is_dropped_is_freed(alone):
    store = weft.Store(5, 2)
    worker = store.worker()
    seen = weakref.ref(store)
    del store
    gc.collect()
    assert seen() is None
    assert worker.pull([1]).tolist() == [[0, 0]]
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(worker)


def run_threads(*bodies):
    failures = []

    def guarded(body):
        try:
            body()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@pytest.mark.parametrize("own_workers", [True, False])
def test_threads_lose_no_push(alone, own_workers):
    store = weft.Store(7, 3, dtype="int64")

    def body():
        kv = store.worker() if own_workers else store
        keys, ones = np.array([0, 3, 3, 6]), np.ones((4, 3), "i8")
        for step in range(500):
            kv.push(keys, ones, async_=step % 2 == 1)
            rows = kv.pull(keys)
            assert (rows == rows[:, :1]).all()  # none is torn
        kv.wait_all()

    run_threads(body, body, body)
    assert store.pull(range(7))[:, 0].tolist() == [1500, 0, 0, 3000, 0, 0, 1500]


def test_other_threads_run_while_rows_are_copied(alone):
    store = weft.Store(1000, 1000)
    keys, out = np.arange(20_000) % 1000, np.empty((20_000, 1000), "f4")
    turn, over = 0, False

    def pull():
        nonlocal turn
        while not over:
            turn += 1
            store.pull(keys, out)

    thread = threading.Thread(target=pull)
    thread.start()
    end = time.monotonic() + 60
    longest, run, last = 0, 0, 0
    while longest < 20 and time.monotonic() < end:
        time.sleep(0)  # lets go of the GIL, so the other thread goes on to the next pull
        run = run + 1 if turn == last else 0
        longest, last = max(longest, run), turn
    over = True
    thread.join()
    assert longest >= 20, "nobody ran during a pull"


def test_a_forked_child_is_told(alone):
    store = weft.Store(5, 2, init=1)
    worker = store.worker()
    pid = os.fork()
    if pid == 0:
        try:
            for bad in (lambda: store.pull([1]), lambda: worker.push([1], torch.ones(2))):
                with pytest.raises(weft.ClosedError, match="forked"):
                    bad()
            del store, worker
            gc.collect()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert worker.pull([1]).tolist() == [[1, 1]]


def test_hashed_keys_are_any_numbers(alone):
    store = weft.Store(4, 2, hashed=True, dtype="int64")
    far = np.array([10**18, -5, 7, 10**18])
    store.push(far, np.arange(8))
    assert store.pull(far).tolist() == [[6, 8], [2, 3], [4, 5], [6, 8]]
    assert store.pull(torch.tensor([-5])).tolist() == [[2, 3]]
    store.pull(np.array([1]))
    with pytest.raises(weft.NoMemError, match="key 2 at position 1 is new"):
        store.push(np.array([1, 2]), np.ones(4, "i8"))
    with pytest.raises(weft.InvalidError, match="init"):
        weft.Store(4, 2, hashed=True, init=1)


@pytest.mark.parametrize("scheme", ["naive", "preloc", "pool", "local"])
def test_samples_have_the_rows_of_their_keys(alone, scheme):
    store = weft.Store(100, 2, init=lambda keys: torch.stack([keys, -keys], 1), seed=3)
    store.enable_sampling(scheme, "log-uniform", min=10, max=60)
    sample = store.prepare_sample(30, 0)
    assert sample >= 1
    for like, n in (("torch", 10), ("numpy", 12), (None, 8)):
        keys, rows = store.pull_sample(sample, n, like=like)
        keys, rows = torch.as_tensor(keys), torch.as_tensor(rows)
        assert keys.shape == (n,) and ((keys >= 10) & (keys < 60)).all()
        assert torch.equal(rows, torch.stack([keys, -keys], 1).float())
    with pytest.raises(weft.InvalidError, match="30 that were prepared"):
        store.pull_sample(sample, 1)


def test_a_seed_repeats_its_samples(alone):
    drawn = []
    for seed in (3, 3, 4):
        store = weft.Store(10_000, 2, seed=seed)
        store.enable_sampling("naive")
        drawn.append(store.pull_sample(store.prepare_sample(20, 0), 20)[0].tolist())
    assert drawn[0] == drawn[1] != drawn[2]


def test_samples_follow_weights_and_functions(alone):
    for weights in (torch.eye(10)[7], np.eye(10)[7], [0.0] * 7 + [1.0] + [0.0] * 2):
        store = weft.Store(10, 2)
        store.enable_sampling("naive", "weighted", weights=weights)
        assert store.pull_sample(store.prepare_sample(5, 0), 5)[0].tolist() == [7] * 5
    store = weft.Store(10, 2)
    drawn = iter(range(10))
    store.enable_sampling("naive", lambda: next(drawn))
    assert store.pull_sample(store.prepare_sample(6, 0), 6)[0].tolist() == list(range(6))
    with pytest.raises(StopIteration):
        store.prepare_sample(6, 0)
    out = np.zeros((3, 2), "f4")
    other = weft.Store(10, [2] * 10)
    other.enable_sampling("naive")
    sample = other.prepare_sample(3, 0)
    assert other.pull_sample(sample, 3, out)[1] is out
    with pytest.raises(weft.InvalidError, match="needs out"):
        other.pull_sample(other.prepare_sample(3, 0), 3)


def test_a_wrong_sample_is_named(alone):
    store = weft.Store(10, 2)
    for text, bad in (
        (r"told how to sample: .*\(enable_sampling\)", lambda: store.prepare_sample(3, 0)),
        ("scheme is 'best'", lambda: store.enable_sampling("best")),
        ("distribution is 'zipf'", lambda: store.enable_sampling("naive", "zipf")),
        ("weights", lambda: store.enable_sampling("naive", "weighted")),
        ("distribution is \\['u'\\]", lambda: store.enable_sampling("naive", ["u"])),
        (
            "there are 2 weights; .* each of the 10 keys",
            lambda: store.enable_sampling("naive", "weighted", weights=[1.0, 2.0]),
        ),
        (
            "there are 2 weights; .* each of the 3 keys",
            lambda: store.enable_sampling("naive", "weighted", weights=[1, 2], min=1, max=4),
        ),
        (
            "there is no key",
            lambda: store.enable_sampling("naive", "weighted", weights=[1], min=11),
        ),
        ("weights must be", lambda: store.enable_sampling("naive", "weighted", weights="ab")),
        ("has 10 keys", lambda: store.enable_sampling("naive", max=11)),
        ("-1", lambda: store.enable_sampling("naive", min=-1)),
        ("5", lambda: store.enable_sampling("naive", min=5, max=3)),
    ):
        with pytest.raises(weft.InvalidError, match=text):
            bad()
    store.enable_sampling("naive", with_replacement=False)
    sample = store.prepare_sample(10, 0)
    rows = torch.zeros(3)
    for text, bad in (
        ("11 distinct samples", lambda: store.prepare_sample(11, 0)),
        ("n is -1", lambda: store.prepare_sample(-1, 0)),
        ("n is -1", lambda: store.pull_sample(sample, -1)),
        ("out has 3 elements, but 2 rows have 4", lambda: store.pull_sample(sample, 2, rows)),
        ("like is 'jax'", lambda: store.pull_sample(sample, 1, like="jax")),
        ("sample 7", lambda: store.pull_sample(7, 1)),
        ("sample 7", lambda: store.finish_sample(7)),
        ("before", lambda: store.enable_sampling("naive")),
    ):
        with pytest.raises(weft.InvalidError, match=text):
            bad()
    assert sorted(store.pull_sample(sample, 10)[0].tolist()) == list(range(10))


def test_rows_and_the_optimizers_state_are_saved(alone, tmp_path):
    grads = torch.randn(10, 3)
    store = weft.Store(10, 3, optimizer="adagrad", init=1)
    store.push(range(10), grads)
    store.save(tmp_path / "rows.weft")
    other = weft.Store(10, 3, optimizer="adagrad")
    other.load(str(tmp_path / "rows.weft"))
    for _ in range(2):
        assert torch.equal(store.pull(range(10)), other.pull(range(10)))
        store.push(range(10), grads)
        other.push(range(10), grads)
    for wrong in (
        weft.Store(11, 3, optimizer="adagrad"),
        weft.Store(10, 4, optimizer="adagrad"),
        weft.Store(10, 3, optimizer="sgd"),
        weft.Store(10, 3, dtype="float64"),
    ):
        with pytest.raises(weft.InvalidError):
            wrong.load(tmp_path / "rows.weft")
        assert not wrong.pull(range(10)).any()
    with pytest.raises(weft.Error, match="missing"):
        store.load(tmp_path / "missing.weft")
    with pytest.raises(weft.Error, match="nowhere"):
        store.save(tmp_path / "nowhere" / "rows.weft")


def test_a_store_grows_and_shrinks(alone):
    store = weft.Store(10, 2, max_keys=20, init=1)
    store.resize(15)
    assert store.num_keys == 15 and store.pull([9, 14]).tolist() == [[1, 1], [0, 0]]
    store.set([12], torch.ones(2))
    store.resize(5)
    with pytest.raises(weft.InvalidError, match="key 5"):
        store.pull([5])
    store.resize(20)
    assert store.pull(range(20)).sum() == 10
    for bad in (21, -1):
        with pytest.raises(weft.InvalidError):
            store.resize(bad)
    with pytest.raises(weft.Error, match="length"):
        weft.Store(2, [1, 2]).resize(1)


def test_what_happens_to_keys_can_be_traced(alone, tmp_path):
    store = weft.Store(10, 2)
    store.trace([3, 4], tmp_path / "trace.txt")
    store.intent([3], 0)
    store.trace([], tmp_path / "trace.txt")
    assert (tmp_path / "trace.txt").exists()
    with pytest.raises(weft.InvalidError, match="key 10"):
        store.trace([10], tmp_path / "trace.txt")


# Several ranks.


def all_see_all_pushes(comm, dtype):
    asked = []

    def first(keys):
        asked.extend(keys.tolist())
        return torch.zeros(len(keys), 4)

    store = weft.Store(101, 4, dtype=dtype, init=first)
    counts = torch.zeros(101, dtype=torch.int64)
    counts[asked] += 1
    comm.allreduce(counts)
    assert (counts == 1).all(), "each key is asked for once"
    ones = torch.ones(50, 4, dtype=getattr(torch, dtype))
    for step in range(20):
        keys = (torch.arange(50) * 3 + step) % 101
        store.push(keys, ones, async_=step % 2 == 0)
    store.wait_all()
    store.wait_sync()
    store.barrier()
    rows = store.pull(torch.arange(101))
    assert (rows == rows[:, :1]).all()
    assert int(rows[:, 0].sum()) == 1000 * comm.size
    store.barrier()
    if comm.rank == 0:
        store.set([7], torch.full((4,), 9, dtype=getattr(torch, dtype)))
    store.barrier()
    assert store.pull([7]).tolist() == [[9] * 4]
    with pytest.raises(weft.InvalidError, match="key 101"):
        store.pull([101])
    store.finalize()


def one_rank_fails(comm):
    keys = "a store is made with number of keys 101 on rank 1, but 100 on rank 0"
    with pytest.raises(weft.MismatchError, match=keys):
        weft.Store(100 + comm.rank, 4)
    with pytest.raises(weft.MismatchError, match="another type on rank 1 than on rank 0"):
        weft.Store(100, 4, dtype="float64" if comm.rank == 1 else "float32")
    here = ZeroDivisionError if comm.rank == 1 else weft.SystemError
    with pytest.raises(here, match="division"):
        weft.Store(100, 4, init=lambda keys: 1 / 0 if comm.rank == 1 else torch.ones(len(keys), 4))
    with weft.Store(100, 4, init=comm.size) as store:  # nobody waits for anybody
        assert store.pull([99]).tolist() == [[comm.size] * 4]


def one_thread_waits_in_a_barrier(comm):
    store = weft.Store(10, 2)
    if comm.rank == 0:
        thread = threading.Thread(target=store.barrier)
        thread.start()
        store.push([1], torch.ones(2))  # another thread goes on meanwhile
        comm.send(torch.zeros(1), 1)
        thread.join()
    else:
        comm.recv(torch.zeros(1), 0)
        assert store.pull([1]).tolist() == [[1, 1]]
        store.barrier()
    store.finalize()


def loads_what_fewer_ranks_saved(path):
    store = weft.Store(10, 3, init=1)
    store.load(path)
    store.barrier()
    assert store.pull(range(10))[:, 1].tolist() == list(range(10))
    store.finalize()


def two_ranks(path):
    comm = weft.init(timeout=60).comm
    loads_what_fewer_ranks_saved(path)
    all_see_all_pushes(comm, "float32")
    all_see_all_pushes(comm, "int64")
    one_rank_fails(comm)
    one_thread_waits_in_a_barrier(comm)


def test_ranks_see_each_others_pushes_and_failures(alone, tmp_path):
    path = str(tmp_path / "rows.weft")
    weft.Store(10, 3, init=lambda keys: keys[:, None].expand(-1, 3)).save(path)
    ranks.run(2, two_ranks, path)
