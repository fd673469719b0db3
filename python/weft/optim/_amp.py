# SPDX-License-Identifier: Apache-2.0
"""What torch.amp.GradScaler finds in an optimizer of tables.

GradScaler looks at `param.grad` of each parameter, divides it by the scale in
place, and leaves the step out if it is not finite. A Handle stands for a table
among these parameters, and its gradient is what the rank has collected.

A step is collective, so that one rank must not leave it out alone, and all must
lower the scale together: GradScaler's own check asks the other ranks.
"""

from collections.abc import Callable
from typing import Any

import torch

from weft import _core
from weft._core import Comm
from weft.nn import Table
from weft.optim import _exchange


class RowGradients(torch.Tensor):
    """Gradients of rows, the check of which for infinities is one of all ranks."""

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
    """A table, as the parameter of a torch optimizer."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    table: Table
    _own: tuple[torch.Tensor, torch.Tensor] | None

    @staticmethod
    def of(table: Table) -> "Handle":
        """One for `table`."""
        made = torch.Tensor._make_subclass(Handle, torch.zeros(()), True)
        made.table, made._own = table, None
        return made

    @property
    def grad(self) -> Any:
        """A row for each distinct row that was collected; it may be changed in place.

        It is in the table's memory, and there even if it has no rows, so that the ranks
        find the same tensors. The sums are those that the next step begins with.
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
    """Tell each rank what any of them has found."""
    for comm in comms:
        found = found_inf.detach().cpu().reshape(1)
        comm.allreduce(found, op=_core.MAX)
        found_inf.fill_(found[0])
