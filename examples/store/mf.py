# SPDX-License-Identifier: Apache-2.0
"""Matrix factorisation: ratings of users and films, with a DataLoader and two embeddings.

    python examples/store/mf.py                          # alone
    python examples/store/mf.py --hosts 2 --no-intent    # on hosts that are made for it
    torchrun --nproc-per-node 2 examples/store/mf.py     # or mpirun, srun, ...

The ratings are generated: the product of hidden vectors of a user and a film, of rank 4 and with
variance 1, and noise with a standard deviation of 0.5. Users and films are drawn from Zipf
distributions with exponents 1.0 and 1.1. So the root mean square error on ratings that were not
shown in training is 0.5 at best, and more for users and films with few ratings; one who always says
0 gets 1.1.

A rank has the ratings of its own users, as where data is collected by user. Their vectors need only
be on its host, those of films everywhere. Both are rows of stores, which take steps of Adagrad with
the gradients that backward pushes.
"""

from typing import NamedTuple

import application
import torch
import weft
from application import draw, settle, zipf
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

SIZES = {
    "small": dict(users=500, films=200, ratings=30_000, width=8, batch=512, lr=0.3, l2=0.03,
                  epochs=6),
    "full": dict(users=10_000, films=3000, ratings=300_000, width=16, batch=2048, lr=0.3, l2=0.05,
                 epochs=6),
}  # fmt: skip
RANK, NOISE = 4, 0.5  # the plant
TESTED = 0.05  # of the ratings


# --- the data -------------------------------------------------------------------------------------


class Ratings(NamedTuple):
    users: torch.Tensor
    films: torch.Tensor
    values: torch.Tensor


def generate(data, seed):
    """Ratings for training, and others to test with."""
    generator = torch.Generator().manual_seed(seed)
    of_users = torch.randn((data.users, RANK), generator=generator) / RANK**0.5
    of_films = torch.randn((data.films, RANK), generator=generator)
    users = draw(zipf(data.users, 1.0), data.ratings, generator)
    films = draw(zipf(data.films, 1.1), data.ratings, generator)
    noise = NOISE * torch.randn(data.ratings, generator=generator)
    values = (of_users[users] * of_films[films]).sum(-1) + noise
    tested = int(TESTED * data.ratings)
    everything = (users, films, values)
    return Ratings(*(x[tested:] for x in everything)), Ratings(*(x[:tested] for x in everything))


def loader_of(ratings, batch):
    """A DataLoader that takes a whole batch out of the tensors at a time."""
    dataset = TensorDataset(*ratings)
    batches = BatchSampler(RandomSampler(dataset), batch, drop_last=False)
    return DataLoader(dataset, sampler=batches, batch_size=None)


# --- the model ------------------------------------------------------------------------------------


class Factors(torch.nn.Module):
    """A rating is the product of two vectors."""

    def __init__(self, users, films, l2):
        super().__init__()
        self.users, self.films, self.l2 = users, films, l2

    def forward(self, users, films, wanted):
        """The loss: squared errors, and what keeps vectors of few ratings short."""
        u, f = self.users(users), self.films(films)
        errors = (u * f).sum(-1) - wanted
        return (errors.square() + self.l2 * (u.square() + f.square()).sum(-1)).mean()


def begin(rows):
    """What vectors begin with."""
    torch.nn.init.normal_(rows, std=0.1)


# --- training with the store ----------------------------------------------------------------------


def with_store(options, seed, meter):
    data, comm = options.data, weft.init().comm
    train, test = generate(data, seed)
    mine = Ratings(*(x[train.users % comm.size == comm.rank] for x in train))
    how = {"optimizer": weft.optim.Adagrad(lr=data.lr), "init": begin}
    users = weft.nn.StoreEmbedding(data.users, data.width, **how)
    films = weft.nn.StoreEmbedding(data.films, data.width, **how)
    model = Factors(users, films, data.l2)
    stores = users.worker, films.worker

    untrained = evaluated(test, *stores)
    for _ in range(options.epochs):
        with meter.epoch(*stores):
            batches = loader_of(mine, data.batch)
            if options.intent:
                of_both = [users, films]
                batches = weft.nn.IntentLoader(batches, of_both, lambda b: b[:2], options.ahead)
            for batch in batches:
                model(*batch).backward()  # pushes the gradients: that is all
    found = report(evaluated(test, *stores), untrained)
    for store in stores:
        store.finalize()
    return found


# --- the same with plain torch --------------------------------------------------------------------


def with_torch(options, seed, meter):
    data = options.data
    train, test = generate(data, seed)
    tables = [torch.nn.Embedding(n, data.width, sparse=True) for n in (data.users, data.films)]
    for table in tables:
        begin(table.weight)
    model = Factors(*tables, data.l2)
    adagrad = torch.optim.Adagrad(model.parameters(), lr=data.lr)
    untrained = rmse(test, *(table.weight for table in tables))
    for _ in range(options.epochs):
        with meter.epoch():
            for batch in loader_of(train, data.batch):
                adagrad.zero_grad()
                model(*batch).backward()
                adagrad.step()
    return report(rmse(test, *(table.weight for table in tables)), untrained)


# --- how good it is -------------------------------------------------------------------------------


def evaluated(test, users, films):
    """Rank 0 evaluates what all have pushed; the others return nothing. Collective."""
    settle(users, films)
    if users.rank != 0:
        return None
    rows = [store.pull(torch.arange(store.num_keys)) for store in (users, films)]
    return rmse(test, *rows)


@torch.no_grad()
def rmse(test, users, films):
    errors = (users[test.users] * films[test.films]).sum(-1) - test.values
    return errors.square().mean().sqrt().item()


def report(found, untrained):
    if found is None:
        return None
    return {
        "quality": found,
        "measures": {"RMSE": found, "RMSE untrained": untrained, "RMSE of the noise": NOISE},
    }


if __name__ == "__main__":
    application.run("mf", application.parse(__doc__, SIZES), with_store, with_torch)
