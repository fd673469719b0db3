# SPDX-License-Identifier: Apache-2.0
"""`weft top` on one of several hosts."""

import json
import sys
import time

import host_ranks
import numpy as np
from test_jobs import environment, transport  # noqa: F401 (a fixture)
from weft.bench.bed import Bed


def work():
    import weft

    comm = weft.init().comm
    x = np.ones(1000, "f4")
    comm.allreduce(x)
    print("ready", comm.rank)
    while True:
        comm.allreduce(x)
        time.sleep(0.001)


def test_ranks_of_the_other_host_are_shown_with_their_counters(transport):  # noqa: F811
    more = environment(transport, WEFT_HEARTBEAT="100ms", WEFT_JOB="top-on-hosts")
    with Bed(hosts=2) as bed, host_ranks.Job(bed, work, each=[1, 2], environment=more) as job:
        for rank in job.ranks:
            rank.line("ready")
        command = [sys.executable, "-m", "weft", "top", "--json", "--job", "top-on-hosts"]
        end = time.monotonic() + 60
        while True:
            done = bed.popen(0, [*command, "--interval", "0.5"], stdout=-1, stderr=-1)
            out, err = done.communicate(timeout=60)
            view = json.loads(out) if done.returncode == 0 else {"ranks": []}
            rows = view["ranks"]
            if rows and all(row["operations_per_s"] for row in rows):
                break
            assert time.monotonic() < end, (out, err)
        assert [row["here"] for row in rows] == [True, False, False]
        assert all("allreduce of 1000 f32" in row["doing"] for row in rows)
        assert view["job"]["hosts"] == 2
        assert all(row["age_s"] < 30 for row in rows)
