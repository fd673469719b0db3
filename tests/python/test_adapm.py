# SPDX-License-Identifier: Apache-2.0
"""weft.compat.adapm: programs for AdaPM's Python binding run."""

import pathlib
import secrets
import subprocess
import sys
import threading

import numpy as np
import pytest
import ranks
import weft
from weft.compat import _original, adapm

torch = pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The snippets of the document, in its order, with its own import.
PAGE = """
import sys, threading
import torch
import adapm
import numpy as np

def run(kv):
    keys = torch.LongTensor([1,2,3,4])
    values = torch.ones((len(keys)*10), dtype=torch.float32)
    kv.push(keys, values)
    kv.pull(keys, values)
    kv.set(keys, values)
    kv.localize(keys)

    keys = np.array([1,2,3,4])
    values = np.ones(len(keys)*10, dtype=np.float32)
    kv.push(keys, values)
    kv.pull(keys, values)
    kv.set(keys, values)
    kv.localize(keys)

    kv.pull(keys, values, True)
    kv.push(keys, values, True)
    kv.localize(keys, True)

    timestamp = kv.pull(keys, values, True)
    kv.wait(timestamp)
    kv.waitall()
    kv.barrier()
    kv.set(keys, np.zeros_like(values))
    kv.barrier()
    kv.push(keys, np.ones_like(values))
    kv.wait_sync()
    kv.barrier()
    kv.pull(keys, values)
    assert (values == workers).all(), values
    kv.finalize()

nodes, threads = int(sys.argv[1]), 2
workers = nodes * threads
adapm.scheduler(10, threads)
adapm.setup(10, threads)
server = adapm.Server(10)
print("rank", server.my_rank())
running = [
    threading.Thread(target=run, args=(adapm.Worker(i, server),)) for i in range(threads)
]
for thread in running: thread.start()
for thread in running: thread.join()
server.barrier()
server.shutdown()
print("the page has run")
"""


@pytest.fixture
def server(alone):
    adapm.setup(10, 1)
    made = adapm.Server(3)
    yield made
    if not made._store.closed:
        made.shutdown()


