# SPDX-License-Identifier: Apache-2.0
"""Checks on a GPU whose ranks are fresh processes: CUDA never starts in the parent.

A check that fails does not keep the others from running.
"""

import subprocess
import sys
import time


def run_ranks(commands, deadline):
    """A process for each (command, environment); the output of those that failed, or nothing."""
    end = time.monotonic() + deadline
    processes = [
        subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for command, env in commands
    ]
    bad = []
    for number, process in enumerate(processes):
        try:
            text, _ = process.communicate(timeout=max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            text = process.communicate()[0] + "\nkilled: it took too long"
        if process.returncode != 0:
            bad.append(f"rank {number}:\n{text}")
    return "\n".join(bad)


# In a process of its own, so that CUDA does not start here.
PROBE = """
import sys
try:
    import torch
    {needed}
except (ImportError, AttributeError) as error:
    sys.exit(f"skipped: {{error}}")
if not torch.cuda.is_available():
    sys.exit("skipped: torch sees no GPU")
"""


def run_all(names, ranks_of_each, run_check, needed):
    """Exit code: 77 if there is no GPU or the statement `needed` fails, 1 if a check does."""
    probe = [sys.executable, "-c", PROBE.format(needed=needed)]
    probed = subprocess.run(probe, check=False, capture_output=True, text=True)
    if probed.returncode != 0:
        print(probed.stderr.strip() or "skipped: torch or weft does not load")
        return 77
    failed = 0
    for name in names:
        for ranks in ranks_of_each:
            start = time.monotonic()
            output = run_check(name, ranks)
            failed += bool(output)
            verdict = "FAILED" if output else "ok"
            print(f"{verdict:6} {name}, {ranks} ranks, {time.monotonic() - start:.1f} s")
            if output:
                print(output)
    return 1 if failed else 0
