# SPDX-License-Identifier: Apache-2.0
"""The parameter store between hosts: what it promises, and what can go wrong."""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import bodies
import host_ranks
import launched
import numpy as np
import pytest
import test_jobs
import test_mpi
import waiting
import weft

TESTS = pathlib.Path(__file__).parent.parent
PROMISES = TESTS / "python"
sys.path.append(str(PROMISES))

KEYS, LENGTH = 60, 4
HOST_TIMEOUT = test_jobs.HOST_TIMEOUT

transport = test_jobs.transport  # skips where two hosts cannot be one job
mpi = test_mpi.mpi

# --- what holds while all is well ----------------------------------------------------------------


def everything_at_once(comm, steps=120):
    """Threads push, pull and set, announce keys and fetch some: afterwards totals are exact."""
    store = weft.Store(KEYS, LENGTH, dtype="int64", cache=2 * KEYS)
    pushed = np.zeros(KEYS, "i8")

    def work(number):
        mine = mix(store.worker(), np.random.default_rng([comm.rank, number]), steps)
        pushed.__iadd__(mine)

    bodies.in_two_threads(work)
    settle(store)
    comm.allreduce(pushed)
    np.testing.assert_array_equal(pull_all(store), np.tile(pushed[:, None], LENGTH))
    store.finalize()


def mix(kv, random, steps):
    """What one worker does; how often it has pushed to each key."""
    pushed, ones = np.zeros(KEYS, "i8"), np.ones((8, LENGTH), "i8")
    for step in range(steps):
        hot = random.random() < 0.5
        keys = random.integers(0, 6 if hot else KEYS, 8)
        what = random.integers(8)
        if what < 4:
            kv.push(keys, ones, async_=what < 2)
            np.add.at(pushed, keys, 1)
            rows = kv.pull(keys)
            assert (rows == rows[:, :1]).all(), "a torn row"
            assert (rows[:, 0] >= pushed[keys]).all(), "an own push is not seen"
        elif what < 7:
            kv.intent(keys, step + 2, step + 4 + int(what) * 3)
        elif random.integers(16) == 0:
            kv.localize(keys[:1])
        kv.advance_clock()
    kv.wait_all()
    kv.close()
    return pushed


def settle(store):
    store.wait_all()
    for _ in range(2):
        store.wait_sync()
        store.barrier()


def pull_all(store):
    return store.pull(np.arange(KEYS))


def promises():
    """The bodies of the tests between pretended hosts, on real ones."""
    import test_store_hosts

    test_store_hosts.on_hosts(pretended=False)
    everything_at_once(weft.world().comm)


def test_the_store_keeps_its_promises_between_hosts(bed, transport):
    host_ranks.run(bed, promises, environment=test_jobs.environment(transport))
    assert min(bed.bytes(1)) > 100_000


def count_pushes():
    everything_at_once(weft.init().comm)


@pytest.mark.bed(hosts=4)
@pytest.mark.parametrize("each", [1, [2, 0, 1, 3]], ids=str)
def test_totals_are_exact_on_any_number_of_ranks_of_each_host(bed, transport, each):
    host_ranks.run(bed, count_pushes, each=each, environment=test_jobs.environment(transport))


def say_nothing():
    """Messages of the store while nothing changes: first without intents, then with copies."""
    comm = weft.init().comm
    store = weft.Store(KEYS, LENGTH, init=1, cache=2 * KEYS)
    if comm.rank == 0:
        store.push(np.arange(KEYS), np.ones((KEYS, LENGTH), "f4"))
    for wanted in (False, True):
        if wanted:
            store.intent(np.arange(KEYS), 0, sys.maxsize)
            while store.pull_if_local(np.arange(KEYS)) is None:
                store.wait_sync()
        settle(store)
        settle(store)
        comm.barrier()
        before, rounds = store.stats()["messages"], store.stats()["rounds"]
        end = time.monotonic() + 30
        while wanted and store.stats()["rounds"] < rounds + 20 and time.monotonic() < end:
            time.sleep(0.01)
        print("said", store.stats()["messages"] - before, flush=True)
        comm.barrier()
    store.finalize()


