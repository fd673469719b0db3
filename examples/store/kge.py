# SPDX-License-Identifier: Apache-2.0
"""Knowledge-graph embeddings: ComplEx with negative samples that the store draws.

    python examples/store/kge.py                          # alone
    python examples/store/kge.py --hosts 2 --no-intent    # on hosts that are made for it
    torchrun --nproc-per-node 2 examples/store/kge.py     # or mpirun, srun, ...

The graph is generated. Entities lie on a circle, 10 at each place, and relation r leads from a
subject at place p to objects at place p + steps of r: so relations are not symmetric, chains of
them add up, and of the entities at the right place frequent ones are more likely. Subjects,
relations, and the objects of a place are drawn from Zipf distributions. Facts that were not shown
in training are to be completed, (s, r, ?) and (?, r, o): the filtered mean reciprocal rank of the
right answer, and how often it is among the first 1, 3 and 10. `plant` is what one who knows places
and frequencies would get.

Vectors are rows of two stores, which take steps of Adagrad with the gradients that backward pushes.
"""

import collections
from typing import NamedTuple

import application
import torch
import weft
from application import draw, settle, zipf
from torch.nn import functional

SIZES = {
    "small": dict(entities=500, relations=10, facts=30_000, test=500, width=16, batch=256,
                  negatives=64, lr=0.1, epochs=6),
    "full": dict(entities=3000, relations=40, facts=250_000, test=2000, width=32, batch=1024,
                 negatives=256, lr=0.1, epochs=6),
}  # fmt: skip
AT_A_PLACE = 10
COUNTED_NEGATIVES = 10  # what all negatives of a fact together count, each way


# --- the data -------------------------------------------------------------------------------------


class Graph(NamedTuple):
    """Facts (subject, relation, object), and the plant: how far each relation leads."""

    train: torch.Tensor
    test: torch.Tensor
    answers: dict  # all that is true of (s, r) and, as (o, -1 - r), of what leads to o
    steps: torch.Tensor
    places: int


def generate(data, seed):
    generator = torch.Generator().manual_seed(seed)
    places = data.entities // AT_A_PLACE
    steps = torch.randint(1, places, (data.relations,), generator=generator)
    subjects = draw(zipf(data.entities, 1.0), data.facts, generator)
    relations = draw(zipf(data.relations, 1.0), data.facts, generator)
    # Entity e is at place e % places: each place has frequent ones and rare ones.
    which = draw(zipf(AT_A_PLACE, 1.0), data.facts, generator)
    objects = which * places + (subjects + steps[relations]) % places
    facts = torch.stack([subjects, relations, objects], 1).unique(dim=0)
    facts = facts[torch.randperm(len(facts), generator=generator)]
    answers = collections.defaultdict(list)
    for s, r, o in facts.tolist():
        answers[s, r].append(o)
        answers[o, -1 - r].append(s)
    return Graph(facts[data.test :], facts[: data.test], answers, steps, places)


# --- the model ------------------------------------------------------------------------------------


def times(a, b, conjugate=False):
    """The product of complex vectors, each a real half and an imaginary one; of a with conj(b)."""
    (a_re, a_im), (b_re, b_im) = a.chunk(2, -1), b.chunk(2, -1)
    b_im = -b_im if conjugate else b_im
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], -1)


def loss_of(s, r, o, negatives):
    """ComplEx says Re<s, r, conj(o)>, which is s r . o and also o conj(r) . s as real vectors."""
    to_object, to_subject = times(s, r), times(o, r, conjugate=True)
    true = functional.softplus(-(to_object * o).sum(-1))
    scores = torch.cat([to_object @ negatives.T, to_subject @ negatives.T], -1)
    false = functional.softplus(scores).sum(-1) * (COUNTED_NEGATIVES / len(negatives))
    return (2 * true + false).mean()


# --- training with the store ----------------------------------------------------------------------


