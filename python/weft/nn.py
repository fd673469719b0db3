# SPDX-License-Identifier: Apache-2.0
"""weft.nn: embeddings on a table that all ranks share.

    emb = weft.nn.Embedding(10_000_000, 128)
    sgd = weft.optim.Adagrad(emb, lr=0.1)
    emb(ids).sum().backward()
    sgd.step()

The table is not a Parameter, because its gradient would be as large as itself.
Backward only collects row numbers and the gradients of these rows; the
optimizers of weft.optim send them to the ranks that own the rows. So
`model.parameters()` has the dense parameters, for torch.optim and
DistributedDataParallel, and `weft.optim.SGD(model)` finds the tables.

    emb = weft.nn.StoreEmbedding(10_000_000, 128, optimizer=weft.optim.Adagrad(lr=0.1))
    for batch in weft.nn.IntentLoader(loader, emb, lambda batch: batch.ids):
        emb(batch.ids).sum().backward()

trains asynchronously: the rows are in a weft.Store, and backward pushes gradients to it.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

from weft import _agree, _create, _missing, _rows

try:
    import torch
except ModuleNotFoundError as error:
    raise _missing.torch("weft.nn", error) from None

import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from weft import _modules
from weft._cache import Cache
from weft._core import Comm, InvalidError
from weft._dealing import Dealing
from weft._intent_loader import IntentLoader
from weft._region import Region, whole_region
from weft._store_embedding import StoreEmbedding

Init = Callable[[torch.Tensor], Any]


class Table(torch.nn.Module):
    """The base class of Embedding and EmbeddingBag: the rows and their gradients."""

    def __init__(self, rows: Region, padding_idx: int | None = None, frozen: bool = False) -> None:
        super().__init__()
        if len(rows.shape) != 2:
            raise InvalidError(f"the table has shape {rows.shape}; it must have two dimensions")
        if not (isinstance(rows.dtype, torch.dtype) and rows.dtype.is_floating_point):
            raise InvalidError(f"the table has type {rows.dtype}; it must be a floating-point type")
        if rows.comm is None:
            raise InvalidError("this process is not a rank of the table")
        self.rows = rows
        self.comm: Comm = rows.comm
        self.padding_idx = _modules.padding(padding_idx, rows.shape[0])
        self.frozen = frozen
        self.average = False
        self.cache: Cache | None = None
        self._collected: list[tuple[torch.Tensor, torch.Tensor]] = []
        # It makes autograd call backward, although no other tensor requires grad.
        self._anchor = torch.zeros((), requires_grad=True)

    @property
    def num_embeddings(self) -> int:
        """The number of rows."""
        return self.rows.shape[0]

    @property
    def embedding_dim(self) -> int:
        """The length of a row."""
        return self.rows.shape[1]

    @property
    def weight(self) -> torch.Tensor:
        """All rows as one tensor, if the table is flat (see weft.Region.flat)."""
        return self.rows.tensor

    # Gradients.

    def look_up(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows `ids`; their gradients are collected."""
        if self.frozen or not torch.is_grad_enabled():
            return self._gather(ids)
        return _LookUp.apply(self._anchor, self, ids)

    def _gather(self, ids: torch.Tensor) -> torch.Tensor:
        if self.cache is not None:
            return self.cache.gather(ids)
        return _rows.gather(self.rows, ids)

    def collect(self, ids: torch.Tensor, grads: torch.Tensor) -> None:
        """Keep the gradients of the rows `ids` for the next step. Negative ids are ignored."""
        numbers = ids.detach().reshape(-1)
        if self.padding_idx is not None:
            numbers = numbers.masked_fill(numbers == self.padding_idx, -1)
        self._collected.append((numbers, grads.detach().reshape(-1, self.embedding_dim)))

    def collected(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return (ids, gradients) of this rank in the order collected, or None."""
        if not self._collected:
            return None
        if len(self._collected) > 1:
            wide = any(ids.dtype == torch.int64 for ids, _ in self._collected)
            kind = torch.int64 if wide else torch.int32
            where = self._collected[0][0].device
            ids = torch.cat([ids.to(where, kind) for ids, _ in self._collected])
            grads = torch.cat([grads.to(where) for _, grads in self._collected])
            self._collected = [(ids, grads)]
        return self._collected[0]

    def keep_only(self, rows: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Replace all collected gradients by (ids, gradients)."""
        self._collected = [rows]

    def has_only(self, rows: tuple[torch.Tensor, torch.Tensor]) -> bool:
        """Was nothing collected since keep_only(rows)?"""
        return len(self._collected) == 1 and self._collected[0] is rows

    @property
    def grad(self) -> torch.Tensor | None:
        """The gradients that this rank has collected, as a sparse tensor of the table's shape."""
        found = self.collected()
        if found is None:
            return None
        ids, grads = found
        kept = ids >= 0
        return torch.sparse_coo_tensor(
            ids[kept][None].long(), grads[kept], self.rows.shape, check_invariants=True
        )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Discard the collected gradients."""
        super().zero_grad(set_to_none)
        self._collected = []

    # Saving and loading.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a file; each rank writes its part. Collective."""
        self.rows.save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Fill the table from a file of save(), from any number of ranks. Collective."""
        self.rows.load(path)
        self.comm.barrier()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = all_rows(self.rows)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        *problems: list[str],
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *problems)
        missing_keys, unexpected_keys, error_msgs = problems
        name = prefix + "weight"
        given = state_dict.get(name)
        if name in unexpected_keys:
            unexpected_keys.remove(name)
        if given is None:
            missing_keys.extend([name] if strict else [])
        elif tuple(given.shape) != self.rows.shape:
            error_msgs.append(
                f"{name} has shape {tuple(given.shape)}, but the table has shape {self.rows.shape}"
            )
        else:
            set_own_rows(self.rows, given)
        self.comm.barrier()

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}, {self.rows.ranks} ranks"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


class Embedding(Table):
    """torch.nn.Embedding on a table that all ranks share.

    Collective; all ranks pass the same arguments. Each rank initializes its rows by
    `init`, by default from the normal distribution.

    padding_idx: a row that starts as zeros and is not trained
    dtype:       float32, float16 or bfloat16; a table that is not trained may be float64
    partition, device, comm, ...: see weft.empty
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        dtype: torch.dtype | None = None,
        device: Any = "cpu",
        partition: Any = "equal",
        comm: Comm | None = None,
        init: Init | None = None,
        **more: Any,
    ) -> None:
        more |= {"device": device, "partition": partition, "comm": comm}
        rows = _made("weft.nn.Embedding", num_embeddings, embedding_dim, dtype, more)
        super().__init__(rows, padding_idx)
        _fill(self, init or torch.nn.init.normal_)

    @classmethod
    def from_pretrained(
        cls, table: Any, freeze: bool = True, padding_idx: int | None = None
    ) -> "Embedding":
        """On a table that is there already: a tensor of weft.empty or from_file, or a Region."""
        made = cls.__new__(cls)
        Table.__init__(made, whole_region(table), padding_idx, freeze)
        return made

    @_modules.not_compiled
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows `ids`, of shape ids.shape + (embedding_dim,). A negative id is a zero row."""
        return self.look_up(_rows.numbers(ids))


class EmbeddingBag(Table):
    """torch.nn.EmbeddingBag on a table that all ranks share: sums, means or maxima of rows.

    The arguments are those of Embedding. Padding and negative ids are not part of a bag.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        mode: str = "mean",
        padding_idx: int | None = None,
        *,
        include_last_offset: bool = False,
        dtype: torch.dtype | None = None,
        device: Any = "cpu",
        partition: Any = "equal",
        comm: Comm | None = None,
        init: Init | None = None,
        **more: Any,
    ) -> None:
        self._check_mode(mode)
        more |= {"device": device, "partition": partition, "comm": comm}
        rows = _made("weft.nn.EmbeddingBag", num_embeddings, embedding_dim, dtype, more)
        super().__init__(rows, padding_idx)
        self.mode = mode
        self.include_last_offset = include_last_offset
        _fill(self, init or torch.nn.init.normal_)

    @classmethod
    def from_pretrained(
        cls,
        table: Any,
        freeze: bool = True,
        mode: str = "mean",
        padding_idx: int | None = None,
        *,
        include_last_offset: bool = False,
    ) -> "EmbeddingBag":
        """On a table that is there already: a tensor of weft.empty or from_file, or a Region."""
        cls._check_mode(mode)
        made = cls.__new__(cls)
        Table.__init__(made, whole_region(table), padding_idx, freeze)
        made.mode = mode
        made.include_last_offset = include_last_offset
        return made

    @staticmethod
    def _check_mode(mode: str) -> None:
        if mode not in ("sum", "mean", "max"):
            raise InvalidError(f"mode is {mode!r}; it must be 'sum', 'mean' or 'max'")

    @_modules.not_compiled
    def forward(
        self,
        ids: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return a row for each bag: a row of two-dimensional `ids`, or the ids between offsets.

        Each row of the table is fetched once, even if it is in many bags.
        """
        ids = _rows.numbers(ids)
        left_out = ids < 0
        if self.padding_idx is not None:
            left_out |= ids == self.padding_idx
        distinct, positions = torch.unique(ids.masked_fill(left_out, -1), return_inverse=True)
        padded = distinct.numel() > 0 and int(distinct[0]) == -1
        if distinct.numel() == 0:  # torch requires a row, even if it is unused
            distinct = distinct.new_full((1,), -1)
        return F.embedding_bag(
            positions,
            self.look_up(distinct),
            None if offsets is None else offsets.to(positions.dtype),
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=0 if padded else None,
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"


class _LookUp(torch.autograd.Function):
    """Look up rows of a table, which collects their gradients."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, table: Table, ids: torch.Tensor) -> torch.Tensor:
        ctx.table = table
        ctx.save_for_backward(ids)
        return table._gather(ids)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: torch.Tensor) -> tuple[None, None, None]:
        ctx.table.collect(ctx.saved_tensors[0], grads)
        return None, None, None


