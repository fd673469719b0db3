# SPDX-License-Identifier: Apache-2.0
"""A small recommender on a parameter store: each rank trains at its own pace.

    python examples/store.py                         # alone
    torchrun --nproc-per-node 2 examples/store.py    # or mpirun, srun, ...

Vectors of users and films are rows of two stores. A loader looks ahead and tells the
stores which rows each batch will use, so that they are on this host by then. Backward
pushes gradients, with which the store's optimizer takes its steps: no rank waits for
another, and ranks may have batches of unequal number. examples/embeddings.py is the same
model with steps that all ranks take together.
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
    parser.add_argument("--ahead", type=int, default=10)
    return parser.parse_args()


class Recommender(torch.nn.Module):
    """How much a user would like a film: the product of their vectors."""

    def __init__(self, users, films, width):
        super().__init__()
        more = {
            "optimizer": weft.optim.Adagrad(lr=0.3),
            "init": lambda rows: torch.nn.init.normal_(rows, std=0.3),
        }
        self.users = weft.nn.StoreEmbedding(users, width, **more)
        self.films = weft.nn.StoreEmbedding(films, width, **more)

    def forward(self, users, films):
        return (self.users(users) * self.films(films)).sum(-1)


class Ratings(torch.utils.data.IterableDataset):
    """Ratings that follow from four hidden tastes, so that there is something to learn."""

    def __init__(self, options, rank):
        self.options, self.rank = options, rank

    def __len__(self):
        return self.options.steps + 5 * self.rank

    def __iter__(self):
        options = self.options
        tastes = torch.Generator().manual_seed(7)
        of_users = torch.randn((options.users, 4), generator=tastes)
        of_films = torch.randn((options.films, 4), generator=tastes)
        random = torch.Generator().manual_seed(1_000_003 * self.rank)
        for _ in range(len(self)):
            users = torch.randint(options.users, (options.batch,), generator=random)
            popular = torch.rand(options.batch, generator=random) ** 2
            films = (popular * options.films).long()
            yield users, films, (of_users[users] * of_films[films]).sum(-1) / 2


def main():
    options = parse()
    comm = weft.init().comm
    torch.manual_seed(0)
    model = Recommender(options.users, options.films, options.width)
    loader = torch.utils.data.DataLoader(Ratings(options, comm.rank), batch_size=None)
    tables = [model.users, model.films]
    batches = weft.nn.IntentLoader(loader, tables, lambda batch: batch[:2], options.ahead)
    for step, (users, films, wanted) in enumerate(batches):
        loss = torch.nn.functional.mse_loss(model(users, films), wanted)
        loss.backward()  # pushes the gradients: that is all
        if comm.rank == 0 and step % 10 == 0:
            print(f"step {step:3}  loss {loss.item():.3f}", flush=True)
    if comm.rank == 0:
        print(f"step {step:3}  loss {loss.item():.3f}")
        found = model.films.worker.stats()
        print(f"{comm.size} ranks, {found['local_share']:.0%} of all rows were on their host")
    for table in tables:
        table.worker.finalize()


if __name__ == "__main__":
    main()
