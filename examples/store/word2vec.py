# SPDX-License-Identifier: Apache-2.0
"""Word vectors: skip-gram with negative samples that the store draws.

    python examples/store/word2vec.py                          # alone
    python examples/store/word2vec.py --hosts 2 --no-intent    # on hosts that are made for it
    torchrun --nproc-per-node 2 examples/store/word2vec.py     # or mpirun, srun, ...

The text is generated. Each word has a topic, each sentence too; some of a sentence's words are of
its topic, the others are any. Both are drawn from Zipf distributions, so that each topic has
frequent words and rare ones. Words of a topic are then found in the same company, and should get
similar vectors: of the 10 nearest neighbours of a word, by the cosine, the share that has its topic
(`purity`) is what counts, over all words that occur 10 times or more.

Input and output vectors are rows of two stores to which pushes are added: the step of Adagrad is
taken here, and its sums of squares lie behind the vector in the same row. So a push to a row that
is copied to this host stays on this host, and the store brings copies together.
"""

from typing import NamedTuple

import application
import torch
import weft
from application import draw, settle, zipf

SIZES = {
    "small": dict(words=1000, topics=20, sentences=4000, width=16, batch=1024, negatives=32,
                  lr=0.1, epochs=4),
    "full": dict(words=5000, topics=50, sentences=15_000, width=32, batch=1024, negatives=64,
                 lr=0.1, epochs=8),
}  # fmt: skip
SENTENCE = 12  # words
TOPICAL = 0.5  # of the words of a sentence are of its topic
WINDOW = 2  # words on each side that a word is to predict
COUNTED_NEGATIVES = 5  # what all negatives of a pair together count
NEIGHBOURS, LEAST = 10, 10
EPSILON = 1e-10


# --- the data -------------------------------------------------------------------------------------


class Text(NamedTuple):
    sentences: torch.Tensor
    counts: torch.Tensor
    topics: torch.Tensor  # of the words: the plant


