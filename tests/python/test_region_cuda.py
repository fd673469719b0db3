# SPDX-License-Identifier: Apache-2.0
"""Regions on a GPU, and host regions as a GPU sees them. Skipped where there is none."""

import gc

import gpu
import pytest
import ranks
import weft

torch = pytest.importorskip("torch")
pytestmark = gpu.needed()


def device_memory():
    comm = weft.init().comm
    t = weft.empty((1009, 6), torch.float32, device="cuda")
    found = weft.region(t)
    assert t.is_cuda and type(t) is torch.Tensor and not t.any()
    assert found.device == str(t.device)
    found.barrier()  # others still look at zeros
    found.local.fill_(comm.rank + 1)
    torch.cuda.synchronize()
    found.barrier()
    expected = torch.cat(
        [torch.full((n, 6), r + 1.0) for r, n in enumerate(found.rows_per_rank)]
    ).cuda()
    assert torch.equal(t, expected)
    ids = torch.randint(0, 1009, (500,), device="cuda")
    assert torch.equal(weft.gather(t, ids), expected[ids])
    assert torch.equal(weft.gather(t[:, 2:4], ids), expected[ids, 2:4])
    weft.check_rows()
    found.barrier()
    weft.scatter_add(t, torch.arange(1009, device="cuda"), torch.ones(1009, 6, device="cuda"))
    torch.cuda.synchronize()
    found.barrier()
    assert torch.equal(t, expected + comm.size)
    with pytest.raises(weft.UnsupportedError):
        found.on("cpu")
    with pytest.raises(weft.InvalidError):
        weft.gather(t, ids.cpu(), torch.empty(500, 6))
    part = t[5:]
    del t, found
    gc.collect()
    assert part.shape == (1004, 6)
    comm.barrier()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_ranks_see_memory_of_the_gpu(size):
    ranks.run(size, device_memory, environment=gpu.FIRST)


def host_memory():
    comm = weft.init().comm
    t = weft.full((5000, 8), 3.0)
    there = weft.region(t).on("cuda")
    assert there.is_cuda and bool((there == 3).all())
    comm.barrier()
    if comm.rank == 0:
        there[7] = 9
        torch.cuda.synchronize()
    comm.barrier()
    assert t[7].tolist() == [9] * 8
    ids = torch.randint(0, 5000, (3000,), device="cuda")
    for sort in (None, True, False):
        assert torch.equal(weft.gather(t, ids, sort=sort).cpu(), t[ids.cpu()])
    assert weft.region(t).on("cpu").data_ptr() == t.data_ptr()
    comm.barrier()


@pytest.mark.parametrize("size", [1, 2])
def test_a_gpu_sees_host_memory(size):
    ranks.run(size, host_memory, environment=gpu.FIRST)


def numbers_past_the_end():
    t = weft.empty((10, 4), device="cuda")
    rows = weft.gather(t, torch.tensor([1, 10, -1], device="cuda"))
    with pytest.raises(weft.InvalidError):
        weft.check_rows()
    assert not rows.any()
    weft.check_rows()


def test_numbers_past_the_end_are_told_by_the_check():
    ranks.run(1, numbers_past_the_end, environment=gpu.FIRST)