def tables(module: torch.nn.Module) -> Iterator[Table]:
    """Yield the tables of a module that are trained, in the order of modules()."""
    for part in module.modules():
        if isinstance(part, Table) and not part.frozen:
            yield part


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """torch.nn.utils.clip_grad_norm_ for dense parameters and tables together. Collective.

    `parameters` is a module with its parameters and tables, or an iterable of modules,
    tables and tensors. The norm is that of one vector of all gradients: of a table
    those that a step would use, summed or averaged over all ranks. If dense gradients
    differ between ranks, the largest norm is used on all.
    """
    from weft.optim import _clip

    return _clip.clip(parameters, float(max_norm), float(norm_type), error_if_nonfinite)


def all_rows(rows: Region) -> torch.Tensor:
    """Return all rows: the memory itself if the table is flat, otherwise a copy. Not collective."""
    if rows.flat:
        return rows.tensor
    return _rows.gather(rows, torch.arange(rows.shape[0], device=rows.device))


def set_own_rows(rows: Region, given: torch.Tensor) -> None:
    """Copy the rows that this rank owns from a tensor of all rows."""
    if rows.partition != "round_robin":
        with torch.no_grad():
            for part, (first, after) in zip(rows.locals, rows.ranges(), strict=True):
                part.copy_(given[first:after])
        settle(rows)
        return
    ids = torch.arange(rows.shape[0])
    ids = ids[Dealing(rows).owner_of(ids) == rows.rank]
    values = given[ids.to(given.device)].to(rows.device, rows.dtype)
    _rows.scatter(rows, ids.to(rows.device), values.contiguous())
    settle(rows)


