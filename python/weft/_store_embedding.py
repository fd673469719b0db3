# SPDX-License-Identifier: Apache-2.0
"""weft.nn.StoreEmbedding: a weft.Store in a model."""

import math
import numbers
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from weft import _gradients, _job, _modules, _rows
from weft._core import Comm, InvalidError
from weft._store import Store, Worker, whole


class StoreEmbedding(torch.nn.Module):
    """torch.nn.Embedding whose rows are those of a weft.Store.

    Backward pushes the gradients of the rows that were looked up, each row once: the
    store's optimizer takes its step, or -lr times the gradient is added. So there is no
    step() to call, and ranks need not wait for each other. The rows are no part of
    state_dict(): see save().

    Making one is collective; all ranks give the same arguments.

    padding_idx: a row that begins as zeros and is not trained
    lr:          of plain steps; it may be changed later. Without it the store has an optimizer
    init:        fills a tensor of rows; by default from the normal distribution
    more:        as of weft.Store
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        lr: float | None = None,
        optimizer: Any = None,
        dtype: torch.dtype | None = None,
        comm: Comm | None = None,
        init: Callable[[torch.Tensor], Any] | None = None,
        **more: Any,
    ) -> None:
        super().__init__()
        kind = dtype or torch.get_default_dtype()
        if not (isinstance(kind, torch.dtype) and kind.is_floating_point):
            raise InvalidError(
                f"dtype is {kind!r}; an embedding needs floating rows, by a type of torch"
            )
        if init is not None and not callable(init):
            raise InvalidError(f"init is {init!r:.60}; it must be a function that fills a tensor")
        if more.get("hashed"):
            raise InvalidError(
                "rows of hashed keys cannot be filled before: use StoreEmbedding.from_store"
            )
        embedding_dim = whole("embedding_dim", embedding_dim)
        num_embeddings = whole("num_embeddings", num_embeddings)
        ranks = _job.init().comm if comm is None else comm
        padding = _modules.padding(padding_idx, num_embeddings)
        fill = init or torch.nn.init.normal_
        seed = _modules.shared_seed(ranks)

        def first_rows(keys: torch.Tensor) -> torch.Tensor:
            rows = torch.empty((len(keys), embedding_dim), dtype=kind)
            with _modules.own_random_numbers(seed + int(keys[0]), "cpu"), torch.no_grad():
                fill(rows)
            return rows if padding is None else rows.masked_fill_((keys == padding)[:, None], 0)

        _check_training(lr, optimizer is not None)
        store = Store(
            num_embeddings,
            embedding_dim,
            dtype=kind,
            comm=ranks,
            optimizer=optimizer,
            init=first_rows,
            **more,
        )
        self._take(store, padding, lr)

    @classmethod
    def from_store(
        cls,
        worker: Worker,
        *,
        lr: float | None = None,
        padding_idx: int | None = None,
        freeze: bool = False,
    ) -> "StoreEmbedding":
        """On a store that is there already, or on a worker of it, as each thread needs one."""
        if not isinstance(worker, Worker):
            raise InvalidError(
                f"worker is {worker!r:.60}; it must be a weft.Store or a worker of one"
            )
        values = worker._values
        if values.length is None or "float" not in values.name:
            raise InvalidError("an embedding needs a store of floating rows of one length")
        if not freeze:
            _check_training(lr, values.trained)
        about = worker._whole.describe()
        if not about["hashed"]:
            padding_idx = _modules.padding(padding_idx, about["keys"])
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)
        made._take(worker, padding_idx, lr, freeze)
        return made

    def _take(
        self, worker: Worker, padding_idx: int | None, lr: float | None, frozen: bool = False
    ) -> None:
        self.worker = worker
        self.padding_idx = padding_idx
        self.lr = lr
        self.frozen = frozen
        # Makes autograd call backward, though no tensor that it knows has a gradient.
        self._anchor = torch.zeros((), requires_grad=True)

    @property
    def num_embeddings(self) -> int:
        """How many rows there are."""
        return self.worker._whole.describe()["keys"]

    @property
    def embedding_dim(self) -> int:
        """How long a row is."""
        length = self.worker._values.length
        assert length is not None
        return length

    @property
    def dtype(self) -> torch.dtype:
        """The type of the rows."""
        return getattr(torch, self.worker._values.name)

    @_modules.not_compiled
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows `ids`, of shape ids.shape + (embedding_dim,), on the device of the ids."""
        numbers = _rows.numbers(ids)
        if self.frozen or not torch.is_grad_enabled():
            return self._pull(numbers)
        return _LookUp.apply(self._anchor, self, numbers)

    def _pull(self, ids: torch.Tensor) -> torch.Tensor:
        return self.worker.pull(ids.cpu()).to(ids.device)

    def push_gradients(self, ids: torch.Tensor, grads: torch.Tensor) -> None:
        """What backward does: sum the gradients of equal ids, and push them."""
        keys = ids.detach().reshape(-1).cpu()
        if grads.numel() != keys.numel() * self.embedding_dim:
            raise InvalidError(
                f"grads have {grads.numel()} elements, but {keys.numel()} rows of "
                f"{self.embedding_dim} have {keys.numel() * self.embedding_dim}"
            )
        rows = grads.detach().reshape(-1, self.embedding_dim).cpu()
        if self.padding_idx is not None:
            trained = keys != self.padding_idx
            keys, rows = keys[trained], rows[trained]
        if len(keys) == 0:  # an empty batch, or one of nothing but padding
            return
        keys, sums = _summed(keys, rows)
        if self.lr is not None:
            sums = sums.mul_(-self.lr)
        self.worker.push(keys, sums.to(self.dtype), async_=True)

    def wait(self) -> None:
        """Wait until all gradients have been taken; raises what went wrong with one."""
        self.worker.wait_all()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rows, with the optimizer's state, to a file. Collective."""
        self.wait()
        self.worker._whole.save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Fill the rows from a file of save(). Collective."""
        self.worker._whole.load(path)

    def extra_repr(self) -> str:
        if self.worker._whole.closed:
            return "finalized" if self.worker._whole.finalized else "closed"
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        text = text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"
        return text if self.lr is None else f"{text}, lr={self.lr}"


class _LookUp(torch.autograd.Function):
    """Rows of a store, whose gradients are pushed to it."""

    @staticmethod
    def forward(
        ctx: Any, anchor: torch.Tensor, module: StoreEmbedding, ids: torch.Tensor
    ) -> torch.Tensor:
        ctx.module = module
        ctx.save_for_backward(ids)
        return module._pull(ids)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: torch.Tensor) -> tuple[None, None, None]:
        ctx.module.push_gradients(ctx.saved_tensors[0], grads)
        return None, None, None


def _check_training(lr: float | None, has_optimizer: bool) -> None:
    if (lr is None) != has_optimizer:
        raise InvalidError("give lr, or a store with an optimizer, and not both")
    if lr is not None and not (isinstance(lr, numbers.Real) and 0 <= lr < math.inf):
        raise InvalidError(f"lr is {lr!r:.60}; it must be a finite number that is not negative")


def _summed(keys: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Distinct keys, and the sums of their rows."""
    plain = rows.dtype in (torch.float32, torch.float16, torch.bfloat16)
    if plain and not bool((keys < 0).any()):
        return _gradients.sum_equal(keys, rows, 0)
    distinct, places = torch.unique(keys, return_inverse=True)
    sums = torch.zeros((len(distinct), rows.shape[1]), dtype=rows.dtype)
    return distinct, sums.index_add_(0, places, rows)
