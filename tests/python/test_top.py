# SPDX-License-Identifier: Apache-2.0
"""`weft top`: a running job seen from outside."""

import fcntl
import json
import os
import pwd
import random
import signal
import subprocess
import sys
import time

import bodies
import numpy as np
import pytest
import ranks
import terminal
import weft
from weft import _core
from weft.top import find, page, sample

FULL = os.environ.get("WT_FULL") == "1"
# Viewers must be on the host that the ranks are on.
pytestmark = pytest.mark.skipif(
    bool(os.environ.get("WT_HOSTS")), reason="the viewer is on no host of the bed"
)


def top(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "weft", "top", *arguments],
        env={**ranks.quiet_environment()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **more,
    )


def seen(job, interval=0.2):
    """What --once --json prints of a test's job."""
    done = top("--once", "--json", "--pid", str(job[0].process.pid), "--interval", str(interval))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def until(job, holds, what):
    """Look until something is so; fail with the last view."""
    end = time.monotonic() + 60
    board = find.by_pid(job[0].process.pid)
    old = view = None
    while time.monotonic() < end:
        new = sample.look(board)
        view = sample.between(old, new)
        if old is not None and holds(view):
            board.close()
            return view
        old = new
        time.sleep(0.1)
    raise AssertionError(f"never {what}: {json.dumps(view, indent=1)}")


def late_rank():
    """The last rank comes late to each collective."""
    comm = weft.init().comm
    x = np.ones(4, "f4")
    comm.allreduce(x)
    print("ready", comm.rank)
    while True:
        if comm.rank == comm.size - 1:
            time.sleep(0.02)
        comm.allreduce(x)


def with_things():
    """A region and a store, of which one key is used more than the others."""
    comm = weft.init().comm
    region = weft.table((100, 16), dtype="float32")
    store = weft.Store(1000, 8)
    keys = np.arange(100)
    keys[::2] = 7
    weft.gather(region, np.arange(10))
    shared = comm.empty(100_000, "f4", like="numpy")
    print("ready", comm.rank, shared.nbytes)
    while True:
        time.sleep(0.001)
        values = store.pull(keys)
        store.push(keys, values * 0 + 1)
        weft.gather(region, np.arange(10))


def with_copies():
    """Two pretended nodes want half of the keys for ever, and use all of them."""
    os.environ["WEFT_NODE"] = "ab"[int(os.environ["WEFT_RANK"])]
    comm = weft.init().comm
    store = weft.Store(100, 8, cache=100)
    keys = np.arange(100)
    ones = np.ones((100, 8), "f4")
    store.localize(keys[comm.rank : 50 : 2])  # where they are, so that the others are copied
    store.barrier()
    store.localize(keys[:50])
    print("ready", comm.rank)
    while True:
        time.sleep(0.001)
        store.push(keys, ones)
        store.pull(keys)


def ending(may_end):
    """Ranks leave one after the other once there is the file `may_end`."""
    comm = weft.init().comm
    comm.barrier()
    print("ready", comm.rank)
    while not os.path.exists(may_end):
        time.sleep(0.01)
    time.sleep(0.3 * comm.rank)
    weft.finalize()


def started(size, body, *args, **environment):
    job = ranks.Job(size, body, *args, environment=environment)
    try:
        for rank in job.ranks:
            rank.line("ready")
    except AssertionError:
        job.__exit__()
        raise
    return job


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_operations_and_bytes_of_every_rank_are_counted(size):
    with started(size, bodies.reduce_for_ever) as job:
        view = seen(job)
        assert view["version"] == 1
        assert view["job"]["size"] == len(view["ranks"]) == size
        assert [row["pid"] for row in view["ranks"]] == [r.process.pid for r in job.ranks]
        for row in view["ranks"]:
            assert row["state"] in ("running", "waiting")
            assert row["operations"] > 1
            assert row["bytes"] >= 4000 * (row["operations"] - 2)
            assert "allreduce of 1000 f32" in row["doing"]
        assert all(r.process.poll() is None for r in job.ranks)
        until(job, lambda v: all(r["bytes_per_s"] > 0 for r in v["ranks"]), "bytes a second")


