# SPDX-License-Identifier: Apache-2.0
"""weft.nn.IntentLoader: batches of a loader that a store hears of before they are used."""

import collections
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

import torch

from weft._core import InvalidError
from weft._store import Worker, whole
from weft._store_embedding import StoreEmbedding

_Worker = Worker | StoreEmbedding


class IntentLoader:
    """The batches of `loader`, whose keys are announced to the store `ahead` batches early.

    By the time a batch is used its rows are on this host. Each batch is a tick of the
    worker's clock, which is advanced when the next batch is asked for.

    worker:  a weft.Store, a worker of one, or a StoreEmbedding; or a list of them
    keys_of: gives the keys of a batch; of a list of workers, a tuple with those for each;
             None: nothing is announced
    samples: (worker, n): with each batch n samples of this one of the workers are prepared,
             and the loader yields (batch, id) for worker.pull_sample(id, n)
    """

    def __init__(
        self,
        loader: Iterable[Any],
        worker: _Worker | list[_Worker] | tuple[_Worker, ...],
        keys_of: Callable[[Any], Any] | None,
        ahead: int = 20,
        samples: tuple[_Worker, int] | None = None,
    ) -> None:
        self.loader = loader
        self.ahead = whole("ahead", ahead)
        if self.ahead < 0:
            raise InvalidError(f"ahead is {ahead}; it must not be negative")
        if keys_of is not None and not callable(keys_of):
            raise InvalidError(f"keys_of is {keys_of!r:.60}; it must be a function of a batch")
        self._several = isinstance(worker, (list, tuple))
        self._keys_of = keys_of
        self._workers = [
            _worker_of(each) for each in (worker if isinstance(worker, (list, tuple)) else [worker])
        ]
        self._samples = None if samples is None else self._checked(samples)

    def _checked(self, samples: tuple[_Worker, int]) -> tuple[Worker, int]:
        if not (isinstance(samples, tuple) and len(samples) == 2):
            raise InvalidError(f"samples is {samples!r:.60}; it must be (worker, n)")
        worker, n = _worker_of(samples[0]), whole("n of samples", samples[1])
        if not any(worker is each for each in self._workers):
            raise InvalidError("samples are drawn by one of the workers that the loader has")
        return worker, n

    def __len__(self) -> int:
        if not isinstance(self.loader, Sized):
            raise TypeError(f"a {type(self.loader).__name__} has no length")
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        announced: collections.deque[Any] = collections.deque()
        try:
            for batch in self.loader:
                announced.append(self._announce(batch, len(announced)))
                if len(announced) > self.ahead:
                    yield announced[0]
                    self._advance(announced)
            while announced:
                yield announced[0]
                self._advance(announced)
        finally:
            # A loop that was left early: the clocks pass the batches that will not be used.
            while announced:
                self._forget_sample(announced[0])
                self._advance(announced)

    def _announce(self, batch: Any, ticks: int) -> Any:
        """The batch will be used when the clocks have been advanced `ticks` times.

        Returns what is to be yielded then.
        """
        if self._keys_of is not None:
            self._announce_keys(self._keys_of(batch), ticks)
        if self._samples is None:
            return batch
        worker, n = self._samples
        return batch, worker.prepare_sample(n, worker.current_clock + ticks)

    def _announce_keys(self, found: Any, ticks: int) -> None:
        found = tuple(found) if self._several else (found,)
        if len(found) != len(self._workers):
            raise InvalidError(
                f"keys_of gave {len(found)} arrays of keys for {len(self._workers)} workers"
            )
        for worker, keys in zip(self._workers, found, strict=True):
            clock = worker.current_clock + ticks
            on_host = keys.cpu() if isinstance(keys, torch.Tensor) else keys
            worker.intent(on_host, clock, clock + 1)

    def _forget_sample(self, announced: Any) -> None:
        if self._samples is not None:
            with contextlib.suppress(InvalidError):  # it was used up
                self._samples[0].finish_sample(announced[1])

    def _advance(self, announced: collections.deque[Any]) -> None:
        announced.popleft()
        for worker in self._workers:
            worker.advance_clock()


def _worker_of(given: Any) -> Worker:
    worker = given.worker if isinstance(given, StoreEmbedding) else given
    if not hasattr(worker, "intent"):
        raise InvalidError(
            f"worker is {worker!r:.60}; it must be a weft.Store, a worker of one, or a "
            "StoreEmbedding"
        )
    return worker
