# SPDX-License-Identifier: Apache-2.0
"""Train a small model whose parameters are sharded over all ranks with FSDP2.

    torchrun --nproc-per-node 2 examples/fsdp2.py --backend weft
    torchrun --nproc-per-node 2 examples/fsdp2.py --backend gloo

Each layer is gathered when it is needed and forgotten afterwards; gradients are
reduced to the shard that a rank keeps. All of it on the CPU.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH, LAYERS, BATCH = 128, 6, 32


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("weft", "gloo"), default="weft")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    if "LOCAL_WORLD_SIZE" not in os.environ:
        parser.error("torchrun starts it, as the head of this file says")
    return args


class Layer(nn.Module):
    """A layer with a way around it, so that deep stacks learn."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 256),
            nn.Linear(256, WIDTH),
        )

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def make_model():
    """Layers first, then what holds them: each is gathered on its own."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer() for _ in range(LAYERS)))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def batches(rank):
    """What is to be learned: the inputs in another order."""
    order = torch.randperm(WIDTH, generator=torch.Generator().manual_seed(1))
    source = torch.Generator().manual_seed(100 + rank)
    while True:
        inputs = torch.randn(BATCH, WIDTH, generator=source)
        yield inputs, inputs[:, order]


def mean_over_ranks(value):
    value = value.detach().clone()
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def train(model, steps):
    adjust = torch.optim.AdamW(model.parameters(), lr=2e-3)
    start = time.perf_counter()
    for step, (inputs, wanted) in zip(range(1, steps + 1), batches(dist.get_rank()), strict=False):
        adjust.zero_grad()
        loss = (model(inputs) - wanted).square().mean()
        loss.backward()
        adjust.step()
        if step % max(steps // 10, 1) == 0 or step == steps:
            mean = mean_over_ranks(loss)
            if dist.get_rank() == 0:
                print(f"step {step:4} of {steps}: loss {mean:.4f}", flush=True)
    return (time.perf_counter() - start) / steps


def main():
    args = arguments()
    if args.backend == "weft":
        import weft.torch  # noqa: F401  registers the backend
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["LOCAL_WORLD_SIZE"])))
    dist.init_process_group(args.backend)
    model = make_model()
    each = train(model, args.steps)
    if dist.get_rank() == 0:
        kept = sum(part.to_local().numel() for part in model.parameters())
        whole = sum(part.numel() for part in model.parameters())
        print(f"rank 0 keeps {kept} of {whole} parameters")
        print(f"{args.backend}: {each * 1e3:.2f} ms a step on {dist.get_world_size()} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