def test_a_stopped_rank_is_the_one_that_the_others_wait_for():
    with started(3, bodies.reduce_for_ever) as job:
        job.kill(1, signal.SIGSTOP)
        view = until(job, lambda v: v["ranks"][0]["waits_for"] == 1, "waits for rank 1")
        assert view["ranks"][1]["state"] == "stopped"
        view = until(job, lambda v: (v["slow_rank"] or {}).get("rank") == 1, "slow")
        assert view["slow_rank"]["late_share"] > 0.05
        assert view["ranks"][2]["waits_s"] > 0
        job.kill(1, signal.SIGCONT)
        until(job, lambda v: v["ranks"][1]["operations_per_s"] > 0, "going on")


def test_a_rank_that_comes_late_is_slow():
    with started(3, late_rank) as job:
        view = until(job, lambda v: (v["slow_rank"] or {}).get("rank") == 2, "rank 2 is slow")
        assert view["ranks"][0]["wait_share"] > 0


def test_a_dead_rank_is_dead_and_the_view_goes_on():
    with started(2, bodies.reduce_for_ever) as job:
        board = find.by_pid(job[0].process.pid)
        job.kill(1)
        job[1].process.wait()
        job[0].process.wait(60)  # it fails with the other
        view = sample.between(None, sample.look(board))
        assert view["ranks"][1]["state"] == "dead"
        assert view["job"]["ended"]
        board.close()
        assert top("--pid", str(job[0].process.pid)).returncode == 2


def test_regions_and_stores_are_shown():
    with started(2, with_things) as job:
        view = until(
            job,
            lambda v: v["stores"] and v["stores"][0]["pulls_per_s"] > 0 and v["stores"][0]["hot"],
            "pulls",
        )
        (region,) = view["regions"]
        assert region["shape"] == [100, 16]
        assert region["type"] == "f32"
        assert region["bytes"] == 6400
        assert region["bytes_of_rank"] == {"0": 3200, "1": 3200}
        assert region["kind"] == "mapped"
        (store,) = view["stores"]
        assert store["keys"] == 1000
        assert store["length"] == 8
        assert store["local_share"] == 1.0
        view = until(job, lambda v: v["stores"][0]["hot"][0]["share"] > 0.3, "hot")
        assert view["stores"][0]["hot"][0]["key"] == 7
        assert view["ranks"][1]["keys_per_s"] > 0
        arena = view["ranks"][1]["arena"]
        assert arena["in_use"] >= 400_000 and arena["blocks"] >= 1
        assert arena["room"] >= arena["in_use"] + arena["kept"]
        text = "\n".join(page.lines(view))
        assert " arena " in text
        assert "hot keys" in text and "100 x 16 f32" in text


def on_nodes():
    os.environ["WEFT_NODE"] = "ab"[int(os.environ["WEFT_RANK"]) % 2]
    with_things()


@pytest.mark.over("nodes")
def test_pretended_nodes_are_seen_together():
    with started(3, on_nodes, WEFT_HEARTBEAT="100ms") as job:
        view = until(
            job,
            lambda v: (
                all(r["operations"] > 0 for r in v["ranks"])
                and v["stores"][0]["messages_per_s"] > 0
            ),
            "all ranks",
        )
        assert view["job"]["hosts"] == 2
        assert {row["node"] for row in view["ranks"]} == {0, 1}
        assert all(row["here"] for row in view["ranks"])
        assert set(view["stores"][0]["owned_of_host"]) == {"0", "1"}


