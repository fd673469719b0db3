#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""WholeMemory's names, embeddings and the cache on a GPU: python3 test_wholememory.py [BUILD_DIR]

Needs the installed package and torch with a GPU. Ranks are fresh processes that share one
device; CUDA never starts in the parent. A check that fails does not keep the others from
running. Exit code 1: one failed. 77: cannot run here.
"""

import os
import pathlib
import secrets
import sys

import checks

RANKS = (1, 2)
DEADLINE = 90.0  # seconds for the ranks of one check
COMPAT = pathlib.Path(__file__).resolve().parents[2] / "compat"


def check_the_page(torch, rank, size):
    """The calls of the page of 2022, in its order; smaller by a hundred."""
    from wholememory.torch import wholememory_pytorch as wm

    wm.init_lib()
    torch.cuda.set_device(0)
    wm.mp_init(rank, size)
    a = wm.create_tensor([100000, 512], [], torch.float32, False, [])
    print("rank=%d, a=%s" % (rank, a))  # noqa: UP031 (as on the page)
    assert a.is_cuda and a.shape == (100000, 512) and not a.any()
    b = wm.create_tensor([1000, 3], [4, 1], torch.int64, True, [])
    assert b.is_cuda and b.stride() == (4, 1), "host tensors are CUDA-labelled on a GPU machine"
    b_cpu = wm.get_tensor_view(b, torch.device("cpu"))
    assert b_cpu.device.type == "cpu" and b_cpu.stride() == (4, 1)
    a1 = wm.get_tensor_view(a[5:, 1:], torch.device("cuda:0"))
    assert a1.data_ptr() == a[5:, 1:].data_ptr()
    torch.cuda.synchronize()
    wm.barrier([])
    if rank == size - 1:
        a[7] = 3
        b_cpu[9, 1] = 4
        torch.cuda.synchronize()
    wm.barrier([])
    assert a1[2].sum() == 3 * 511 and int(b[9, 1]) == 4
    again = wm.get_tensor_view(b_cpu[9:], torch.device("cuda"))
    assert again.is_cuda and int(again[0, 1]) == 4
    own = wm.create_tensor([10], [], torch.float16, False, [rank])
    assert not own.any() and wm.aggregate_size(rank + 1, []) == (size * (size + 1) // 2, rank)
    wm.barrier([])
    wm.finalize_lib()
    assert a[7, 0] == 3


def check_gathers(torch, rank, size):
    """torch.ops.wholememory on tables of the GPU, of the host, and in chunks."""
    from weft.compat import wholememory as wm

    torch.cuda.set_device(0)
    wm.mp_init(rank, size)
    want = torch.arange(700 * 33, dtype=torch.float32, device="cuda").reshape(700, 33)
    ids = torch.randint(700, (5000,), device="cuda")
    for host in (False, True):
        t = wm.create_tensor([700, 33], [], torch.float32, host, [])
        if rank == 0:
            t.copy_(want)
            torch.cuda.synchronize()
        wm.barrier([])
        got = torch.ops.wholememory.gather(ids, t, torch.float64)
        assert torch.equal(got, want[ids].double()), f"host={host}"
        wm.barrier([])
    c = wm.create_chunked_tensor([700, 33], [], torch.float32, [])
    first = sum(chunk.shape[0] for chunk in c.chunks[:rank])
    c.chunks[rank].copy_(want[first : first + c.chunks[rank].shape[0]])
    torch.cuda.synchronize()
    wm.barrier([])
    part = wm.get_sub_chunked_tensor(c, [0, 3], [])
    got = torch.ops.wholememory.gather_chunked(ids, part.get_ptr(), part.dtype)
    assert torch.equal(got, want[ids][:, 3:])
    torch.cuda.synchronize()
    wm.barrier([])
    wm.finalize_lib()


def check_training(torch, rank, size):
    """Tables on the GPU and on the host, ids on the GPU: equal to torch's optimizer."""
    import weft.optim
    from weft.compat import wholememory as wm

    torch.cuda.set_device(0)
    wm.mp_init(rank, size)
    start = torch.randn((301, 24), generator=torch.Generator().manual_seed(3))
    for place in ("cuda", "cpu"):
        for name, options in (("Adagrad", {"lr": 0.1}), ("AdamW", {"lr": 0.01})):
            emb = weft.nn.Embedding(301, 24, device=place)
            emb.load_state_dict({"weight": start})
            optimizer = getattr(weft.optim, name)(emb, **options)
            reference = torch.nn.Parameter(start.clone())
            by_torch = getattr(torch.optim, name)([reference], **options)
            for step in range(5):
                optimizer.zero_grad()
                total = torch.full_like(start, 0.01 * size)
                for r in range(size):
                    random = torch.Generator().manual_seed(100 * step + r)
                    ids = torch.randint(301, (400 + r,), generator=random)
                    grads = torch.randn((400 + r, 24), generator=random)
                    total.index_add_(0, ids, grads)
                    if r == rank:
                        (emb(ids.cuda()) * grads.cuda()).sum().backward()
                (emb(torch.arange(301, device="cuda")) * 0.01).sum().backward()
                optimizer.step()
                reference.grad = total
                by_torch.step()
            apart = (emb.weight.cpu() - reference).abs().max().item()
            assert apart < 1e-5, f"{name} on {place}: {apart}"
            emb.comm.barrier()
    wm.finalize_lib()


def check_the_cache(torch, rank, size):
    """Rows of a host table through a cache on the GPU."""
    import weft
    from weft.compat import wholememory as wm

    torch.cuda.set_device(0)
    wm.mp_init(rank, size)
    t = weft.zeros((5000, 20))
    if rank == 0:
        t.copy_(torch.arange(100000.0).reshape(5000, 20))
    wm.barrier([])
    truth = t.clone().cuda()
    caches = [weft.Cache(t, ratio=0.1, write="read-only")]
    for step in range(20):
        ids = (torch.rand(2000, device="cuda") ** 4 * 5000).long()
        for cache in caches:
            assert torch.equal(cache.gather(ids), truth[ids]), f"step {step}"
    assert caches[0].stats().hit_rate > 0.3, caches[0].stats()
    wm.barrier([])
    if rank == 0:
        back = weft.Cache(t, ratio=0.1, write="back")
        for step in range(10):
            ids = (torch.rand(300, device="cuda") ** 4 * 5000).long().unique()
            rows = torch.randn(ids.numel(), 20, device="cuda")
            back.scatter(ids, rows)
            truth[ids] = rows
            assert torch.equal(back.gather(ids), rows), f"step {step}"
        back.flush()
        assert torch.equal(t, truth.cpu())
    wm.barrier([])
    wm.finalize_lib()


CHECKS = {
    check.__name__: check
    for check in (check_the_page, check_gathers, check_training, check_the_cache)
}


def run_check(name, ranks):
    """Its ranks as processes, which meet by a name; the output of those that failed."""
    path = os.pathsep.join([str(COMPAT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MASTER_", "WEFT_JOB"))}
    env = {**kept, "PYTHONPATH": path, "WEFT_JOB": secrets.token_hex(8)}
    command = [sys.executable, __file__, "--rank", name]
    commands = [([*command, str(rank), str(ranks)], env) for rank in range(ranks)]
    return checks.run_ranks(commands, DEADLINE)


def main():
    if sys.argv[1:2] == ["--rank"]:
        import torch

        CHECKS[sys.argv[2]](torch, int(sys.argv[3]), int(sys.argv[4]))
        return 0
    return checks.run_all(CHECKS, RANKS, run_check, "import weft.compat.wholememory")


if __name__ == "__main__":
    sys.exit(main())
