# SPDX-License-Identifier: Apache-2.0
"""A language model spread over the cores: tensor-parallel inference in bf16 on the CPU.

    torchrun --nproc-per-node 2 examples/llm_tensor_parallel.py

torch.distributed.tensor.parallel splits the weights over the ranks; twice a layer and token
the ranks add up their parts. That is where the backend counts. The weights are random, so what it
says makes no sense, but it says the same with weft and with gloo.
"""

import argparse
import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
import weft.torch  # noqa: F401  registers the backend
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


@dataclass(frozen=True)
class Shape:
    """How large the model is."""

    layers: int
    width: int
    heads: int
    words: int = 1024
    context: int = 256

    @property
    def head_width(self):
        return self.width // self.heads


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=100, help="to generate")
    parser.add_argument("--rounds", type=int, default=3, help="weft and gloo in turn")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8, help="a multiple of the number of ranks")
    args = parser.parse_args()
    if "LOCAL_WORLD_SIZE" not in os.environ:
        parser.error("torchrun starts it, as the head of this file says")
    return args


class Layer(nn.Module):
    """Attention over the words so far, and a feed-forward part."""

    def __init__(self, shape):
        super().__init__()
        wide = 4 * shape.width
        self.shape = shape
        self.before, self.between = nn.RMSNorm(shape.width), nn.RMSNorm(shape.width)
        self.q = nn.Linear(shape.width, shape.width, bias=False)
        self.k = nn.Linear(shape.width, shape.width, bias=False)
        self.v = nn.Linear(shape.width, shape.width, bias=False)
        self.o = nn.Linear(shape.width, shape.width, bias=False)
        self.up = nn.Linear(shape.width, wide, bias=False)
        self.down = nn.Linear(wide, shape.width, bias=False)

    def attend(self, x, cache, at):
        q, k, v = (part(x).view(-1, 1, self.shape.head_width) for part in (self.q, self.k, self.v))
        cache[0, :, at : at + 1], cache[1, :, at : at + 1] = k, v
        keys, values = cache[:, :, : at + 1]
        return self.o(F.scaled_dot_product_attention(q, keys, values).reshape(1, -1))

    def forward(self, x, cache, at):
        x = x + self.attend(self.before(x), cache, at)
        return x + self.down(F.silu(self.up(self.between(x))))


class Model(nn.Module):
    """Takes a word and gives scores for the next one."""

    def __init__(self, shape):
        super().__init__()
        self.words = nn.Embedding(shape.words, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.words, bias=False)

    def forward(self, word, caches, at):
        x = self.words(word)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache, at)
        return self.head(self.norm(x))


def make_model(shape, group):
    """The same weights on all ranks, of which each keeps its part."""
    torch.manual_seed(0)
    model = Model(shape).to(torch.bfloat16).eval()
    mesh = DeviceMesh.from_group(group, "cpu")
    first = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    second = {name: RowwiseParallel() for name in ("o", "down")}
    for layer in model.layers:
        parallelize_module(layer, mesh, first | second)
    return model


@torch.inference_mode()
def generate(model, shape, tokens):
    """The likeliest words after word 1, and how many a second."""
    heads = shape.heads // dist.get_world_size()
    room = (2, heads, shape.context, shape.head_width)
    caches = [torch.zeros(room, dtype=torch.bfloat16) for _ in range(shape.layers)]
    word, said = torch.tensor([1]), []
    start = time.perf_counter()
    for at in range(tokens):
        word = model(word, caches, at).argmax(-1)
        said.append(word.item())
    return said, tokens / (time.perf_counter() - start)


def check(args):
    ranks = dist.get_world_size()
    if args.heads % ranks or args.width % args.heads:
        raise SystemExit(f"{args.heads} heads do not divide: take a multiple of {ranks} ranks")
    if not 1 <= args.tokens <= Shape.context:
        raise SystemExit(f"--tokens goes from 1 to {Shape.context}")


def main():
    args = arguments()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["LOCAL_WORLD_SIZE"])))
    dist.init_process_group("weft")
    check(args)
    shape = Shape(args.layers, args.width, args.heads)
    groups = {"weft": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    models = {name: make_model(shape, group) for name, group in groups.items()}
    said, rates = {}, {name: [] for name in models}
    for turn in range(args.rounds + 1):
        for name, model in models.items():
            said[name], rate = generate(model, shape, args.tokens)
            if turn:  # the first one warms up
                rates[name].append(rate)
                if dist.get_rank() == 0:
                    print(f"round {turn}, {name}: {rate:.0f} tokens/s", flush=True)
    if said["weft"] != said["gloo"]:
        raise SystemExit("weft and gloo do not say the same")
    if dist.get_rank() == 0:
        print(f"both say the same {args.tokens} tokens: {' '.join(map(str, said['weft'][:8]))} ...")
        best = {name: max(found) for name, found in rates.items()}
        print(f"weft {best['weft']:.0f} tokens/s, gloo {best['gloo']:.0f} tokens/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