def test_rounds_in_which_nothing_changes_send_nothing(bed, transport):
    env = test_jobs.environment(transport)
    said = host_ranks.run(bed, say_nothing, environment=env)
    assert [line.split() for text in said for line in text.splitlines()] == [["said", "0"]] * 4


# --- what can go wrong ---------------------------------------------------------------------------


def say(*words):
    """Print a line at once: print() writes each word by itself, and another thread between them."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Watcher:
    """A rank that uses the store until it is told of a death, or until there is the file `end`."""

    def __init__(self, end):
        self.end = pathlib.Path(end)
        self.comm = weft.init().comm
        self.store = weft.Store(KEYS, LENGTH, dtype="int64", cache=2 * KEYS)
        self.random = np.random.default_rng(self.comm.rank)
        self.done = 0
        self.told = None
        # Pushes to each key that were begun, in memory that outlives a rank which is killed.
        self.begun = np.lib.format.open_memmap(
            self.end.with_name(f"begun-{self.comm.rank}.npy"), "w+", "i8", (KEYS,)
        )
        # The first half of the keys is used by all; of the others each host keeps its own.
        quiet = range(KEYS // 2, KEYS)
        self.here = np.array([k for k in quiet if self.store.pull_if_local([k]) is not None])
        self.store.barrier()
        print("started", flush=True)

    def ask(self, call, *words):
        """Call; the first death that is told of is printed. Was it done?"""
        try:
            call(*words)
        except weft.PeerError as error:
            if self.told is None:
                self.told = str(error)
                say("told", error)
            return False
        return True

    def wait_for(self, victim):
        """Say when, and how, a message from it fails."""

        def work():
            try:
                self.comm.recv(np.zeros(1), victim)
            except weft.PeerError as error:
                say("heard", time.monotonic(), error)

        if self.comm.rank != victim:
            threading.Thread(target=work, daemon=True).start()

    def draw(self):
        return self.random.integers(0, KEYS // 2, 4)

    def push(self, keys):
        """Add 1 to their rows."""
        np.add.at(self.begun, keys, 1)
        self.store.push(keys, np.ones((len(keys), LENGTH), "i8"))

    def step(self, number):
        """Push to keys of all hosts, which are copied, moved or far."""
        store, keys = self.store, self.draw()
        self.ask(store.intent, self.draw(), number + 2, number + 6)
        self.done += 4 * self.ask(self.push, keys)
        self.ask(store.pull, self.draw())
        store.advance_clock()

    def until_ended(self):
        number = 0
        while not self.end.exists():
            self.step(number)
            number += 1
            time.sleep(0.001)

    def stay(self):
        """Others may need rows of this host until all have come so far."""
        print("went on", flush=True)
        while not self.end.with_name("leave").exists():
            time.sleep(0.01)

    def check_rows_of_this_host(self):
        """They are read and written in place."""
        before = self.store.pull_if_local(self.here)
        assert before is not None, "the rows of this host are there"
        self.push(self.here)
        assert (self.store.pull_if_local(self.here) >= before + 1).all()

    def check_that_nothing_counts_twice(self, rows):
        """A row has no more than was begun by all ranks, the dead one too, until it is read."""
        begun = sum(np.load(path) for path in self.end.parent.glob("begun-*.npy"))
        assert (rows[:, 0] <= begun).all(), f"{rows[:, 0]} of {begun} pushes"


def survive(end, victim, shared=True):
    """Outlive a rank: all keys are there if it shared its host, and else those of other hosts."""
    watcher = Watcher(end)
    watcher.wait_for(victim)
    watcher.until_ended()
    # What was lost with a server is told by wait_sync, once.
    while not watcher.ask(watcher.store.wait_sync):
        pass
    if shared:
        rows = pull_all(watcher.store)
        assert (rows == rows[:, :1]).all(), "a torn row"
        watcher.check_that_nothing_counts_twice(rows)
    watcher.check_rows_of_this_host()
    watcher.stay()


def overloaded():
    """Do more threads want to run than there are cores, or did they in the last minute?"""
    words = pathlib.Path("/proc/loadavg").read_text().split()
    wanting = max(float(words[0]), int(words[3].partition("/")[0]))
    return wanting > len(os.sched_getaffinity(0))


@pytest.mark.bed(hosts=3)
@pytest.mark.parametrize("victim", range(5))
def test_a_killed_rank_is_named_by_all_and_the_next_one_serves_its_host(bed, transport, victim):
    """Within a second; where ranks have to wait for a core, within ten.

    Hosts of one machine have one monotonic clock. Rank 4 is alone on its host, which stays there.
    """
    end, survivors = bed.shared / "end", [rank for rank in range(5) if rank != victim]
    words = (survive, transport, str(end), victim, victim != 4)
    with test_jobs.started(bed, *words, each=[2, 2, 1]) as job:
        begun = [bed.shared / f"begun-{rank}.npy" for rank in range(5)]
        waiting.until(lambda: all(np.load(file).sum() > 100 for file in begun), "ranks push")
        struck = time.monotonic()
        job.kill(victim)
        heard = [job[rank].line("heard") for rank in survivors]
        assert all(f"rank {victim} " in text for text in heard), heard
        late = max(float(text.split()[0]) for text in heard) - struck
        print(f"heard after {late:.3f} s")
        assert late < (10 if overloaded() else 1), heard
        end.touch()
        for rank in survivors:
            job[rank].line("went on")
        (bed.shared / "leave").touch()
        job.finish({victim: -signal.SIGKILL})


def outlive_host(end):
    """Outlive whole hosts: rows of this one are there, others are told of by name."""
    watcher = Watcher(end)
    while watcher.told is None:
        watcher.step(watcher.store.current_clock)
    watcher.check_rows_of_this_host()
    watcher.stay()


@pytest.mark.bed(hosts=3)
@pytest.mark.parametrize("host", [0, 2])
def test_a_host_that_is_switched_off_is_named_and_the_rows_of_others_stay(bed, transport, host):
    end, settings = bed.shared / "end", {"HOST_TIMEOUT": HOST_TIMEOUT}
    with test_jobs.started(bed, outlive_host, transport, str(end), **settings) as job:
        bed.kill(host)
        for rank in job.ranks:
            if rank.number != host:
                assert f"host{host}" in rank.line("told")
                rank.line("went on")
        (bed.shared / "leave").touch()
        job.finish({host: -signal.SIGKILL})


@pytest.mark.bed(hosts=3)
def test_a_host_whose_cable_is_cut_goes_on_with_its_own_rows_and_so_do_the_others(bed, transport):
    end, settings = bed.shared / "end", {"HOST_TIMEOUT": HOST_TIMEOUT}
    with test_jobs.started(bed, outlive_host, transport, str(end), **settings) as job:
        bed.cut(1)
        for rank in job.ranks:
            assert "host" in rank.line("told")
            rank.line("went on")
        (bed.shared / "leave").touch()
        job.finish()


def count_exactly(end):
    """No operation fails, and what all ranks have pushed is there, once."""
    watcher = Watcher(end)
    watcher.until_ended()
    store, comm = watcher.store, watcher.comm
    settle(store)
    assert watcher.told is None
    pushed = np.array([watcher.done])
    comm.allreduce(pushed)
    rows = pull_all(store)
    assert (rows == rows[:, :1]).all(), "a torn row"
    assert rows[:, 0].sum() == pushed[0]
    store.finalize()


def until_sent(bed, host, packets, what):
    """Wait until a host has sent so many more."""
    before = bed.packets(host)[0]
    waiting.until(lambda: bed.packets(host)[0] >= before + packets, what)


def cut_and_mend(bed, seen=False):
    bed.cut(1, seen=seen)
    until_sent(bed, 0, 2, "packets are sent again")
    bed.mend(1)
    until_sent(bed, 1, 20, "the host is heard again")


@pytest.mark.bed(hosts=3)
@pytest.mark.parametrize("seen", [False, True])
def test_a_cable_that_is_cut_and_mended_in_time_costs_no_push(bed, transport, seen):
    end, settings = bed.shared / "end", {"HOST_TIMEOUT": 60}
    with test_jobs.started(bed, count_exactly, transport, str(end), **settings) as job:
        for _ in range(2):
            cut_and_mend(bed, seen)
        end.touch()
        job.finish()


# --- a host that is slow -------------------------------------------------------------------------

PORTION = 400  # local accesses between two looks at the clock
PORTIONS = 200  # with and without a slow host: they last longer than several of its pauses


def access_locally(folder, slow):
    """Local accesses while others want the same keys, at full speed and with a slow host.

    Rank `slow` pushes to keys of all hosts. The others read and write keys of their own host, some
    of which the slow one has copies of.
    """
    comm = weft.init().comm
    store = weft.Store(KEYS, LENGTH, dtype="int64", cache=2 * KEYS)
    begin, end = pathlib.Path(folder) / "slow", pathlib.Path(folder) / "end"
    store.localize(np.arange(KEYS)[comm.rank :: comm.size])
    mine = np.arange(KEYS)[comm.rank :: comm.size]
    store.barrier()
    if comm.rank == slow:
        store.intent(np.arange(KEYS)[::2], 0, sys.maxsize)
    print("started", flush=True)
    ones = np.ones((len(mine), LENGTH), "i8")
    times = {False: [], True: []}
    while not end.exists():
        slowed = begin.exists()
        if comm.rank == slow:
            store.push(np.arange(KEYS), np.ones((KEYS, LENGTH), "i8"))
            continue
        start = time.monotonic()
        for _ in range(PORTION // 2):
            store.push(mine, ones)
            assert store.pull_if_local(mine) is not None
        times[slowed].append(time.monotonic() - start)
        if len(times[slowed]) == PORTIONS:
            print("measured", slowed, flush=True)
    comm.barrier()
    settle(store)
    if comm.rank != slow:
        # A slow host that is waited for is so for nine tenths of the time; other programs of the
        # machine take less of it.
        print("quartile", *(np.quantile(took, 0.25) for took in times.values()), flush=True)
    store.finalize()


class SlowDown:
    """A process gets a tenth of its time: it is stopped for 90 of each 100 ms."""

    def __init__(self, pid):
        self._pid, self._over = pid, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._over.is_set():
            os.kill(self._pid, signal.SIGSTOP)
            self._over.wait(0.09)
            os.kill(self._pid, signal.SIGCONT)
            self._over.wait(0.01)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


@pytest.mark.bed(hosts=3)
def test_a_host_that_is_ten_times_slower_does_not_slow_the_local_accesses_of_others(bed, transport):
    with test_jobs.started(bed, access_locally, transport, str(bed.shared), 2) as job:
        for rank in job.ranks[:2]:
            rank.line("measured False")
        with SlowDown(job[2].process.pid):
            (bed.shared / "slow").touch()
            for rank in job.ranks[:2]:
                rank.line("measured True")
        (bed.shared / "end").touch()
        said = job.finish()
    for text in said[:2]:
        line = next(line.split() for line in text.splitlines() if line.startswith("quartile"))
        before, slowed = map(float, line[1:])
        assert slowed < 3 * before + 1e-3, text


def fetch_beside_a_stopped_host(folder):
    """A round waits for a key of a host that is stopped: keys of other hosts come all the same."""
    comm = weft.init().comm
    store = weft.Store(KEYS, LENGTH, init=1)
    store.barrier()
    print("started", flush=True)
    stopped = pathlib.Path(folder) / "stopped"
    while comm.rank == 0 and not stopped.exists():
        time.sleep(0.01)
    if comm.rank == 0:
        rounds = store.stats()["rounds"]
        store.intent([2], 0, sys.maxsize)  # of host 2, since key k begins on host k % 3
        while store.stats()["rounds"] == rounds:
            time.sleep(0.001)
        store.intent([1], 0, sys.maxsize)
        while store.pull_if_local([1]) is None:
            time.sleep(0.001)
        assert store.pull_if_local([2]) is None
        print("came", flush=True)
    store.finalize()


@pytest.mark.bed(hosts=3)
def test_keys_of_other_hosts_come_while_one_host_is_stopped(bed, transport):
    work = (fetch_beside_a_stopped_host, transport, str(bed.shared))
    with test_jobs.started(bed, *work) as job:
        slow = job[2].process
        slow.send_signal(signal.SIGSTOP)
        waiting.until(lambda: test_jobs.state(slow.pid) == "T", "the rank is stopped")
        (bed.shared / "stopped").touch()
        job[0].line("came", seconds=60)
        slow.send_signal(signal.SIGCONT)
        job.finish()


# --- over MPI ------------------------------------------------------------------------------------


def promises_and_trouble(end):
    """What holds while all is well, and then exact totals until there is the file `end`."""
    promises()
    pathlib.Path(end).with_name("well").touch()
    count_exactly(end)


def use_until_killed(end):
    """Each rank says who it is, and uses the store until somebody ends it."""
    watcher = Watcher(end)
    watcher.end.with_name(f"pid-{watcher.comm.rank}").write_text(str(os.getpid()))
    watcher.until_ended()


def python_of(bed, host):
    """The rank of a host, beside the daemons that have started it."""
    names = {}
    for pid in bed.processes(host):
        with contextlib.suppress(OSError):  # one that has just ended
            names[pid] = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    found = [pid for pid, name in names.items() if "python" in name]
    assert len(found) == 1, names
    return found[0]


def program_of(function, end):
    """The text of a program for mpirun."""
    folders = [str(TESTS / name) for name in ("hosts", "python", "support")]
    text = f"import sys; sys.path[:0] = {folders}; import test_hosts_store as t; "
    return text + f"t.{function.__name__}({str(end)!r})"


def test_the_store_keeps_its_promises_over_the_mpi_that_started_the_ranks(mpi, bed):
    """With a cable cut and mended, and with a slow host; mpirun ends a job in which a rank dies."""
    end = bed.shared / "end"
    program = program_of(promises_and_trouble, end)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        job = pool.submit(mpi, program, each=1, timeout=400)
        well = bed.shared / "well"
        waiting.until(lambda: job.done() or well.exists(), "promises are kept", seconds=300)
        if not job.done():
            cut_and_mend(bed)
            with SlowDown(python_of(bed, 1)):
                until_sent(bed, 1, 100, "the slow host goes on")
        end.touch()
        job.result()
    assert min(bed.bytes(1)) > 100_000


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("which", ["openmpi", "mpich"])
def test_mpirun_ends_a_job_of_a_store_in_which_a_rank_dies(bed, which, victim):
    """In time, with a status that says so, and no process is left on any host."""
    if (why := launched.lacks(which)) is not None:
        pytest.skip(why)
    program = program_of(use_until_killed, bed.shared / "end")
    words = launched.command(which, bed, [2, 2], [sys.executable, "-c", program])
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    launcher = bed.popen(0, words, **pipes)
    shown = [bed.shared / f"pid-{rank}" for rank in range(4)]
    waiting.until(lambda: all(file.exists() for file in shown), "all ranks use the store")
    bed.popen(victim, ["kill", "-KILL", shown[2 * victim].read_text()]).wait()
    said, _ = launcher.communicate(timeout=60)
    assert launcher.returncode != 0, said
    waiting.until(lambda: not any(map(bed.processes, range(len(bed)))), "all processes have ended")


# --- the benchmark -------------------------------------------------------------------------------


def test_a_tiny_run_of_the_benchmark_has_every_case_and_counts_the_bytes(transport, monkeypatch):
    pytest.importorskip("torch")
    from weft.bench.runner import Options
    from weft.bench.store import cases, network, run

    monkeypatch.setattr(run, "NETWORK_PLAN", ((1, 20, 5, 0.1),) * 2)
    monkeypatch.setattr(network, "ZIPF_KEYS", 20_000)
    outcome = run.measure(Options(quick=True, ops=("network",), sizes=(64,), rounds=1))
    assert not outcome.failed and not outcome.missing
    measured = {(block.case.op, block.system) for block in outcome.blocks}
    pulls = {(op, "weft") for op in cases.NET} | {(cases.NET_ONE, "tcp"), (cases.NET_BATCH, "tcp")}
    others = {(op, "transport") for op in (cases.NET_ONE, cases.NET_DEPTH)}
    others |= {(cases.NET_DEPTH, "gathered")}
    assert measured == pulls | others | {(cases.NET_STREAM, "one-host")}
    sent = {row["case"]: row["value"] for row in outcome.ready if "value" in row}
    assert sent["bytes for each byte of rows of 64 B, 1000 keys a call"] > 1, "not on the cable"
