# SPDX-License-Identifier: Apache-2.0
"""`weft top` on one of several hosts."""

import json
import os
import secrets
import subprocess
import sys
import time

import bodies
import host_ranks
from test_jobs import environment, transport  # noqa: F401 (a fixture)
from weft.bench.bed import Bed
from weft.top import find


def test_ranks_of_the_other_host_are_shown_with_their_counters(transport):  # noqa: F811
    name = f"top-{secrets.token_hex(4)}"  # weft top outside sees other runs of this test
    more = environment(transport, WEFT_HEARTBEAT="100ms", WEFT_JOB=name)
    words = {"each": [1, 2], "environment": more}
    with Bed(hosts=2) as bed, host_ranks.Job(bed, bodies.reduce_for_ever, **words) as job:
        for rank in job.ranks:
            rank.line("ready")
        command = [sys.executable, "-m", "weft", "top", "--json", "--job", name]
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
        # From outside of the namespaces it is one job, too.
        for arguments in (command, command[:-2]):
            done = subprocess.run(
                arguments, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, done.stderr
            shown = json.loads(done.stdout)
            ids = [job["id"] for job in shown.get("jobs", [shown.get("job")])]
            assert ids.count(view["job"]["id"]) == 1
        found = find.by_pid(os.getpid())  # which has started all ranks
        found.close()
        assert (len(found.pids), len(found.elsewhere)) in ((1, 2), (2, 1))