def test_copies_and_their_age_and_the_share_of_local_keys_are_shown():
    """Each node owns every other key, and has copies of what it wants of the rest."""
    with started(2, with_copies, WEFT_HEARTBEAT="100ms") as job:
        view = until(
            job,
            lambda v: (
                v["stores"][0]["copies_of_host"] == {"0": 25, "1": 25}
                and v["stores"][0]["stale_s"] > 0
                and abs((v["stores"][0]["local_share"] or 0) - 0.75) < 0.02
            ),
            "copies",
        )
        (store,) = view["stores"]
        assert store["owned_of_host"] == {"0": 50, "1": 50}
        assert store["stale_s"] < view["job"]["age_s"]
        assert store["local_share_in_all"] < 1
        assert [row["copies"] for row in view["ranks"]] == [25, 25]
        assert max(row["stale_s"] for row in view["ranks"]) == store["stale_s"]
        assert all(0 < row["local_share"] < 1 for row in view["ranks"])
        text = "\n".join(page.lines(view))
        assert f" 75%     50 {page.seconds(store['stale_s'])} " in text


def test_the_live_view_obeys_its_keys_and_fits_a_terminal_that_changes():
    with started(3, bodies.reduce_for_ever) as job:
        command = [sys.executable, "-m", "weft", "top", "--interval", "0.2"]
        command += ["--pid", str(job[0].process.pid)]
        with terminal.Terminal(command, 24, 80, ranks.quiet_environment()) as screen:
            foot = " q leave  arrows sort, scroll  p pause  +- interval  h help"
            text = screen.until(lambda text: text[-1] == foot, "the last line")
            assert text[0].startswith("weft top: ") and "every 0.2 s, by rank" in text[0]
            assert all("allreduce" in line for line in text[3:6])
            screen.press("h")
            screen.until(lambda text: text[0] == "weft top: keys", "help")
            screen.press("x")
            screen.until(lambda text: "by rank" in text[0], "the view again")
            for keys, title in (
                (["right"], "every 0.2 s, by late"),
                (["left", "left"], "every 0.2 s, by cpu"),
                (["s", "+"], "every 0.4 s, by rank"),
                (["-", "-"], "every 0.1 s, by rank"),
                (["p"], ", paused, by rank"),
            ):
                screen.press(*keys)
                screen.until(lambda text, title=title: title in text[0], title)
            paused = screen.text()
            screen.read(1)
            assert screen.text() == paused
            screen.press(" ")
            screen.until(lambda text: text[1] != paused[1], "going on")
            screen.resize(6, 30)
            screen.until(lambda text: text[5] == foot[:29], "a small terminal")
            assert screen.text()[4] == "... ranks 1 to 1 of 3"
            screen.press(*["down"] * 5)
            screen.until(lambda text: text[4] == "... ranks 3 to 3 of 3", "the last rank")
            screen.until(lambda text: text[3].split()[0] == "2", "the last rank")
            screen.press("up")
            screen.until(lambda text: text[4] == "... ranks 2 to 2 of 3", "scrolling back")
            screen.resize(40, 132)
            screen.until(lambda text: text[39] == foot, "a large one")
            assert all("allreduce" in line for line in screen.text()[3:6])
            screen.press("q")
            assert screen.wait() == 0
        with terminal.Terminal(command, 2, 9, ranks.quiet_environment()) as screen:
            screen.until(lambda text: text == ["weft top", " q leave"], "a tiny terminal")
            screen.press("q")
            assert screen.wait() == 0
        until(job, lambda v: all(r["operations_per_s"] > 0 for r in v["ranks"]), "work")


def test_it_lists_jobs_and_finds_them_by_name():
    with started(2, bodies.reduce_for_ever, WEFT_JOB="a-job-of-the-test") as job:
        done = top("--json", "--job", "a-job-of-the-test", "--interval", "0.05")
        assert done.returncode == 0, done.stderr
        view = json.loads(done.stdout)
        assert view["ranks"][1]["pid"] == job[1].process.pid
        by_launcher = top("--json", "--pid", str(os.getpid()), "--interval", "0.05")
        assert json.loads(by_launcher.stdout)["job"]["id"] == view["job"]["id"]
        by_id = top("--job", view["job"]["id"], "--interval", "0.05")
        assert "a-job-of-the-test, 2 ranks" in by_id.stdout
        with started(1, bodies.reduce_for_ever):
            done = top("--pid", str(os.getpid()))
            assert done.returncode == 2 and "has started 2 jobs; weft top lists" in done.stderr
            done = top("--json")
            assert "a-job-of-the-test" in [row["name"] for row in json.loads(done.stdout)["jobs"]]
    done = top("--job", "a-job-of-the-test")
    assert done.returncode == 2 and "no job of yours fits 'a-job-of-the-test'" in done.stderr
    assert "no process" in top("--pid", "999999999").stderr
    assert "in no job" in top("--pid", str(os.getpid())).stderr


