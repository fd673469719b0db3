# SPDX-License-Identifier: Apache-2.0
"""weft.optim with gradients on a GPU, of tables there and in host memory. Skipped without one."""

import math

import gpu
import pytest
import ranks
import weft

torch = pytest.importorskip("torch")
pytestmark = gpu.needed()

ROWS, WIDTH = 9, 4


def all_rows(emb):
    return weft.gather(emb.rows, torch.arange(ROWS, device="cuda")).cpu()


def tiny_gradients(device):
    """Adam is SparseAdam where eps is as large as what it is added to."""
    start = torch.randn((ROWS, WIDTH), generator=torch.Generator().manual_seed(5))
    emb = weft.nn.Embedding(ROWS, WIDTH, device=device)
    emb.load_state_dict({"weight": start})
    reference = torch.nn.Parameter(start.clone())
    ours = weft.optim.Adam(emb, lr=0.01)
    theirs = torch.optim.SparseAdam([reference], lr=0.01)
    rows = torch.arange(ROWS)
    for step in range(20):
        gradient = 1e-7 * torch.randn((ROWS, WIDTH), generator=torch.Generator().manual_seed(step))
        ours.zero_grad()
        (emb(rows.cuda()) * gradient.cuda() / weft.size()).sum().backward()
        ours.step()
        reference.grad = torch.sparse_coo_tensor(
            rows[None], gradient, reference.shape, check_invariants=True
        )
        theirs.step()
    moved = (reference.detach() - start).abs().max()
    assert (all_rows(emb) - reference.detach()).abs().max() < 1e-3 * moved
    emb.comm.barrier()


def scaled_steps(device):
    """The last rank's infinity leaves out the step of all; rank 0 of several has no ids."""
    rank, size = weft.rank(), weft.size()
    emb = weft.nn.Embedding(ROWS, WIDTH, device=device)
    sparse = weft.optim.SGD(emb, lr=1.0)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    with_ids = size if size == 1 else size - 1
    for factor in (math.inf, 1.0):
        before = all_rows(emb)
        emb.comm.barrier()
        sparse.zero_grad()
        ids = [2, 2] if rank > 0 or size == 1 else []
        rows = emb(torch.tensor(ids, dtype=torch.int64, device="cuda"))
        scaler.scale((rows * (factor if rank == size - 1 else 1.0)).sum()).backward()
        scaler.step(sparse)
        scaler.update()
        assert scaler.get_scale() == 512
        expected = before.clone()
        expected[2] -= 0 if factor == math.inf else 2 * with_ids
        assert torch.allclose(all_rows(emb), expected)
        emb.comm.barrier()
    emb(torch.tensor([3], device="cuda")).sum().backward()
    assert weft.nn.clip_grad_norm_(emb, 1.0).isfinite()


def all_of_it():
    weft.init()
    for device in ("cuda", "cpu"):
        tiny_gradients(device)
        scaled_steps(device)


@pytest.mark.parametrize("size", [1, 2])
def test_steps_on_a_gpu_are_those_of_torch_and_of_all_ranks(size):
    ranks.run(size, all_of_it, environment=gpu.FIRST)
