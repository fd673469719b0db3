# SPDX-License-Identifier: Apache-2.0
"""Train a small classifier with DistributedDataParallel.

    torchrun --nproc-per-node 2 examples/ddp.py --backend weft
    torchrun --nproc-per-node 2 examples/ddp.py --backend gloo

The two lines differ in one string, and end with the same loss.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

CLASSES, FEATURES, BATCH = 4, 32, 64


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("weft", "sml", "gloo"), default="weft")
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    if "LOCAL_WORLD_SIZE" not in os.environ:
        parser.error("torchrun starts it, as the head of this file says")
    return args


def make_model():
    torch.manual_seed(0)
    layers = [nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, CLASSES))


def batches(rank):
    """Points around a centre for each class; every rank draws its own."""
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))
    source = torch.Generator().manual_seed(100 + rank)
    while True:
        labels = torch.randint(CLASSES, (BATCH,), generator=source)
        yield centres[labels] + torch.randn(BATCH, FEATURES, generator=source), labels


def mean_over_ranks(value):
    value = value.detach().clone()
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def train(model, steps):
    adjust = torch.optim.SGD(model.parameters(), lr=0.1)
    start = time.perf_counter()
    for step, (points, labels) in zip(range(1, steps + 1), batches(dist.get_rank()), strict=False):
        adjust.zero_grad()
        loss = F.cross_entropy(model(points), labels)
        loss.backward()
        adjust.step()
        if step % max(steps // 10, 1) == 0 or step == steps:
            mean = mean_over_ranks(loss)
            if dist.get_rank() == 0:
                print(f"step {step:4} of {steps}: loss {mean:.4f}", flush=True)
    return (time.perf_counter() - start) / steps


def main():
    args = arguments()
    if args.backend != "gloo":
        import weft.torch  # noqa: F401  registers the backends
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["LOCAL_WORLD_SIZE"])))
    dist.init_process_group(args.backend)
    model = nn.parallel.DistributedDataParallel(make_model())
    each = train(model, args.steps)
    if dist.get_rank() == 0:
        print(f"{args.backend}: {each * 1e3:.2f} ms a step on {dist.get_world_size()} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
