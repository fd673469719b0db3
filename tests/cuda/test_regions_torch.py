#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shared tensors on a GPU through torch: python3 test_regions_torch.py [BUILD_DIR]

Needs the installed package and torch with a GPU. Ranks are fresh processes that share one
device; CUDA never starts in the parent. A check that fails does not keep the others from
running. Exit code 1: one failed. 77: cannot run here.
"""

import os
import secrets
import sys

import checks

RANKS = (1, 2, 4)
DEADLINE = 60.0  # seconds for the ranks of one check


def pattern(torch, rows, columns, device, salt):
    """What row i, column j should hold."""
    numbers = torch.arange(rows * columns, dtype=torch.int64, device=device)
    return ((numbers * 31 + salt) % 65521).to(torch.int32).view(rows, columns)


def check_device_tensor(torch, weft):
    """Each rank writes its part with the GPU; all see all of it, also after growth."""
    rows, columns = 5003, 33
    t = weft.zeros((rows, columns), torch.int32, "cuda", max_rows=3 * rows)
    region = weft.region(t)
    want = pattern(torch, rows, columns, "cuda", 7)
    assert t.is_cuda and t.is_contiguous() and not t.any(), "fresh memory is not zero"
    region.barrier(30)
    region.local.copy_(want[region.start : region.stop])
    torch.cuda.synchronize()
    region.barrier(30)
    assert torch.equal(t, want), "a part of another rank is wrong"
    region.barrier(30)
    grown = region.resize(3 * rows)
    assert grown.data_ptr() == t.data_ptr(), "growth has moved it"
    assert torch.equal(grown[:rows], want) and not grown[rows:].any()
    region.barrier(30)


def check_host_tensor(torch, weft):
    """One host tensor has a CPU and a CUDA side, which see each other's writes."""
    rows, columns = 4001, 17
    t = weft.zeros((rows, columns), torch.int32)
    region = weft.region(t)
    seen = region.on("cuda")
    assert seen.is_cuda and seen.data_ptr() == t.data_ptr(), "two addresses"
    want = pattern(torch, rows, columns, "cpu", 3)
    t[region.start : region.stop] = want[region.start : region.stop]
    region.barrier(30)
    assert torch.equal(seen.cpu(), want), "the GPU does not see what ranks wrote"
    region.barrier(30)
    seen[region.start : region.stop] += 1
    torch.cuda.synchronize()
    region.barrier(30)
    assert torch.equal(t, want + 1), "ranks do not see what the GPU wrote"
    region.barrier(30)


def check_views_keep_the_memory(torch, weft):
    """A slice outlives the tensor that it was taken from, and so does a kernel's work on it."""
    t = weft.full((1000, 8), 5, torch.int32, "cuda")
    part = t[10:20]
    del t
    torch.cuda._sleep(50_000_000)  # the sum begins long after the memory is let go
    total = part.sum()
    del part
    assert int(total) == 5 * 80
    host = weft.full((1000, 8), 5, torch.int32)
    seen = weft.region(host).on("cuda")
    torch.cuda._sleep(50_000_000)
    total = seen.sum()
    del host, seen
    assert int(total) == 5 * 8000


def check_too_big_is_an_exception(torch, weft):
    """Twice the memory of the GPU is refused on all ranks, and nothing is lost."""
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        weft.zeros((2 * total,), torch.uint8, "cuda")
    except MemoryError as error:
        assert "MiB" in str(error), f"the text has no numbers: {error}"
    else:
        raise AssertionError("it was not refused")
    assert not weft.zeros((1000, 3), torch.float32, "cuda").any()


CHECKS = {
    check.__name__: check
    for check in (
        check_device_tensor,
        check_host_tensor,
        check_views_keep_the_memory,
        check_too_big_is_an_exception,
    )
}


def rank_main(name):
    """One check in one rank."""
    import torch
    import weft

    torch.cuda.set_device(0)
    weft.init()
    CHECKS[name](torch, weft)


def run_check(name, ranks):
    """Its ranks as processes; the output of those that failed, or nothing."""
    place = {"WEFT_RANKS": str(ranks), "WEFT_JOB": secrets.token_hex(8)}
    command = [sys.executable, __file__, "--rank", name]
    commands = [(command, {**os.environ, **place, "WEFT_RANK": str(rank)}) for rank in range(ranks)]
    return checks.run_ranks(commands, DEADLINE)


def main():
    if sys.argv[1:2] == ["--rank"]:
        rank_main(sys.argv[2])
        return 0
    return checks.run_all(CHECKS, RANKS, run_check, "from weft import zeros")


if __name__ == "__main__":
    sys.exit(main())
