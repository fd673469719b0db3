# SPDX-License-Identifier: Apache-2.0
"""Regions of several jobs on one machine, of one user and of another."""

import glob
import json
import os
import pickle
import signal
import subprocess
import time

import numpy as np
import pytest
import ranks
import weft

NOBODY = 65534
SECONDS = 180


def work(mark, path):
    """Make regions full of `mark`, and see that they stay so until the file `path` is there."""
    comm = weft.init().comm
    t = weft.full((50, 8), mark, "i4", like="numpy")
    print("made", flush=True)
    over = np.zeros(1, "i4")
    while not over[0]:
        assert (weft.gather(t, np.arange(50)) == mark).all()
        assert (weft.full((50, 8), -mark, "i4", like="numpy") == -mark).all()
        over[0] = os.path.exists(path)
        comm.broadcast(over, root=0)


def test_jobs_of_one_user_do_not_meet(tmp_path):
    end = tmp_path / "end"
    with (
        ranks.Job(2, work, 3, str(end)) as first,
        ranks.Job(3, work, 4, str(end)) as second,
        ranks.Job(2, work, 5, str(end)) as killed,
    ):
        for job in (first, second, killed):
            for rank in job.ranks:
                rank.line("made")
        for which in (signal.SIGSTOP, signal.SIGKILL):  # so that none sees the other die
            killed.kill(0, which)
            killed.kill(1, which)
        killed.finish({0: -9, 1: -9})
        end.touch()
        first.finish()
        second.finish()


def tell(path):
    """Tell others where the memory is, and end when there is the file `path`."""
    comm = weft.init().comm
    t = weft.full((50, 8), 7, "i4", like="numpy")
    ticket = weft.share(t)
    mine = [
        int(os.path.basename(name))
        for name in glob.glob("/proc/self/fd/*")
        if os.path.islink(name) and "memfd" in os.readlink(name)
    ]
    about = {"pid": os.getpid(), "fds": mine, "ticket": pickle.dumps(ticket).hex()}
    print("about", json.dumps({**about, "job": os.environ["WEFT_JOB"]}), flush=True)
    while not os.path.exists(path):
        time.sleep(0.01)
    assert (t == 7).all()
    comm.barrier()


def stranger(about):
    """Another user, who knows all there is to know."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    for name in ("fd", "map_files"):
        with pytest.raises(PermissionError):
            os.listdir(f"/proc/{about['pid']}/{name}")
    for name in (*(f"fd/{n}" for n in about["fds"]), "mem"):
        with pytest.raises(PermissionError), open(f"/proc/{about['pid']}/{name}", "rb"):
            pass
    with pytest.raises(weft.DeniedError, match="user"):
        weft.attach(pickle.loads(bytes.fromhex(about["ticket"])))
    # A job of one's own, by the same name, is another one.
    os.environ["WEFT_JOB"] = about["job"]
    t = weft.full((50, 8), 8, "i4", comm=weft.init("alone").comm, like="numpy")
    assert (t == 8).all()
    weft.finalize()
    os.environ.update(WEFT_RANK="1", WEFT_RANKS="2")
    with pytest.raises(weft.Error):
        weft.init(boot_timeout="2s")


def test_another_user_gets_nothing(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    end = tmp_path / "end"
    with ranks.Job(2, tell, str(end)) as job:
        about = json.loads(job[0].line("about"))
        assert about["fds"]
        done = subprocess.run(
            ranks.child_command(stranger, about),
            env=ranks.quiet_environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        # Whoever was turned away has not stopped it for others.
        x = weft.attach(pickle.loads(bytes.fromhex(about["ticket"])))
        assert (x == 7).all()
        end.touch()
        job.finish()