def test_another_user_is_refused():
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    nobody = pwd.getpwnam("nobody").pw_uid
    script = (
        "import os,sys\nfrom weft.top import Refused, find\n"
        f"os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})\n"
        "try: find.by_pid(int(sys.argv[1]))\n"
        "except Refused as error: print('refused:', error)\n"
        "print(len([1 for j in find.jobs() if int(sys.argv[1]) in j.pids.values()]), 'seen')\n"
        "try: os.listdir(f'/proc/{sys.argv[1]}/fd')\n"
        "except PermissionError: print('the kernel refuses, too')\n"
    )
    with started(1, bodies.reduce_for_ever) as job:
        done = subprocess.run(
            [sys.executable, "-c", script, str(job[0].process.pid)],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        assert "refused: process" in done.stdout, done.stdout + done.stderr
        assert "belongs to root, and you are nobody" in done.stdout
        assert "0 seen" in done.stdout
        assert "the kernel refuses, too" in done.stdout


def test_attaching_and_leaving_many_times_harms_nothing():
    times = 1000 if FULL else 30
    with started(3, bodies.reduce_for_ever) as job:
        fds = [len(os.listdir(f"/proc/{rank.process.pid}/fd")) for rank in job.ranks]
        for i in range(times):
            board = find.by_pid(job[i % 3].process.pid)
            assert len(board.read()["ranks"]) == 3
            board.close()
        after = [len(os.listdir(f"/proc/{rank.process.pid}/fd")) for rank in job.ranks]
        assert fds == after
        view = until(job, lambda v: all(r["operations_per_s"] > 0 for r in v["ranks"]), "work")
        assert all(row["state"] in ("running", "waiting") for row in view["ranks"])


def test_viewers_that_are_killed_harm_nothing():
    code = (
        "import sys\nfrom weft.top import find\njob = find.by_pid(int(sys.argv[1]))\n"
        "print('looks', flush=True)\nwhile True: job.read()\n"
    )
    with started(2, bodies.reduce_for_ever) as job:
        for _ in range(20 if FULL else 3):
            command = [sys.executable, "-c", code, str(job[0].process.pid)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as viewer:
                assert viewer.stdout.readline() == "looks\n"
                viewer.kill()
        until(job, lambda v: all(r["operations_per_s"] > 0 for r in v["ranks"]), "work")


def test_a_job_that_ends_meanwhile_is_seen_to_its_end(tmp_path):
    may_end = tmp_path / "may end"
    with started(3, ending, str(may_end)) as job:
        board = find.by_pid(job[2].process.pid)
        script = find.program(job[2].process.pid)
        may_end.touch()
        while not sample.has_ended(sample.look(board)):
            time.sleep(0.01)
        job.finish()
        view = sample.between(None, sample.look(board))
        assert [row["state"] for row in view["ranks"]] == ["left"] * 3
        assert script and view["job"]["program"] == script
        board.close()


def forks():
    weft.init()
    if os.fork() == 0:
        print("child", find._boards(os.getpid()))
        os._exit(0)
    os.wait()
    weft.finalize()


def test_a_forked_child_is_no_rank():
    (output,) = ranks.run(1, forks)
    assert "child []" in output


def test_garbage_in_the_boards_memory_is_refused_or_read():
    """The parser of the library, over a copy of a board that is spoilt at random."""
    weft.init()
    ours = next(path for path in find._boards(os.getpid()))
    with open(ours, "rb") as file:
        image = file.read()
    weft.finalize()
    generator = random.Random(os.environ.get("WT_SEED", "1"))
    for turn in range(300):
        spoilt = bytearray(image)
        for _ in range(generator.choice((1, 8, 2000))):
            at = generator.randrange(0 if turn % 2 else 256, len(spoilt))
            spoilt[at] = generator.randrange(256)
        fd = os.memfd_create("spoilt", os.MFD_ALLOW_SEALING)
        os.write(fd, spoilt)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        try:
            json.loads(_core.view_json(fd))
        except weft.Error:
            pass
        finally:
            os.close(fd)


def test_another_layout_is_refused_with_advice():
    weft.init()
    with open(find._boards(os.getpid())[0], "rb") as file:
        image = bytearray(file.read())
    weft.finalize()
    image[4] += 1
    fd = os.memfd_create("other", os.MFD_ALLOW_SEALING)
    os.write(fd, image)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    with pytest.raises(weft.UnsupportedError, match="use the weft of the job"):
        _core.view_json(fd)
    os.close(fd)


def test_rates_of_a_store_go_on_where_counting_begins_anew():
    store = weft.Store(100, 8)
    keys = np.arange(50)
    with open(find._boards(os.getpid())[0], "rb") as file:
        job = find.Job(os.dup(file.fileno()))
    store.push(np.tile(keys, 4), np.ones((200, 8), "f4"))
    old = sample.look(job)
    store.reset_stats()
    store.push(keys, np.ones((50, 8), "f4"))
    view = sample.between(old, sample.look(job))
    assert round(view["stores"][0]["pushes_per_s"] * view["interval_s"]) == 50
    job.close()
    store.finalize()
    weft.finalize()


def row(rank, **more):
    return {
        "rank": rank, "pid": 10000 + rank, "host": "somewhere", "node": 0, "here": True,
        "age_s": 0.0, "doing": "allreduce of 1000 f32, sum, number 7 on communicator 2",
        "waits_for": None, "waits_s": None, "operations": 5, "bytes": 6, "state": "running",
        "arena": {"room": 1 << 40, "in_use": 5, "kept": 7, "blocks": 1} if rank % 3 else None,
        "operations_per_s": 12345.6, "bytes_per_s": 7.8e9, "wait_share": 0.5, "late_share": 0.0,
        "cpu": 1.0, "rss_bytes": 1, "keys_per_s": 0.0, "local_share": None, **more,
    }  # fmt: skip


@pytest.mark.parametrize("size", [(80, 24), (140, 40), (20, 5), (1, 1)])
@pytest.mark.parametrize("count", [1, 5, 200])
def test_a_page_fits_its_terminal(size, count):
    width, height = size
    view = {
        "job": {"id": "0", "name": "n", "program": "p.py", "age_s": 5000.0, "hosts": 2,
                "size": count, "ended": False},
        "slow_rank": {"rank": 0, "late_share": 0.5},
        "ranks": [row(i) for i in range(count)], "stores": [], "regions": [], "unknown": ["x"],
    }  # fmt: skip
    for sort in page.SORTS:
        text = page.fit(view, size, sort, start=3)
        assert len(text) <= height
        assert all(len(line) <= width for line in text)


def test_each_rank_can_be_scrolled_to():
    view = {
        "job": {"id": "0", "name": "n", "program": "p.py", "age_s": 5.0, "hosts": 1, "size": 9,
                "ended": False},
        "slow_rank": None,
        "ranks": [row(i) for i in range(9)], "stores": [], "regions": [], "unknown": ["x"],
    }  # fmt: skip
    for height in range(4, 16):
        seen, start = set(), 0
        for _ in range(9):
            text = page.fit(view, (80, height), start=start)
            pids = [line.split()[1] for line in text[3:] if line.split()[1:2]]
            seen |= {pid for pid in pids if pid.startswith("1000")}
            start = page.first(view, height, start + 1)
        assert len(seen) == 9, height
        assert page.first(view, height, 99) == start


def test_numbers_are_short():
    assert [page.short(n) for n in (0, 7, 999, 1000, 123456, 7.8e9, None)] == [
        "0", "7", "999", "1k", "123k", "7.8G", "-",
    ]  # fmt: skip