def run_pages(size, environment_of):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PAGE, str(size)],
            env={
                **ranks.quiet_environment(),
                "PYTHONPATH": str(ROOT / "compat"),
                **environment_of(rank),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    texts = [process.communicate(timeout=120)[0] for process in started]
    assert all("the page has run" in text for text in texts), texts
    assert sorted(int(text.split()[1]) for text in texts) == list(range(size))


@pytest.mark.parametrize("size", [1, 2])
def test_the_document_runs_by_its_own_name_under_a_launcher(size):
    job = {"WEFT_RANKS": str(size), "WEFT_JOB": secrets.token_hex(8)}
    run_pages(size, lambda rank: {**job, "WEFT_RANK": str(rank)})


def test_servers_of_adapms_launcher_find_each_other_and_their_ranks():
    # No port is opened: it only tells jobs apart.
    named = {"DMLC_NUM_SERVER": "2", "DMLC_PS_ROOT_URI": secrets.token_hex(8)}
    run_pages(2, lambda rank: {**named, "DMLC_ROLE": "server", "DMLC_PS_ROOT_PORT": "9091"})


def test_an_original_is_not_hidden(tmp_path, monkeypatch):
    file = str(ROOT / "compat" / "adapm" / "__init__.py")
    _original.refuse_to_shadow("adapm", file)
    (tmp_path / "adapm").mkdir()
    (tmp_path / "adapm" / "__init__.py").write_text("original = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="original 'adapm'"):
        _original.refuse_to_shadow("adapm", file)


@pytest.mark.parametrize("like", [torch.tensor, np.array])
def test_operations_return_timestamps(server, like):
    kv = adapm.Worker(0, server)
    keys = like([1, 2, 1])
    vals = like([[1.0] * 3] * 3)
    vals = vals.float() if like is torch.tensor else vals.astype("f4")
    for call in (
        lambda: kv.push(keys, vals),
        lambda: kv.push(keys, vals, True),
        lambda: kv.push(keys, vals, async_=True),
        lambda: kv.push(keys, vals, **{"async": True}),
        lambda: kv.intent(keys, 0),
        lambda: kv.intent(keys, 3, sys.maxsize),
        lambda: kv.localize(keys),
        lambda: kv.localize(keys, True),
        lambda: kv.pull(keys, vals, True),
    ):
        stamp = call()
        assert stamp == -1  # one host: it is done
        kv.wait(stamp)
    assert vals.tolist() == [[8] * 3, [4] * 3, [8] * 3]
    assert kv.set(keys, vals) == -1
    assert kv.pull(keys.astype("i4") if like is np.array else keys.int(), vals.reshape(-1)) == -1
    kv.waitall()
    with pytest.raises(TypeError, match="'now'"):
        kv.pull(keys, vals, now=True)
    with pytest.raises(ValueError, match="timestamp 5"):
        kv.wait(5)
    kv.finalize()


def test_workers_have_a_clock_and_know_their_keys(server):
    kv = adapm.Worker(0, server)
    assert kv.current_clock() == 0
    kv.advance_clock()
    assert kv.current_clock() == 1
    assert (kv.num_keys, kv.get_key_size(), kv.get_key_size(9), server.my_rank()) == (10, 3, 3, 0)
    with pytest.warns(DeprecationWarning, match="wait_sync"):
        kv.wait_replica_sync()
    kv.begin_setup()
    kv.set(torch.tensor([1]), torch.ones(3))
    kv.end_setup()
    assert server._store.stats()["pushes"] == 0
    kv.finalize()
    with pytest.raises(weft.ClosedError, match="finalized"):
        kv.finalize()
    for call in (
        lambda: kv.pull(torch.tensor([1]), torch.ones(3)),
        kv.advance_clock,
        kv.barrier,
        lambda: kv.intent([1], 0),
    ):
        with pytest.raises(weft.ClosedError, match="finalized"):
            call()
    server.shutdown()
    with pytest.raises(weft.ClosedError, match="shut down before"):
        server.shutdown()


def test_what_the_binding_took_wrongly_is_an_error_here(server):
    kv = adapm.Worker(0, server)
    keys, vals = torch.tensor([1, 2]), torch.zeros(2, 3)
    for text, bad in (
        ("float64", lambda: kv.pull(keys, vals.double())),
        ("key -1", lambda: kv.push(torch.tensor([-1, 2]), vals)),
        ("key 10", lambda: kv.set(torch.tensor([10, 2]), vals)),
        ("key 10", lambda: kv.intent(torch.tensor([10]), 0)),
        ("5 elements", lambda: kv.pull(keys, torch.zeros(5))),
        ("worker 1 is out of range", lambda: adapm.Worker(1, server)),
        ("worker 0", lambda: adapm.Worker(0, server)),
        ("some", lambda: adapm.setup(10, 1, "some")),
        ("num_threads", lambda: adapm.setup(10, 0)),
        ("value_lengths must be whole", lambda: adapm.Server(torch.full((10,), 2.5))),
        ("server is 5", lambda: adapm.Worker(0, 5)),
        ("scheme", lambda: server.enable_sampling_support("best", True, "uniform", 0, 10)),
        ("distribution", lambda: server.enable_sampling_support("naive", True, "zipf", 0, 10)),
    ):
        with pytest.raises(ValueError, match=text):
            bad()
    for text, bad in (
        ("num_keys must be a whole number", lambda: adapm.setup("5", 1)),
        ("num_threads must be a whole number", lambda: adapm.setup(5, 1.5)),
        ("local_id must be a whole number", lambda: adapm.Worker(0.0, server)),
        ("timestamp must be a whole number", lambda: kv.wait("x")),
    ):
        with pytest.raises(TypeError, match=text):
            bad()
    out = torch.zeros(3, 4).t()[:2]
    kv.push(keys, torch.ones(2, 3))
    kv.pull(keys, out)
    assert (out == 1).all()
    kv.finalize()


def test_servers_have_keys_workers_and_clocks_of_their_own(alone):
    adapm.setup(100, 1)
    entities = adapm.Server(10)
    adapm.setup(5, 2)
    relations = adapm.Server(3)
    first, second = adapm.Worker(0, entities), adapm.Worker(0, relations)
    third = adapm.Worker(1, relations)
    assert (first.num_keys, second.num_keys, third.get_key_size()) == (100, 5, 3)
    first.push([99], torch.ones(10))
    first.advance_clock()
    assert (first.current_clock(), second.current_clock()) == (1, 0)
    first.finalize()
    entities.shutdown()
    second.push([4], torch.ones(3), True)
    relations.shutdown()
    with pytest.raises(weft.ClosedError, match="this store was finalized"):
        second.push([4], torch.ones(3))


def test_a_server_needs_setup(alone, monkeypatch):
    monkeypatch.setattr(adapm, "_sizes", None)
    with pytest.raises(ValueError, match=r"adapm\.setup"):
        adapm.Server(3)


def test_a_barrier_is_over_all_threads(alone):
    adapm.setup(4, 3, "replication_only", 8)
    server = adapm.Server(1)
    kvs = [adapm.Worker(i, server) for i in range(3)]
    failures = []

    def run(kv):
        try:
            total = torch.zeros(1)
            for step in range(20):
                kv.push(torch.tensor([0]), torch.ones(1), step % 2 == 0)
                kv.barrier()
                kv.pull(torch.tensor([0]), total)
                assert total == 3 * (step + 1)
                kv.barrier()
            kv.finalize()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(kv,)) for kv in kvs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    server.shutdown()
