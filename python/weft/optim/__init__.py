# SPDX-License-Identifier: Apache-2.0
"""weft.optim: optimizers for the tables of weft.nn, in the style of torch.optim.

A step is torch's own on the rows that any rank has touched, with the gradients
of equal rows summed over all ranks first, or averaged (`average=True`); other rows
keep weights and state. torch.amp.GradScaler takes them like any other optimizer.

Without tables, as in weft.optim.Adagrad(lr=0.1), one describes what a weft.Store does
with gradients that are pushed to it.
"""

import math
from typing import Any

from weft import _missing
from weft._core import InvalidError

try:
    import torch
except ModuleNotFoundError as error:
    raise _missing.torch("weft.optim", error) from None

from weft.optim._optimizer import Rule, SparseOptimizer, State, numbers

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "LazyAdam",
    "RMSprop",
    "RowWiseAdagrad",
    "SparseOptimizer",
]


class SGD(SparseOptimizer):
    """w -= lr * g, without momentum, which would touch all rows."""

    kind = "sgd"

    def __init__(
        self,
        tables: Any = None,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        *,
        average: bool | None = None,
    ) -> None:
        _not_negative(lr=lr, weight_decay=weight_decay)
        super().__init__(tables, {"lr": lr, "weight_decay": weight_decay}, average)

    def rule(self, group: dict[str, Any], step: int) -> dict[str, float]:
        return {"lr": group["lr"], "weight_decay": group["weight_decay"]}


class Adagrad(SparseOptimizer):
    """torch.optim.Adagrad on the rows that were touched."""

    kind = "adagrad"
    states: tuple[State, ...] = (State("sum"),)

    def __init__(
        self,
        tables: Any = None,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        *,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        average: bool | None = None,
    ) -> None:
        options = {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
        }
        _not_negative(**options)
        super().__init__(tables, options, average)

    def first_value(self, state: State, group: dict[str, Any]) -> float:
        return group["initial_accumulator_value"]

    def rule(self, group: dict[str, Any], step: int) -> dict[str, float]:
        lr = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        return {"lr": lr, "weight_decay": group["weight_decay"], "eps": group["eps"]}

    def rule_of_rows(self) -> Rule:
        for name in ("lr_decay", "initial_accumulator_value"):
            if self.defaults[name]:
                raise InvalidError(f"{name} is {self.defaults[name]}; a store has none but 0")
        return super().rule_of_rows()


class RowWiseAdagrad(Adagrad):
    """Adagrad with one number of state per row: the mean of its squared gradients."""

    kind = "rowwise_adagrad"
    states = (State("sum", narrow=True),)


class RMSprop(SparseOptimizer):
    """torch.optim.RMSprop on the rows that were touched; not centered, no momentum."""

    kind = "rmsprop"
    states = (State("square_avg"),)

    def __init__(
        self,
        tables: Any = None,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        average: bool | None = None,
    ) -> None:
        options = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay}
        _not_negative(**options)
        super().__init__(tables, options, average)

    def rule(self, group: dict[str, Any], step: int) -> dict[str, float]:
        return {name: group[name] for name in ("lr", "alpha", "eps", "weight_decay")}


class Adam(SparseOptimizer):
    """torch.optim.SparseAdam; with weight_decay, which that does not have, torch.optim.Adam.

    All rows have one count of steps. The two differ only in eps: SparseAdam adds it to the
    root of the second moment before the bias correction, and Adam after it.
    """

    kind = "adam"
    states: tuple[State, ...] = (State("exp_avg"), State("exp_avg_sq"))
    decoupled = False
    sparse = True  # without weight_decay it is SparseAdam

    def __init__(
        self,
        tables: Any = None,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        average: bool | None = None,
    ) -> None:
        _not_negative(lr=lr, eps=eps, weight_decay=weight_decay)
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise InvalidError(f"betas are {betas}; both must be at least 0 and below 1")
        options = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(tables, options, average)

    def rule(self, group: dict[str, Any], step: int) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        eps = group["eps"]
        if self.sparse and group["weight_decay"] == 0:
            eps /= math.sqrt(1 - beta2**step)  # the update adds it after this correction
        return {
            **{name: group[name] for name in ("lr", "weight_decay")},
            "eps": eps,
            "beta1": beta1,
            "beta2": beta2,
            "decoupled": self.decoupled,
        }

    def rule_of_rows(self) -> Rule:
        """Each row counts its own steps, so it is that of LazyAdam."""
        rule = {**self.rule(self.defaults, 1), "eps": self.defaults["eps"]}
        return numbers(LazyAdam.kind, rule, 0)


class AdamW(Adam):
    """torch.optim.AdamW: weight_decay is not part of the gradient."""

    decoupled = True
    sparse = False

    def __init__(
        self,
        tables: Any = None,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        average: bool | None = None,
    ) -> None:
        super().__init__(tables, lr, betas, eps, weight_decay, average=average)


class LazyAdam(Adam):
    """torch.optim.Adam for each row, with its own count of steps for the bias correction.

    adam_w: weight_decay is not part of the gradient
    """

    kind = "lazy_adam"
    sparse = False
    states = (
        State("exp_avg"),
        State("exp_avg_sq"),
        State("steps", narrow=True, dtype=torch.int32),
    )

    def __init__(
        self,
        tables: Any = None,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        adam_w: bool = False,
        average: bool | None = None,
    ) -> None:
        self.decoupled = adam_w
        super().__init__(tables, lr, betas, eps, weight_decay, average=average)


def described(optimizer: Any) -> SparseOptimizer:
    """The optimizer that an argument of weft.Store means."""
    kinds: dict[str, type[SparseOptimizer]] = {}
    for name in __all__:
        found = globals()[name]
        if found is not SparseOptimizer:
            kinds.setdefault(found.kind, found)
            kinds.setdefault(name.lower(), found)
    options = dict(optimizer) if isinstance(optimizer, dict) else {}
    kind = options.pop("kind", None) if isinstance(optimizer, dict) else optimizer
    if isinstance(kind, str):
        if kind not in kinds:
            names: dict[Any, str] = {}  # one of each: aliases come behind
            for name, found in kinds.items():
                names.setdefault(found, name)
            known = ", ".join(names.values())
            raise InvalidError(f"there is no optimizer {kind!r}; there are {known}")
        kind = kinds[kind]
    if isinstance(kind, type) and issubclass(kind, SparseOptimizer):
        return kind(**options)
    if not isinstance(kind, SparseOptimizer):
        raise InvalidError(f"optimizer is {optimizer!r}; it must be one of weft.optim, or a name")
    return kind


def _not_negative(**numbers: float) -> None:
    for name, value in numbers.items():
        if not value >= 0:
            raise InvalidError(f"{name} is {value}; it must not be negative")
