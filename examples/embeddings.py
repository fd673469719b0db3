# SPDX-License-Identifier: Apache-2.0
"""A small recommender: users and films as vectors, in tables that all ranks share.

    python examples/embeddings.py                         # alone
    torchrun --nproc-per-node 2 examples/embeddings.py    # or mpirun, srun, ...

Each rank trains on its own ratings, batches of unequal size. A table is in memory
once on the host; gradients of the same film from several ranks are added before
its row takes one step. The dense layer is trained by torch's own optimizer.
"""

import argparse

import torch
import weft


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=400)
    parser.add_argument("--films", type=int, default=200)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=1024)
    return parser.parse_args()


class Recommender(torch.nn.Module):
    """How much a user would like a film: the product of their vectors, and a scale."""

    def __init__(self, users, films, width):
        super().__init__()
        small = {"init": lambda rows: torch.nn.init.normal_(rows, std=0.3)}
        self.users = weft.nn.Embedding(users, width, **small)
        self.films = weft.nn.Embedding(films, width, **small)
        self.scale = torch.nn.Linear(1, 1)

    def forward(self, users, films):
        likes = (self.users(users) * self.films(films)).sum(-1, keepdim=True)
        return self.scale(likes).squeeze(-1)


def ratings(options, rank, step):
    """Ratings that follow from four hidden tastes, so that there is something to learn."""
    random = torch.Generator().manual_seed(1_000_003 * rank + step)
    count = options.batch - 37 * rank % options.batch
    users = torch.randint(options.users, (count,), generator=random)
    films = (torch.rand(count, generator=random) ** 2 * options.films).long()  # some are popular
    tastes = torch.Generator().manual_seed(7)
    of_users = torch.randn((options.users, 4), generator=tastes)
    of_films = torch.randn((options.films, 4), generator=tastes)
    return users, films, (of_users[users] * of_films[films]).sum(-1) / 2


def average(comm, tensor):
    """Over all ranks, in place."""
    comm.allreduce(tensor)
    return tensor.div_(comm.size)


def main():
    options = parse()
    comm = weft.init().comm
    torch.manual_seed(0)
    model = Recommender(options.users, options.films, options.width)
    sparse = weft.optim.Adagrad(model, lr=0.3)  # finds the tables
    dense = torch.optim.SGD(model.parameters(), lr=0.05)  # has the rest
    losses = []
    for step in range(options.steps):
        users, films, wanted = ratings(options, comm.rank, step)
        loss = torch.nn.functional.mse_loss(model(users, films), wanted)
        sparse.zero_grad()
        dense.zero_grad()
        (loss / comm.size).backward()
        for parameter in model.parameters():
            comm.allreduce(parameter.grad)
        sparse.step()  # on all ranks together
        dense.step()
        losses.append(average(comm, loss.detach()).item())
        if comm.rank == 0 and step % 10 == 0:
            print(f"step {step:3}  loss {losses[-1]:.3f}", flush=True)
    if comm.rank == 0:
        print(f"step {options.steps - 1:3}  loss {losses[-1]:.3f}")
        size = model.users.weight.nbytes + model.films.weight.nbytes
        print(f"{comm.size} ranks, tables of {size >> 10} KiB, in memory once")
    comm.barrier()


if __name__ == "__main__":
    main()