def with_store(options, seed, meter):
    data, comm = options.data, weft.init().comm
    graph = generate(data, seed)
    mine = graph.train[comm.rank :: comm.size]
    # A batch uses a third of all entities: there must be room for copies, two rows each, of most.
    entities, relations = (
        weft.nn.StoreEmbedding(
            number,
            2 * data.width,
            optimizer=weft.optim.Adagrad(lr=data.lr),
            init=begin,
            seed=seed,
            cache=2 * number,
        )
        for number in (data.entities, data.relations)
    )
    stores = entities.worker, relations.worker
    entities.worker.enable_sampling(options.sampling, "uniform")

    untrained = evaluated(graph, *stores)
    for _ in range(options.epochs):
        with meter.epoch(*stores):
            # Both stores hear of a batch, and of the samples for it, `ahead` batches before.
            loader = weft.nn.IntentLoader(
                mine[torch.randperm(len(mine))].split(data.batch),
                stores,
                (lambda batch: (batch[:, [0, 2]], batch[:, 1])) if options.intent else None,
                options.ahead,
                samples=(entities, data.negatives),
            )
            for batch, sample in loader:
                s, r, o = batch.T
                drawn, negatives = entities.worker.pull_sample(sample, data.negatives)
                negatives.requires_grad_()
                loss_of(entities(s), relations(r), entities(o), negatives).backward()
                entities.push_gradients(drawn, negatives.grad)
    found = report(graph, evaluated(graph, *stores), untrained)
    for store in stores:
        store.finalize()
    return found


def begin(rows):
    """What vectors begin with."""
    torch.nn.init.normal_(rows, std=0.2)


# --- the same with plain torch --------------------------------------------------------------------


def with_torch(options, seed, meter):
    data = options.data
    graph = generate(data, seed)
    entities, relations = (
        torch.nn.Embedding(number, 2 * data.width, sparse=True)
        for number in (data.entities, data.relations)
    )
    for table in (entities, relations):
        begin(table.weight)
    adagrad = torch.optim.Adagrad([entities.weight, relations.weight], lr=data.lr)
    untrained = evaluate(graph, entities.weight, relations.weight)
    for _ in range(options.epochs):
        with meter.epoch():
            for batch in graph.train[torch.randperm(len(graph.train))].split(data.batch):
                s, r, o = batch.T
                negatives = entities(torch.randint(data.entities, (data.negatives,)))
                adagrad.zero_grad()
                loss_of(entities(s), relations(r), entities(o), negatives).backward()
                adagrad.step()
    return report(graph, evaluate(graph, entities.weight, relations.weight), untrained)


# --- how good it is -------------------------------------------------------------------------------


def evaluated(graph, entities, relations):
    """Rank 0 evaluates what all have pushed; the others return nothing. Collective."""
    settle(entities, relations)
    if entities.rank != 0:
        return None
    rows = [store.pull(torch.arange(store.num_keys)) for store in (entities, relations)]
    return evaluate(graph, *rows)


@torch.no_grad()
def evaluate(graph, entities, relations):
    s, r, o = graph.test.T
    objects = times(entities[s], relations[r]) @ entities.T
    subjects = times(entities[o], relations[r], conjugate=True) @ entities.T
    return measures(graph, objects, subjects)


def measures(graph, objects, subjects):
    """Of scores of all entities, as objects and as subjects of the facts to be completed."""
    s, r, o = graph.test.T
    ranks = torch.cat([ranks_of(o, objects, graph, s, r), ranks_of(s, subjects, graph, o, -1 - r)])
    hits = {f"Hits@{k}": (ranks <= k).double().mean().item() for k in (1, 3, 10)}
    return {"MRR": (1 / ranks).mean().item(), **hits}


def ranks_of(right, scores, graph, given, relations):
    """The rank of the right answer among those that are not true, too: "filtered"."""
    mine = scores.gather(1, right[:, None])
    for row, question in enumerate(zip(given.tolist(), relations.tolist(), strict=True)):
        scores[row, graph.answers[question]] = -torch.inf
    # Of equal scores half come before: one that scores all alike is no good.
    return 1 + (scores > mine).sum(1) + (scores == mine).sum(1) / 2


def plant(graph, entities):
    """What one gets who knows places and frequencies."""
    s, r, o = graph.test.T
    frequent = -torch.arange(entities) / entities
    places = torch.arange(entities) % graph.places
    ahead, back = ((end + way * graph.steps[r]) % graph.places for end, way in ((s, 1), (o, -1)))
    return measures(graph, *(frequent + (places == at[:, None]) for at in (ahead, back)))


def report(graph, found, untrained):
    if found is None:
        return None
    best = plant(graph, int(1 + graph.train[:, [0, 2]].max()))
    return {
        "quality": found["MRR"],
        "measures": {**found, "MRR untrained": untrained["MRR"], "MRR of the plant": best["MRR"]},
    }


if __name__ == "__main__":
    application.run("kge", application.parse(__doc__, SIZES), with_store, with_torch)
