# SPDX-License-Identifier: Apache-2.0
"""Train a transformer of 100 million parameters with DDP or FSDP2: time of a step, peak memory.

    torchrun --nproc-per-node 2 examples/large_model.py --backend weft --share
    torchrun --nproc-per-node 2 examples/large_model.py --backend weft
    torchrun --nproc-per-node 2 examples/large_model.py --backend gloo --kind fsdp2

With --share all large tensors lie in memory that the ranks of this host map, so that parameters
and gradients are read where they are: weft.torch.share_all.
"""

import argparse
import os
import statistics
import threading
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORDS = 4096


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("weft", "gloo"), default="weft")
    parser.add_argument("--kind", choices=("ddp", "fsdp2"), default="ddp")
    parser.add_argument("--share", action="store_true", help="tensors in shared memory")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64, help="of each rank in a step")
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    if "LOCAL_WORLD_SIZE" not in os.environ:
        parser.error("torchrun starts it, as the head of this file says")
    if args.share and args.backend != "weft":
        parser.error("--share needs --backend weft: gloo reads no shared tensors in place")
    return args


class Model(nn.Module):
    """Words in, scores of the next word out."""

    def __init__(self, width, layers):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 8, 4 * width, dropout=0.0, norm_first=True, batch_first=True
            )
            for _ in range(layers)
        )
        self.scores = nn.Linear(width, WORDS, bias=False)

    def forward(self, words):
        x = self.words(words)
        for layer in self.layers:
            x = layer(x)
        return self.scores(x)


def spread(model, kind):
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def batches(tokens):
    """Each word is followed by the one that a rule says, which is what there is to learn."""
    source = torch.Generator().manual_seed(100 + dist.get_rank())
    while True:
        words = torch.randint(WORDS, (1, tokens), generator=source)
        yield words, (words * 7 + 1) % WORDS


class Peak:
    """The most memory that this rank had while it was open, in bytes.

    Pages that several processes map count in parts, so that the ranks' numbers add up.
    """

    def __enter__(self):
        self.bytes, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _look(self):
        over = False
        while not over:
            over = self._over.wait(0.02)
            with open("/proc/self/smaps_rollup") as file:
                line = next(line for line in file if line.startswith("Pss:"))
            self.bytes = max(self.bytes, int(line.split()[1]) << 10)


def over_ranks(value, op):
    value = torch.tensor(float(value), dtype=torch.float64)
    dist.all_reduce(value, op=op)
    return value.item()


def main():
    args = arguments()
    if args.backend == "weft":
        import weft.torch  # registers the backend
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["LOCAL_WORLD_SIZE"])))
    dist.init_process_group(args.backend)
    if args.share:
        weft.torch.share_all()
    torch.manual_seed(0)
    model = Model(args.width, args.layers)
    size = sum(p.numel() for p in model.parameters())
    model = spread(model, args.kind)
    adjust = torch.optim.SGD(model.parameters(), lr=0.02)
    source = batches(args.tokens)

    def step():
        words, wanted = next(source)
        adjust.zero_grad()
        loss = F.cross_entropy(model(words).flatten(0, 1), wanted.flatten())
        loss.backward()
        adjust.step()
        return loss.item()

    with Peak() as peak:  # the first steps make buffers, too, and are not timed
        step(), step()
    times = []
    for _ in range(args.steps):
        dist.barrier()
        start = time.perf_counter()
        loss = step()
        times.append(over_ranks(time.perf_counter() - start, dist.ReduceOp.MAX))
    loss = over_ranks(loss, dist.ReduceOp.SUM) / dist.get_world_size()
    memory = over_ranks(peak.bytes, dist.ReduceOp.SUM)
    if dist.get_rank() == 0:
        name = f"{args.backend}, shared tensors" if args.share else args.backend
        print(
            f"{args.kind} of {size / 1e6:.0f} M parameters over {name}: "
            f"{statistics.median(times) * 1e3:.0f} ms a step "
            f"({min(times) * 1e3:.0f} to {max(times) * 1e3:.0f}), "
            f"peak memory of all ranks {memory / (1 << 20):.0f} MiB, loss {loss:.5f}"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
