# SPDX-License-Identifier: Apache-2.0
"""Train a model in each way that torch spreads it over ranks: torchrun ... training.py FOLDER

Each rank leaves all parameters in the folder. `plain` trains without torch.distributed.
"""

import pathlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

BATCH = 24


def model():
    """With sizes that no number of ranks divides."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(67, 129), nn.Tanh(), nn.Linear(129, 31)).double()


def ddp():
    return DistributedDataParallel(model())


def fsdp2():
    whole = model()
    for layer in (whole[0], whole[2]):
        fully_shard(layer)
    return fully_shard(whole)


WAYS = (ddp, fsdp2)


def train(net, rank, size):
    """Each rank takes an equal share of a batch, so the mean of their gradients is the batch's."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(5):
        torch.manual_seed(100 + step)
        x = torch.randn(BATCH, 67, dtype=torch.double)[rank::size]
        optimizer.zero_grad()
        (net(x) - 1).square().mean().backward()
        optimizer.step()
    return [p.full_tensor() if hasattr(p, "full_tensor") else p for p in net.parameters()]


def plain():
    return [p.detach() for p in train(model(), 0, 1)]


def in_group():
    """By all ranks of the process group: the parameters for each way."""
    rank, size = dist.get_rank(), dist.get_world_size()
    trained = {way.__name__: train(way(), rank, size) for way in WAYS}
    return {way: [p.detach().clone() for p in trained[way]] for way in trained}


def main(folder):
    import weft.torch  # noqa: F401 (the backend)

    dist.init_process_group("weft")
    torch.save(in_group(), pathlib.Path(folder, f"rank{dist.get_rank()}"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
