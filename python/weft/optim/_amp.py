# SPDX-License-Identifier: Apache-2.0
"""Support for torch.amp.GradScaler in optimizers of tables.

GradScaler divides `param.grad` of each parameter by the scale in place, and skips
the step if it is not finite. A Handle represents a table among these parameters,
and its gradient is what the rank has collected.

A step is collective, so all ranks must skip it and lower the scale together:
GradScaler's check is extended by an allreduce.
"""

from collections.abc import Callable
from typing import Any

import torch

from weft import _core
from weft._core import Comm
from weft.nn import Table
from weft.optim import _exchange


class RowGradients(torch.Tensor):
    """Gradients of rows, which all ranks check together for infinities."""

    comm: Comm

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            if func is torch._amp_foreach_non_finite_check_and_unscale_:
                grads, found_inf = args[:2]
                _ask_others({grad.comm: None for grad in grads}, found_inf)
            return result


class Handle(torch.Tensor):
    """A tensor that represents a table as a parameter of a torch optimizer."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    table: Table
    _own: tuple[torch.Tensor, torch.Tensor] | None

    @staticmethod
    def of(table: Table) -> "Handle":
        """Make a handle for `table`."""
        made = torch.Tensor._make_subclass(Handle, torch.zeros(()), True)
        made.table, made._own = table, None
        return made

    @property
    def grad(self) -> Any:
        """One gradient for each distinct row that was collected; it may be changed in place.

        It is on the table's device and never None, so that all ranks have the same
        tensors. The next step uses these sums.
        """
        if self._own is None or not self.table.has_only(self._own):
            where = self.table.rows.device
            found = _exchange.of_this_rank(self.table)
            self._own = (found.ids.to(where), found.sums.to(where))
            self.table.keep_only(self._own)
        rows = self._own[1].as_subclass(RowGradients)
        rows.comm = self.table.comm
        return rows


def _ask_others(comms: dict[Comm, None], found_inf: torch.Tensor) -> None:
    """Set found_inf on all ranks if any rank has found an infinity."""
    for comm in comms:
        found = found_inf.detach().cpu().reshape(1)
        comm.allreduce(found, op=_core.MAX)
        found_inf.fill_(found[0])
