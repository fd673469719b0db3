# SPDX-License-Identifier: Apache-2.0
"""Send gradients to the ranks that own the rows.

    1. each rank sums its gradients of equal rows
    2. ids and sums go to the owners, in the order of ranks
    3. each owner sums what came for equal rows, in that order

So sums do not depend on timing, and each rank sends a row at most once.
"""

import torch

from weft._dealing import Dealing
from weft._gradients import Gradients, sum_equal
from weft.nn import Table


def of_this_rank(table: Table) -> Gradients:
    """Step 1: sum the gradients that this rank has collected."""
    rows, width = table.rows.shape
    found = table.collected()
    if found is None:
        where = table.rows.device
        ids = torch.empty(0, dtype=torch.int64, device=where)
        return Gradients(ids, torch.empty((0, width), device=where))
    ids, sums = sum_equal(*found, rows)
    return Gradients(ids.to(torch.int64), sums)


def to_owners(table: Table, dealing: Dealing) -> Gradients | None:
    """All steps: return the gradients of the rows that this rank owns, or their means.

    Collective; returns None on all ranks if none has any. When it returns, all ranks
    have called it, so no rank still reads rows from before the step.
    """
    comm = table.comm
    own = of_this_rank(table)
    if comm.size == 1:
        return own if own.ids.numel() else None
    # Collectives need host memory.
    own = Gradients(own.ids.cpu(), own.sums.cpu())
    ids, sums, counts = _by_owner(own, dealing, comm.size)
    plan = torch.empty((comm.size, comm.size), dtype=torch.int64)
    comm.allgather(counts, plan)
    if not bool(plan.any()):
        return None
    sent, due = counts.tolist(), plan[:, comm.rank].tolist()
    width = table.rows.shape[1]
    came = Gradients(torch.empty(sum(due), dtype=torch.int64), torch.empty((sum(due), width)))
    comm.alltoall(ids, came.ids, sent, due)
    comm.alltoall(sums, came.sums, [n * width for n in sent], [n * width for n in due])
    found = sum_equal(*came, dealing.rows)
    if table.average:
        found.sums.div_(comm.size)
    return found


def _by_owner(
    own: Gradients, dealing: Dealing, ranks: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids and sums sorted by owner, and the number of rows of each owner."""
    owners = dealing.owner_of(own.ids)
    counts = torch.bincount(owners, minlength=ranks)
    if bool((owners[1:] < owners[:-1]).any()):
        order = torch.argsort(owners, stable=True)
        own = Gradients(own.ids[order], own.sums[order])
    return own.ids.contiguous(), own.sums.contiguous(), counts
