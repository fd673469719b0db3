# SPDX-License-Identifier: Apache-2.0
"""Training by torchrun on several hosts: parameters end where those of one host do."""

import pathlib
import subprocess
import sys

import pytest
import test_jobs

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent / "torch"))

transport = test_jobs.transport  # skips where two hosts cannot be one job


def train_on(bed, each, settings):
    """By torchrun on all hosts; the files that ranks have left."""
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(bed))]
    agent += ["--nproc-per-node", str(each), "--rdzv-backend", "c10d"]
    agent += ["--rdzv-endpoint", "host0:29400", HERE / "training.py", bed.shared]
    env = {**settings, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": env}
    agents = [bed.popen(host, agent, **pipes) for host in range(len(bed))]
    said = [child.communicate(timeout=180)[0] for child in agents]
    assert [child.returncode for child in agents] == [0] * len(bed), said
    return [bed.shared / f"rank{rank}" for rank in range(len(bed) * each)]


def test_training_under_torchrun_on_two_hosts_ends_where_one_host_does(bed, transport):
    """Every parameter: ranks of a job have the same bits, jobs differ by the order of additions."""
    torch = pytest.importorskip("torch")
    import groups
    import training

    on_one = groups.run(4, training.in_group)
    on_two = [torch.load(file) for file in train_on(bed, 2, test_jobs.environment(transport))]
    assert min(bed.bytes(1)) > 5 * 8 * 2 * 67 * 129  # gradients have crossed
    plain = training.plain()
    for way in training.WAYS:
        one, two = ([rank[way.__name__] for rank in job] for job in (on_one, on_two))
        for parameters in (one, two):
            for others in parameters[1:]:
                torch.testing.assert_close(others, parameters[0], rtol=0, atol=0)
        torch.testing.assert_close(two[0], one[0], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(two[0], plain, rtol=1e-9, atol=1e-12)
