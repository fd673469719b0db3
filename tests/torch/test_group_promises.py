# SPDX-License-Identifier: Apache-2.0
"""The same bits on every rank and in every run; calls that differ in any way are told of."""

import os
import signal
import subprocess
import sys
import textwrap

import groups
import pytest
import torch
import torch.distributed as dist

N = 50_001  # elements; more than go with the call


def summed():
    """Of numbers whose sum depends on the order in which they are added."""
    rank, size = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(rank)
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        for n in (7, N):
            own = (torch.randn(n, generator=generator) * 10.0 ** (rank - 1)).to(dtype)
            x, y = own.clone(), own.clone()
            dist.all_reduce(x)
            dist.all_reduce(y, async_op=True).wait()
            parts = [torch.empty_like(own) for _ in range(size)]
            dist.all_gather(parts, x)
            assert torch.equal(x, y) and all(torch.equal(x, part) for part in parts)
            piece = torch.empty(n, dtype=dtype)
            dist.reduce_scatter_tensor(piece, own.repeat(size))
            assert torch.equal(x, piece)
            results.append(x)
    return results


def test_all_ranks_and_all_runs_get_the_same_bits():
    first, again = groups.run(3, summed), groups.run(3, summed)
    for ours, theirs in zip(first, again, strict=True):
        for x, y in zip(ours, theirs, strict=True):
            assert torch.equal(x, y)


def rounded():
    """256 + 1 + 1 is 258, which bfloat16 holds; 256 + 1 is rounded to 256."""
    rank = dist.get_rank()
    for n in (3, N):
        x = torch.full((n,), 256.0 if rank == 0 else 1.0, dtype=torch.bfloat16)
        dist.all_reduce(x)
        assert bool((x == 258).all())


def test_sixteen_bit_sums_are_rounded_once():
    groups.run(3, rounded)


# What rank 0 calls, and what rank 1.
PAIRS = {
    "count": (lambda: dist.all_reduce(torch.ones(3)), lambda: dist.all_reduce(torch.ones(4))),
    "type": (
        lambda: dist.all_reduce(torch.ones(3)),
        lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32)),
    ),
    "reduction": (
        lambda: dist.all_reduce(torch.ones(3)),
        lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX),
    ),
    "operation": (lambda: dist.all_reduce(torch.ones(3)), dist.barrier),
    "root": (
        lambda: dist.broadcast(torch.ones(3), 0),
        lambda: dist.broadcast(torch.ones(3), 1),
    ),
    "waited for or not": (
        lambda: dist.all_reduce(torch.ones(3), async_op=True).wait(),
        lambda: dist.all_gather([torch.ones(3)] * 2, torch.ones(3)),
    ),
    "parts": (
        lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3), [1, 2], [1, 2]),
        lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3), [1, 2], [1, 2]),
    ),
}


def mismatched(name):
    with pytest.raises(RuntimeError, match=r"rank 0 .*rank 1|rank 1 .*rank 0") as first:
        PAIRS[name][dist.get_rank()]()
    with pytest.raises(RuntimeError) as second:
        dist.all_reduce(torch.ones(1))
    return str(first.value).partition(": ")[2], str(second.value).partition(": ")[2]


@pytest.mark.parametrize("name", PAIRS)
def test_calls_that_differ_are_an_error_that_names_both(name):
    told = groups.run(2, mismatched, name)
    assert len({text for texts in told for text in texts}) == 1, told


RESTARTED = textwrap.dedent(
    """
    import os, signal
    import torch, torch.distributed as dist, weft.torch
    dist.init_process_group("weft")
    x = torch.ones(1)
    dist.all_reduce(x)
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if first and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(x)
    print(f"sum {x.item()}\\n", end="", flush=True)
    """
)


def test_ranks_that_torchrun_starts_again_meet_again(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(RESTARTED)
    command = [sys.executable, "-m", "torch.distributed.run", "--max-restarts=1", "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHELASTIC_ERROR_FILE": ""}
    run = subprocess.run(
        [*command, "--nproc-per-node=2", str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=groups.DEADLINE,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("sum 4.0") == 2, run.stdout
    assert str(-signal.SIGKILL) in run.stderr, run.stderr
