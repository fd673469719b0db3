# SPDX-License-Identifier: Apache-2.0
"""weft.optim: optimizers for the tables of weft.nn, in the style of torch.optim.

A step is torch's own on the rows that any rank has touched, with the gradients
of equal rows summed over all ranks first; other rows keep weights and state.
"""

from typing import Any

import torch

from weft._core import InvalidError
from weft.optim._optimizer import SparseOptimizer, State

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
    """w -= lr * g. No momentum, which would touch all rows."""

    def __init__(self, tables: Any, lr: float = 1e-3, weight_decay: float = 0.0) -> None:
        _not_negative(lr=lr, weight_decay=weight_decay)
        super().__init__(tables, {"lr": lr, "weight_decay": weight_decay})

    def rule(self, group: dict[str, Any], step: int) -> dict[str, float]:
        return {"lr": group["lr"], "weight_decay": group["weight_decay"]}


class Adagrad(SparseOptimizer):
    """torch.optim.Adagrad on the rows that were touched."""

    kind = 1
    states: tuple[State, ...] = (State("sum"),)

    def __init__(
        self,
        tables: Any,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        *,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        options = {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
        }
        _not_negative(**options)
        super().__init__(tables, options)

    def first_value(self, state: State, group: dict[str, Any]) -> float:
        return group["initial_accumulator_value"]

    def rule(self, group: dict[str, Any], step: int) -> dict[str, float]:
        lr = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        return {"lr": lr, "weight_decay": group["weight_decay"], "eps": group["eps"]}


class RowWiseAdagrad(Adagrad):
    """Adagrad with one number of state a row: the mean of its squares."""

    kind = 2
    states = (State("sum", narrow=True),)


class RMSprop(SparseOptimizer):
    """torch.optim.RMSprop on the rows that were touched; not centered, no momentum."""

    kind = 3
    states = (State("square_avg"),)

    def __init__(
        self,
        tables: Any,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        options = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay}
        _not_negative(**options)
        super().__init__(tables, options)

    def rule(self, group: dict[str, Any], step: int) -> dict[str, float]:
        return {name: group[name] for name in ("lr", "alpha", "eps", "weight_decay")}


class Adam(SparseOptimizer):
    """torch.optim.Adam on the rows that were touched; all of them count the steps taken.

    Without weight_decay this is torch.optim.SparseAdam.
    """

    kind = 4
    states: tuple[State, ...] = (State("exp_avg"), State("exp_avg_sq"))
    decoupled = False

    def __init__(
        self,
        tables: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        _not_negative(lr=lr, eps=eps, weight_decay=weight_decay)
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise InvalidError(f"betas are {betas}; both must be at least 0 and below 1")
        options = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(tables, options)

    def rule(self, group: dict[str, Any], step: int) -> dict[str, float]:
        beta1, beta2 = group["betas"]
        return {
            **{name: group[name] for name in ("lr", "eps", "weight_decay")},
            "beta1": beta1,
            "beta2": beta2,
            "decoupled": self.decoupled,
        }


class AdamW(Adam):
    """Adam whose weight_decay is not part of the gradient: torch.optim.AdamW."""

    decoupled = True

    def __init__(
        self,
        tables: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(tables, lr, betas, eps, weight_decay)


class LazyAdam(Adam):
    """Adam where each row counts its own steps, so that a rare row starts like any other.

    adam_w: weight_decay is not part of the gradient
    """

    kind = 5
    states = (
        State("exp_avg"),
        State("exp_avg_sq"),
        State("steps", narrow=True, dtype=torch.int32),
    )

    def __init__(
        self,
        tables: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        adam_w: bool = False,
    ) -> None:
        self.decoupled = adam_w
        super().__init__(tables, lr, betas, eps, weight_decay)


def _not_negative(**numbers: float) -> None:
    for name, value in numbers.items():
        if not value >= 0:
            raise InvalidError(f"{name} is {value}; it must not be negative")
