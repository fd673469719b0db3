# SPDX-License-Identifier: Apache-2.0
"""The base class of the optimizers of tables."""

import collections
import functools
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from weft import _agree, _core, _create
from weft._core import InvalidError, UnsupportedError
from weft._dealing import Dealing
from weft._region import Region
from weft.nn import Table, all_rows, set_own_rows, settle, tables
from weft.optim import _exchange
from weft.optim._amp import Handle


class State(NamedTuple):
    """A table that an optimizer keeps beside the weights.

    name:   the name in torch
    narrow: one element per row, otherwise as wide as the weights
    """

    name: str
    narrow: bool = False
    dtype: torch.dtype = torch.float32


# What C takes a step by: kind, decoupled, lr, weight_decay, eps, alpha, beta1, beta2, step.
Rule = tuple[str, int, float, float, float, float, float, float, int]


class SparseOptimizer(torch.optim.Optimizer):
    """A torch optimizer for tables of weft.nn, which updates the rows that were touched.

    `tables` is a module that contains tables, or a list of tables and modules, or of
    groups: {"params": [table], "lr": 0.1}. The constructor and step() are collective:
    every rank calls them, also without gradients. Gradients are summed over ranks, or
    averaged with `average`, as in DistributedDataParallel. Without `tables` it only
    describes what a weft.Store does with gradients.
    """

    kind: str  # weft_optimizer_name of <weft/update.h>
    states: tuple[State, ...] = ()

    def __init__(self, tables: Any, defaults: dict[str, Any], average: bool | None = None) -> None:
        self._average = average
        self._table_of: dict[torch.Tensor, Table] = {}
        self._dealings: dict[torch.Tensor, Dealing] = {}
        if tables is None:
            self.defaults = defaults
            self.param_groups: list[dict[str, Any]] = []
            self.state: collections.defaultdict[torch.Tensor, Any] = collections.defaultdict(dict)
            # torch wraps step() of the whole class once an optimizer of it has tables.
            self._optimizer_step_pre_hooks: dict[int, Any] = {}
            self._optimizer_step_post_hooks: dict[int, Any] = {}
            return
        groups = _groups(tables)
        if not any(group["params"] for group in groups):
            raise InvalidError(
                "no table to train: pass a weft.nn.Embedding or EmbeddingBag, or a module that "
                "contains one"
            )
        super().__init__(groups, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train further tables, with options of their own. Collective."""
        options = dict(param_group)
        found = list(_tables(options["params"]))
        average = options.pop("average", self._average)
        if len(self._table_of) + len(found) > len({*self._table_of.values(), *found}):
            raise InvalidError("a table was passed twice")
        for table in found:
            _check(table)
        # torch's class requires tensors: a handle represents its table.
        handles = [Handle.of(table) for table in found]
        super().add_param_group({**options, "params": handles})
        group = self.param_groups[-1]
        for handle, table in zip(handles, found, strict=True):
            if average is not None:
                table.average = bool(average)
            self._table_of[handle] = table
            self._dealings[handle] = Dealing(table.rows)
            self.state[handle] = {"step": 0, **self._make_states(table, group)}

    def _make_states(self, table: Table, group: dict[str, Any]) -> dict[str, Region]:
        rows = table.rows
        made = {}
        for state in self.states:
            made[state.name] = _create.table(
                (rows.shape[0], 1 if state.narrow else rows.shape[1]),
                state.dtype,
                rows.device,
                _partition_of(rows),
                table.comm,
                max_rows=max(rows.max_rows, rows.shape[0]),
                reach=rows.reach,
            )
            _check_dealt_alike(made[state.name], rows)
            first = self.first_value(state, group)
            for part in made[state.name].locals if first else []:
                part.fill_(first)
        return made

    def first_value(self, state: State, group: dict[str, Any]) -> float:
        """Return the initial value of a state."""
        return 0.0

    def rule(self, group: dict[str, Any], step: int) -> dict[str, float]:
        """Return the numbers of one step, by their names in weft_update."""
        raise NotImplementedError

    def rule_of_rows(self) -> Rule:
        """The step that a weft.Store takes on a row for each gradient pushed to it."""
        return numbers(self.kind, self.rule(self.defaults, 1), 0)

    # A step.

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the rows whose gradients any rank has collected. Collective."""
        if not self._table_of:
            raise InvalidError("this optimizer has no tables: it describes a step of a weft.Store")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for handle in group["params"]:
                self._step(handle, group)
        return loss

    def _step(self, handle: torch.Tensor, group: dict[str, Any]) -> None:
        table, state = self._table_of[handle], self.state[handle]
        if table.cache is not None:
            table.cache.flush()
        settle(table.rows)
        self._follow_size(handle)
        found = _exchange.to_owners(table, self._dealings[handle])
        if found is not None:
            state["step"] += 1
            self._update(handle, found, self.rule(group, state["step"]))
        settle(table.rows)
        table.comm.barrier()
        if table.cache is not None:
            table.cache.drop()

    def _follow_size(self, handle: torch.Tensor) -> None:
        """Resize the states if the table was resized, on all ranks, since the last step."""
        rows = self._table_of[handle].rows
        if self._dealings[handle].rows != rows.shape[0]:
            self._dealings[handle] = Dealing(rows)
            for state in self.states:
                self.state[handle][state.name].resize(rows.shape[0])
                _check_dealt_alike(self.state[handle][state.name], rows)

    def _update(
        self, handle: torch.Tensor, found: _exchange.Gradients, rule: dict[str, float]
    ) -> None:
        step = numbers(self.kind, rule, self.state[handle]["step"])
        rows = self._table_of[handle].rows
        weights = rows.locals
        states = [self.state[handle][state.name].locals for state in self.states]
        for piece in self._dealings[handle].own_pieces(found.ids):
            _core.rows_update(
                weights[piece.part],
                tuple(state[piece.part] for state in states),
                piece.rows.to(rows.device),
                found.sums[piece.begin : piece.end].to(rows.device),
                step,
                0,
            )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients that this rank has collected."""
        for table in self._table_of.values():
            table.zero_grad(set_to_none)

    # Saving and loading.

    def state_dict(self) -> dict[str, Any]:
        """Return torch's state_dict, with each state as one tensor of the rows of all ranks.

        The tensor is the shared memory itself if the table is flat, otherwise a copy. Not
        collective; it is consistent after a barrier, such as the one that ends step().
        """
        found = super().state_dict()
        for number, state in found["state"].items():
            found["state"][number] = {
                name: all_rows(value) if isinstance(value, Region) else value
                for name, value in state.items()
            }
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state_dict(), from any number of ranks. Collective."""
        kept = dict(self.state)
        super().load_state_dict({**state_dict, "state": {}})
        self.state.update(kept)
        for number, handle in enumerate(self._handles()):
            given = state_dict["state"].get(number, {})
            load = functools.partial(self._load_table, handle, given)
            _agree.together(self._table_of[handle].comm, load)

    def _load_table(self, handle: torch.Tensor, given: dict[str, Any]) -> None:
        state = self.state[handle]
        state["step"] = int(given.get("step", 0))
        for name in (state.name for state in self.states):
            if name not in given:
                raise InvalidError(f"the state has no {name!r}: it belongs to another optimizer")
            if tuple(given[name].shape) != state[name].shape:
                raise InvalidError(
                    f"{name!r} has shape {tuple(given[name].shape)}, but the table needs "
                    f"{state[name].shape}"
                )
            set_own_rows(state[name], given[name])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the states to files in a folder; each rank writes its rows. Collective."""
        path = pathlib.Path(folder)
        comm = self._table_of[next(self._handles())].comm
        _agree.together(comm, lambda: path.mkdir(parents=True, exist_ok=True))
        about = []
        for number, handle in enumerate(self._handles()):
            state = self.state[handle]
            about.append(state["step"])
            for kept in self.states:
                state[kept.name].save(path / f"{number}.{kept.name}.weft")
        summary = json.dumps(self._summary(about), default=float)  # lr may be a tensor
        file = path / "optimizer.json"
        _agree.together(comm, lambda: _replace(file, summary) if comm.rank == 0 else None)

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Load what save() wrote, from any number of ranks. Collective."""
        path = pathlib.Path(folder)
        comm = self._table_of[next(self._handles())].comm
        found = _agree.together(comm, lambda: self._read_summary(path))
        for group, options in zip(self.param_groups, found["groups"], strict=True):
            group.update(options)
        for number, handle in enumerate(self._handles()):
            state = self.state[handle]
            state["step"] = found["steps"][number]
            for kept in self.states:
                state[kept.name].load(path / f"{number}.{kept.name}.weft")
            self._table_of[handle].comm.barrier()

    def _read_summary(self, path: pathlib.Path) -> dict[str, Any]:
        try:
            found = json.loads((path / "optimizer.json").read_text())
            whose, steps, groups = found["optimizer"], found["steps"], found["groups"]
        except FileNotFoundError:
            raise InvalidError(f"{path} has no optimizer.json: save() did not write it") from None
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidError(f"{path / 'optimizer.json'} is damaged: {error}") from error
        if whose != type(self).__name__ or len(steps) != len(self._table_of):
            raise InvalidError(
                f"{path} has the state of {whose} for {len(steps)} tables, but this is "
                f"{type(self).__name__} for {len(self._table_of)}"
            )
        if len(groups) != len(self.param_groups):
            raise InvalidError(
                f"{path} has {len(groups)} groups of tables, but this optimizer has "
                f"{len(self.param_groups)}"
            )
        return found

    def _summary(self, steps: list[int]) -> dict[str, Any]:
        groups = [
            {name: value for name, value in group.items() if name != "params"}
            for group in self.param_groups
        ]
        return {"optimizer": type(self).__name__, "steps": steps, "groups": groups}

    def _handles(self) -> Iterator[torch.Tensor]:
        for group in self.param_groups:
            yield from group["params"]


def _replace(path: pathlib.Path, text: str) -> None:
    """Write a file atomically: it appears when it is complete."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def numbers(kind: str, rule: dict[str, float], step: int) -> Rule:
    """A step as C takes it."""
    lr, weight_decay, eps, alpha, beta1, beta2 = (
        float(rule.get(name, 0.0))
        for name in ("lr", "weight_decay", "eps", "alpha", "beta1", "beta2")
    )
    decoupled = int(rule.get("decoupled", 0))
    return (kind, decoupled, lr, weight_decay, eps, alpha, beta1, beta2, step)


def _groups(given: Any) -> list[dict[str, Any]]:
    if isinstance(given, torch.nn.Module):
        return [{"params": list(tables(given))}]
    listed = list(given)
    if listed and all(isinstance(item, dict) for item in listed):
        return [{**group, "params": list(_tables(group["params"]))} for group in listed]
    return [{"params": list(_tables(listed))}]


def _tables(given: Any) -> Iterator[Table]:
    for item in given if isinstance(given, Iterable) else [given]:
        if isinstance(item, torch.Tensor):
            raise TypeError(
                "weft.optim trains tables of weft.nn, not tensors: pass the module or its "
                "Embedding; dense parameters go to an optimizer of torch.optim"
            )
        if not isinstance(item, torch.nn.Module):
            raise TypeError(
                f"tables must be tables of weft.nn or modules, not {type(item).__name__}"
            )
        yield from tables(item)


def _check(table: Table) -> None:
    if table.rows.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise InvalidError(
            f"the table has type {table.rows.dtype}; only float32, float16 and bfloat16 "
            "can be trained"
        )


def _partition_of(rows: Region) -> Any:
    """Return the argument `partition` that distributes rows like those of `rows`."""
    if rows.partition == "round_robin":
        return ("round_robin", rows._handle.describe()["run"])
    return "equal" if rows.partition == "equal" else list(rows.rows_per_rank)


def _check_dealt_alike(state: Region, rows: Region) -> None:
    for rank in range(rows.ranks):
        theirs = [part[:2] for part in state._handle.parts(rank)]
        if theirs != [part[:2] for part in rows._handle.parts(rank)]:
            raise UnsupportedError(
                "the table was resized before its optimizer was created, so rows of state would be "
                "on other ranks than those of weights: create the optimizer before resizing"
            )