def generate(data, seed):
    generator = torch.Generator().manual_seed(seed)
    shape = data.sentences, SENTENCE
    any_word = draw(zipf(data.words, 1.0), shape, generator)
    # Word w has topic w % topics; the k-th of a topic is drawn with Zipf's probability, too.
    which = draw(zipf(data.words // data.topics, 1.0), shape, generator)
    topic = torch.randint(data.topics, (data.sentences, 1), generator=generator)
    topical = torch.rand(shape, generator=generator) < TOPICAL
    sentences = torch.where(topical, which * data.topics + topic, any_word)
    counts = torch.bincount(sentences.flatten(), minlength=data.words)
    return Text(sentences, counts, torch.arange(data.words) % data.topics)


def batches_of(sentences, size):
    """Pairs of a word and one in its window, sentence after sentence in another order each time.

    So the pairs of a batch have words in common: fewer rows to pull, and to announce.
    """
    some = sentences[torch.randperm(len(sentences))]
    places = torch.tensor(
        [(i, j) for i in range(SENTENCE) for j in range(SENTENCE) if 0 < abs(i - j) <= WINDOW]
    )
    return some[:, places].flatten(0, 1).split(size)


# --- the model ------------------------------------------------------------------------------------


def gradients(word, context, negatives):
    """Of the loss -log s(w.c) - sum log s(-w.n), for the three kinds of vectors."""
    true = torch.sigmoid((word * context).sum(-1, keepdim=True)) - 1
    false = torch.sigmoid(word @ negatives.T) * (COUNTED_NEGATIVES / len(negatives))
    return true * context + false @ negatives, true * word, false.T @ word


def adagrad(sums, gradient, lr):
    """What is added to vectors and to their sums of squares."""
    square = gradient.square()
    return torch.cat([-lr * gradient / (sums + square + EPSILON).sqrt(), square], -1)


def summed(keys, places, gradient):
    """Gradients of equal keys are one gradient: a row takes one step."""
    return gradient.new_zeros(len(keys), gradient.shape[-1]).index_add_(0, places, gradient)


def first_rows(data, seed):
    """Of both tables: vectors that begin small, and sums of squares that begin as zeros."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(2):
        vectors = 0.1 * torch.randn(data.words, data.width, generator=generator)
        yield torch.cat([vectors, torch.zeros_like(vectors)], -1)


def step(pull, push, batch, drawn, data):
    """Train on pairs and negatives, by whatever pulls rows of a table and adds to them.

    Each row that the batch needs is pulled once, changed once and pushed once.
    """
    words, at = batch[:, 0].unique(return_inverse=True)
    others, place = torch.cat([batch[:, 1], drawn]).unique(return_inverse=True)
    inputs, outputs = pull("input", words), pull("output", others)
    vectors, sums = inputs.chunk(2, -1)
    contexts, context_sums = outputs.chunk(2, -1)
    of_context, of_negative = place.split([len(batch), len(drawn)])
    found = gradients(vectors[at], contexts[of_context], contexts[of_negative])
    push("input", words, adagrad(sums, summed(words, at, found[0]), data.lr))
    both = summed(others, place, torch.cat(found[1:]))
    push("output", others, adagrad(context_sums, both, data.lr))


# --- training with the store ----------------------------------------------------------------------


def with_store(options, seed, meter):
    data, comm = options.data, weft.init().comm
    text = generate(data, seed)
    mine = text.sentences[comm.rank :: comm.size]
    begin = first_rows(data, seed)
    inputs, outputs = (
        weft.Store(data.words, 2 * data.width, init=rows, seed=seed) for rows in begin
    )
    stores = {"input": inputs, "output": outputs}
    # As in word2vec: rarer words are drawn a little more often than they occur.
    outputs.enable_sampling(options.sampling, "weighted", weights=text.counts.double() ** 0.75)

    untrained = evaluated(text, inputs)
    for _ in range(options.epochs):
        with meter.epoch(inputs, outputs):
            # Both stores hear of a batch, and of the samples for it, `ahead` batches before.
            loader = weft.nn.IntentLoader(
                batches_of(mine, data.batch),
                [inputs, outputs],
                (lambda pairs: pairs.T) if options.intent else None,
                options.ahead,
                samples=(outputs, data.negatives),
            )
            for pairs, sample in loader:
                drawn, _ = outputs.pull_sample(sample, data.negatives)
                step(
                    lambda table, keys: stores[table].pull(keys),
                    lambda table, keys, more: stores[table].push(keys, more, async_=True),
                    *(pairs, drawn, data),
                )
    found = report(evaluated(text, inputs), untrained)
    for store in stores.values():
        store.finalize()
    return found


# --- the same with plain torch --------------------------------------------------------------------


def with_torch(options, seed, meter):
    data = options.data
    text = generate(data, seed)
    tables = dict(zip(("input", "output"), first_rows(data, seed), strict=True))
    weights = text.counts.double() ** 0.75
    untrained = purity(text, tables["input"])
    for _ in range(options.epochs):
        with meter.epoch():
            for pairs in batches_of(text.sentences, data.batch):
                step(
                    lambda table, keys: tables[table][keys],
                    lambda table, keys, more: tables[table].index_add_(0, keys, more),
                    *(pairs, torch.multinomial(weights, data.negatives, replacement=True), data),
                )
    return report(purity(text, tables["input"]), untrained)


# --- how good it is -------------------------------------------------------------------------------


def evaluated(text, inputs):
    """Rank 0 evaluates what all have pushed; the others return nothing. Collective."""
    settle(inputs)
    return purity(text, inputs.pull(torch.arange(inputs.num_keys))) if inputs.rank == 0 else None


def purity(text, rows):
    """The share of neighbours of a word that have its topic."""
    words = (text.counts >= LEAST).nonzero().flatten()
    vectors = torch.nn.functional.normalize(rows[words].chunk(2, -1)[0], dim=-1)
    alike = (vectors @ vectors.T).fill_diagonal_(-2)
    topics = text.topics[words]
    near = alike.topk(NEIGHBOURS).indices
    return (topics[near] == topics[:, None]).double().mean().item()


def report(found, untrained):
    return (
        None
        if found is None
        else {"quality": found, "measures": {"purity": found, "purity untrained": untrained}}
    )


if __name__ == "__main__":
    application.run("word2vec", application.parse(__doc__, SIZES), with_store, with_torch)
