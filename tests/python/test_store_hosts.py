# SPDX-License-Identifier: Apache-2.0
"""weft.Store over several hosts, which are ranks with a WEFT_NODE of their own."""

import contextlib
import gc
import itertools
import os
import sys
import threading

import bodies
import numpy as np
import pytest
import ranks
import weft

torch = pytest.importorskip("torch")

KEYS = 60

pytestmark = pytest.mark.over("nodes")


def join(pretended=True):
    """The job's communicator; each rank is a host unless there are real ones."""
    if pretended:
        os.environ["WEFT_NODE"] = os.environ["WEFT_RANK"]
    return weft.init(timeout=60).comm


def count_hosts():
    return len({peer.node for peer in weft.world().peers})


def ranks_elsewhere(comm):
    """How many are not on this host; each has as many."""
    return comm.size - comm.size // count_hosts()


def settle(store):
    """Afterwards all pushes of all ranks are seen everywhere."""
    store.wait_all()
    for _ in range(2):
        store.wait_sync()
        store.barrier()


def keys_elsewhere(store):
    """Keys that are not on this host."""
    return [k for k in range(KEYS) if store.pull_if_local([k]) is None]


def operations_on_keys_elsewhere(comm):
    store = weft.Store(KEYS, 3, dtype="int64", init=lambda keys: keys[:, None].expand(-1, 3))
    each = comm.size // count_hosts()
    assert (store.hosts, store.host) == (count_hosts(), comm.rank // each)
    far = keys_elsewhere(store)
    assert 0 < len(far) < KEYS
    keys = torch.tensor(far)
    assert torch.equal(store.pull(keys), keys[:, None].expand(-1, 3))
    store.barrier()
    requests = []
    ones = torch.ones(len(far), 3, dtype=torch.int64)
    for _ in range(20):
        requests.append(store.push(keys, ones, async_=True))
        requests.append(store.pull(keys, async_=True))
        ones.fill_(1)
    seen = [store.wait(request) for request in requests][1::2]
    assert all((later >= earlier + 1).all() for earlier, later in itertools.pairwise(seen))
    out = np.zeros((3, len(far)), "i8").T  # not contiguous: written when it is over
    store.pull(np.array(far), out, async_=True).wait()
    assert (out >= 20).all()
    with pytest.raises(weft.InvalidError, match=f"key {KEYS}"):
        store.pull([far[0], KEYS], async_=True)
    settle(store)
    total = int(store.pull(range(KEYS))[:, 0].sum())
    assert total == KEYS * (KEYS - 1) // 2 + 20 * KEYS * ranks_elsewhere(comm)
    found = store.stats()
    assert found["local_share"] < 1 and found["pulls"] > found["local_pulls"]
    store.finalize()


def keys_come_to_where_they_are_wanted(comm):
    store = weft.Store(KEYS, 2, init=1, cache=2 * KEYS)
    far = keys_elsewhere(store)
    store.barrier()
    mine = np.array(far[comm.rank :: comm.size])  # some of them others may want, too
    store.localize(mine)
    assert store.pull_if_local(mine) is not None
    store.barrier()
    shared = torch.arange(10)
    store.wait(store.localize(shared, async_=True))
    for _ in range(50):
        store.push(shared, torch.ones(10, 2))
    settle(store)
    assert (store.pull(shared) == 1 + 50 * comm.size).all()
    store.barrier()
    if comm.rank == 1:
        store.set(shared, torch.zeros(10, 2))
    settle(store)
    assert not store.pull(shared).any()
    found = torch.tensor([float(store.stats()[name]) for name in ("moved_in", "copied_in")])
    comm.allreduce(found)
    assert (found > 0).all(), found
    store.finalize()


def all_keys_come_in_one_call(comm):
    store = weft.Store(100, 4, cache=100 - 100 // count_hosts())  # a key on its way takes two
    keys = np.arange(100)
    if comm.rank == 0:
        store.wait(store.localize(keys, async_=True))
        assert store.pull_if_local(keys) is not None
    store.finalize()
    small = weft.Store(100, 4, cache=10)
    if comm.rank == 0:
        for async_ in (False, True):
            with pytest.raises(weft.NoMemError, match=r"no room for key [0-9]+: .*`cache`"):
                small.wait(small.localize(keys, async_=async_))
    small.finalize()


def threads_with_workers(comm):
    store = weft.Store(KEYS, 2, dtype="int64")

    def run(_):
        kv = store.worker()
        for step in range(40):
            keys = (np.arange(12) * 7 + step) % KEYS
            kv.intent(keys, step + 1, step + 3)
            kv.push(keys, np.ones((12, 2), "i8"), async_=step % 3 != 0)
            rows = kv.pull(keys)
            assert (rows[:, 0] == rows[:, 1]).all() and (rows > 0).all()
            kv.advance_clock()
        kv.wait_all()

    bodies.in_two_threads(run)
    settle(store)
    assert int(store.pull(range(KEYS))[:, 0].sum()) == 2 * 40 * 12 * comm.size
    store.finalize()


def embeddings_and_their_loader(comm):
    torch.manual_seed(comm.rank)
    emb = weft.nn.StoreEmbedding(KEYS, 4, optimizer=weft.optim.Adagrad(lr=0.3))
    wanted = torch.linspace(-1, 1, KEYS)[:, None].expand(-1, 4)
    data = [torch.randint(KEYS, (16,)) for _ in range(150)]
    for ids in weft.nn.IntentLoader(data, emb, lambda ids: ids, ahead=8):
        (emb(ids) - wanted[ids]).square().sum().backward()
    emb.wait()
    settle(emb.worker)
    with torch.no_grad():
        assert (emb(torch.arange(KEYS)) - wanted).square().mean() < 0.05
    emb.worker.finalize()


def samples_of_each_scheme(comm):
    for scheme in ("naive", "preloc", "pool", "local"):
        store = weft.Store(KEYS, 2, init=lambda keys: torch.stack([keys, -keys], 1))
        store.enable_sampling(scheme, "uniform", min=5, max=50)
        for step in range(5):
            sample = store.prepare_sample(30, step)
            asked = store.pull_sample(sample, 20, async_=True)
            for keys, rows in (store.wait(asked), store.pull_sample(sample, 10)):
                assert ((keys >= 5) & (keys < 50)).all()
                assert torch.equal(rows, torch.stack([keys, -keys], 1).float())
            store.advance_clock()
        store.finalize()


def keys_that_are_any_numbers(comm):
    store = weft.Store(KEYS, 2, hashed=True, dtype="int64", max_keys=2 * KEYS)
    names = torch.arange(KEYS) * 10**12 - 10**13
    store.intent(names, 0, 10)
    for _ in range(3):
        store.push(names, names[:, None].expand(-1, 2), async_=True)
    settle(store)
    assert torch.equal(store.pull(names)[:, 1], 3 * comm.size * names)
    with pytest.raises(weft.NoMemError, match="key 5 "):
        store.pull([5])
    store.barrier()
    store.resize(KEYS + 1)
    assert store.num_keys == KEYS + 1
    assert (store.pull([5]) == 0).all()
    assert torch.equal(store.pull(names)[:, 0], 3 * comm.size * names)
    store.finalize()


def more_and_fewer_keys(comm):
    store = weft.Store(KEYS, 2, init=1, max_keys=3 * KEYS, cache=3 * KEYS)
    keys = torch.arange(KEYS)
    store.localize(keys)
    store.push(keys, torch.ones(KEYS, 2))
    settle(store)
    store.resize(KEYS // 2)
    with pytest.raises(weft.InvalidError, match=f"key {KEYS - 1}"):
        store.pull(keys.flip(0))
    store.resize(3 * KEYS)
    rows = store.pull(range(3 * KEYS))
    assert (rows[: KEYS // 2] == 1 + comm.size).all() and (rows[KEYS // 2 :] == 0).all()
    store.finalize()


def timestamps_of_adapm(comm):
    from weft.compat import adapm

    adapm.setup(KEYS, 1)
    server = adapm.Server(2)
    kv = adapm.Worker(0, server)
    keys = torch.arange(KEYS)
    stamps = [kv.push(keys, torch.ones(KEYS, 2), True) for _ in range(5)]
    values = torch.zeros(KEYS, 2)
    stamps.append(kv.pull(keys, values, True))
    under_way = [stamp for stamp in stamps if stamp >= 0]  # those that were not over at once
    assert under_way == list(range(len(under_way)))
    kv.wait(stamps[-1])
    kv.wait(stamps[-1])  # it is over
    assert (values >= 5).all()
    kv.intent(keys, kv.current_clock(), sys.maxsize)
    kv.waitall()
    for _ in range(2):
        kv.wait_sync()
        kv.barrier()
    kv.pull(keys, values)
    assert (values == 5 * comm.size).all()
    kv.finalize()
    server.shutdown()


def a_rank_that_fails_waits_for_nobody(comm):
    """Rank 0 leaves by an exception while others use the store, with rows of its host."""
    word = torch.zeros(1)
    with contextlib.suppress(RuntimeError), weft.Store(KEYS, 2, init=1) as store:
        store.barrier()
        if comm.rank > 0:
            comm.recv(word, comm.rank - 1)
            assert (store.pull(range(KEYS)) == 1).all()
        raise RuntimeError("mine")
    assert store.closed
    with pytest.raises(weft.ClosedError):
        store.pull([0])
    if comm.rank + 1 < comm.size:
        comm.send(word, comm.rank + 1)
    comm.barrier()


def a_store_that_is_forgotten_waits_for_nobody(comm):
    word = torch.zeros(1)
    store = weft.Store(KEYS, 2, init=1)
    store.push(keys_elsewhere(store), torch.ones(len(keys_elsewhere(store)), 2), async_=True)
    store.wait_all()
    store.barrier()
    if comm.rank > 0:
        comm.recv(word, comm.rank - 1)
        assert (store.pull(range(KEYS)) == 1 + ranks_elsewhere(comm)).all()
    del store
    gc.collect()
    if comm.rank + 1 < comm.size:
        comm.send(word, comm.rank + 1)
    comm.barrier()


def on_hosts(pretended=True):
    comm = join(pretended)
    for body in (
        operations_on_keys_elsewhere,
        keys_come_to_where_they_are_wanted,
        all_keys_come_in_one_call,
        threads_with_workers,
        embeddings_and_their_loader,
        samples_of_each_scheme,
        keys_that_are_any_numbers,
        more_and_fewer_keys,
        timestamps_of_adapm,
        a_rank_that_fails_waits_for_nobody,
        a_store_that_is_forgotten_waits_for_nobody,
    ):
        print(body.__name__, flush=True)
        body(comm)


@pytest.mark.parametrize("size", [2, 3])
def test_hosts_share_a_store(size):
    ranks.run(size, on_hosts)


def outlives_another_host():
    comm = join()
    store = weft.Store(KEYS, 2, init=1)
    here = [k for k in range(KEYS) if store.pull_if_local([k]) is not None]
    far = keys_elsewhere(store)
    store.barrier()
    print("ready", flush=True)
    if comm.rank == 1:
        threading.Event().wait()  # until it is killed
    with pytest.raises(weft.PeerError, match="rank 1"):
        while True:
            store.pull(far)
    with pytest.raises(weft.PeerError, match="rank 1"):
        store.push(far, torch.ones(len(far), 2))
    store.push(here, torch.ones(len(here), 2))
    assert (store.pull(here) == 2).all()
    with pytest.raises(weft.PeerError, match="rank 1"):
        store.finalize()
    assert store.closed


def test_a_host_that_is_gone_is_named_and_other_rows_stay():
    with ranks.Job(2, outlives_another_host) as job:
        job[0].line("ready")
        job[1].line("ready")
        job.kill(1)
        job.finish(expected={1: -9})


def fails_while_others_wait():
    comm = join()
    store = weft.Store(KEYS, 2)
    store.barrier()
    if comm.rank == 0:
        raise RuntimeError("mine")
    with pytest.raises(weft.PeerError, match="rank 0"):
        comm.allreduce(torch.ones(1))


def test_a_program_that_fails_ends_although_other_hosts_go_on():
    with ranks.Job(2, fails_while_others_wait) as job:
        job.finish(expected={0: 1})
