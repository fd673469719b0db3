# SPDX-License-Identifier: Apache-2.0
"""Train a small model on several ranks of this machine, and time weft against gloo.

    python examples/demo.py [--ranks N] [--steps N]

Started plainly, it starts itself once for each rank, as a launcher would: a
rank is told who it is by WEFT_RANK, WEFT_RANKS and WEFT_JOB. Each rank then
trains on its own share of the data; after every backward pass the gradients
are averaged with one call, so that all ranks take the same step.
"""

import argparse
import hashlib
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time

SIZES = (4, 1 << 10, 64 << 10, 1 << 20, 16 << 20)
ROUNDS = 7
BLOCK_SECONDS = 0.03


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=max(2, len(os.sched_getaffinity(0)) // 2 * 2))
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    if given.ranks < 1 or given.steps < 1:
        parser.error("--ranks and --steps are at least 1")
    if "WEFT_RANK" in os.environ:
        return rank_main(given)
    return start_ranks(given)


def start_ranks(given):
    """Start the ranks and wait for them; when one fails, the others see it by themselves."""
    with tempfile.TemporaryDirectory() as folder:
        common = {
            "WEFT_RANKS": str(given.ranks),
            "WEFT_JOB": secrets.token_hex(8),
            "DEMO_GLOO_STORE": os.path.join(folder, "store"),
            "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        }
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, *sys.argv[1:]],
                env={**os.environ, **common, "WEFT_RANK": str(rank)},
            )
            for rank in range(given.ranks)
        ]
        return max(abs(rank.wait()) for rank in ranks)


def rank_main(given):
    try:
        import torch
    except ImportError:
        print("the demo needs PyTorch: pip install torch", file=sys.stderr)
        return 1
    import weft

    world = weft.init(timeout=120)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world.size))
    if world.rank == 0:
        print(f"{world.size} ranks of {world.peers[0].host} train one model")
    model, losses = train(torch, world.comm, given.steps)
    check_same(torch, world.comm, model)
    if world.rank == 0:
        print(f"loss {losses[0]:.3f} -> {losses[-1]:.4f}; all ranks hold the same parameters\n")
    compare(torch, world)
    weft.finalize()
    return 0


def batches(torch, rank, size=256):
    """This rank's share of the data: points in a square, and whether each is in the ring."""
    generator = torch.Generator().manual_seed(rank)
    while True:
        points = torch.rand(size, 2, generator=generator) * 2 - 1
        radius = points.norm(dim=1, keepdim=True)
        yield points, ((radius > 0.4) & (radius < 0.8)).float()


def train(torch, comm, steps):
    torch.manual_seed(comm.rank)  # each rank starts elsewhere; rank 0's start is used
    nn = torch.nn
    model = nn.Sequential(
        nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            comm.broadcast(parameter, root=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    data = batches(torch, comm.rank)
    for _ in progress(steps, shown=comm.rank == 0):
        points, inside = next(data)
        loss = nn.functional.binary_cross_entropy_with_logits(model(points), inside)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            comm.allreduce(parameter.grad, "avg")
        optimizer.step()
        losses.append(comm.allreduce(loss.detach(), "avg").item())
    return model, losses


def progress(steps, shown):
    try:
        from tqdm import tqdm
    except ImportError:
        return range(steps)
    return tqdm(range(steps), desc="training", unit="step", disable=not shown)


def check_same(torch, comm, model):
    """Compare a digest of the parameters with rank 0's, bit for bit."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    first = comm.broadcast(bytearray(digest.digest()), root=0)
    same = torch.tensor([bytes(first) == digest.digest()])
    if not comm.allreduce(same, "land").item():
        raise SystemExit(f"rank {comm.rank}: the ranks hold different parameters")


def compare(torch, world):
    """Time an allreduce of several sizes, weft and gloo in turn in the same run."""
    dist = torch.distributed
    comm = world.comm
    if not (dist.is_available() and dist.is_gloo_available()):
        if world.rank == 0:
            print("this PyTorch has no gloo to compare with")
        return
    store = dist.FileStore(os.environ["DEMO_GLOO_STORE"], world.size)
    dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size)
    rows = []
    for size in progress_of_sizes(world.rank == 0):
        x = torch.rand(size // 4)
        ways = {"weft": lambda x=x: comm.allreduce(x), "gloo": lambda x=x: dist.all_reduce(x)}
        times = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                x.fill_(0.5)
                times[name].append(block(torch, comm, way))
        rows.append((size, *(statistics.median(times[name]) for name in ways)))
    dist.destroy_process_group()
    if world.rank == 0:
        print_table(rows)


def progress_of_sizes(shown):
    try:
        from tqdm import tqdm
    except ImportError:
        return SIZES
    return tqdm(SIZES, desc="timing", unit="size", disable=not shown, leave=False)


def block(torch, comm, way):
    """Seconds of one call, from as many calls as fit a short block on all ranks."""
    way()
    start = time.perf_counter()
    way()
    once = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
    calls = int(min(2000, max(2, BLOCK_SECONDS / comm.allreduce(once, "max").item())))
    comm.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        way()
    return (time.perf_counter() - start) / calls


def print_table(rows):
    print("allreduce of float32, median of", ROUNDS, "interleaved rounds, microseconds")
    print(f"{'bytes':>12} {'weft':>12} {'gloo':>12} {'gloo / weft':>12}")
    for size, ours, theirs in rows:
        print(f"{size:12,} {ours * 1e6:12,.2f} {theirs * 1e6:12,.2f} {theirs / ours:11,.1f}x")


if __name__ == "__main__":
    sys.exit(main())