def settle(rows: Region) -> None:
    """Wait for this process's GPU work on a table in a GPU's memory."""
    if rows.device != "cpu":
        torch.cuda.current_stream(rows.device).synchronize()


def _made(who: str, rows: int, width: int, dtype: Any, more: dict[str, Any]) -> Region:
    for name in ("max_norm", "norm_type", "scale_grad_by_freq", "sparse"):
        if name in more:
            raise TypeError(
                f"{who} has no argument {name!r}, unlike torch's: see docs/guide/embeddings.md"
            )
    _create.check_names(who, more, "device", "partition", "comm")
    return _create.table((rows, width), dtype or torch.get_default_dtype(), **more)


def _fill(table: Table, init: Init) -> None:
    """Initialize the rows of this rank. Ranks with the same seed must not get equal rows."""
    seed = _modules.shared_seed(table.comm)
    _agree.together(table.comm, lambda: _fill_own(table, init, seed))


def _fill_own(table: Table, init: Init, seed: int) -> None:
    rows = table.rows
    with _modules.own_random_numbers(seed + rows.rank, rows.device), torch.no_grad():
        for part in rows.locals:
            if part.numel():
                init(part)
    padding = table.padding_idx
    if padding is not None and rows.locate(padding)[0] == rows.rank:
        zero = torch.zeros((1, rows.shape[1]), dtype=rows.dtype, device=rows.device)
        _rows.scatter(rows, torch.tensor([padding], device=rows.device), zero)
    settle(rows)


__all__ = [
    "Embedding",
    "EmbeddingBag",
    "IntentLoader",
    "StoreEmbedding",
    "Table",
    "clip_grad_norm_",
    "tables",
]
