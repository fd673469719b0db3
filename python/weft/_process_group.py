# SPDX-License-Identifier: Apache-2.0
"""The default process group of torch.distributed, as the job that weft.init joins.

A program that has started its ranks by itself (torch.multiprocessing.spawn and
init_process_group(rank=, world_size=)) leaves no trace of them in the
environment. Its process group knows who they are, and its store is where they
meet.
"""

import os
import sys
from typing import Any, NamedTuple

from weft._core import ClosedError, InvalidError, World

_PRETENDED = ("fake", "threaded")  # backends of torch whose ranks are no processes

_inherited: Any = None  # the group that this process had when it was forked


class Group(NamedTuple):
    """The rank of this process in the group, its size and store. Over MPI torch has no store."""

    rank: int
    size: int
    store: Any


def current() -> Group | None:
    """The default process group; None: there is none."""
    found = _default()
    if found is None:
        return None
    if found is _inherited:
        raise ClosedError(
            "this process was forked by a rank of the process group and is no rank itself: it "
            "cannot join the job. It can use tensors that the rank has made"
        )
    dist = sys.modules["torch.distributed"]
    backend = dist.get_backend()
    if backend in _PRETENDED:
        raise InvalidError(
            f"the process group has the backend {backend!r}, whose ranks are no processes: "
            "weft.init('alone') joins a job of this process alone"
        )
    store = sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
    return Group(dist.get_rank(), dist.get_world_size(), store)


def check(world: World) -> None:
    """Raise if this process has another rank in `world` than in the process group."""
    group = current()
    if group is not None and (group.rank, group.size) != (world.rank, world.size):
        raise InvalidError(
            f"this process is rank {group.rank} of {group.size} in the process group, but rank "
            f"{world.rank} of {world.size} in the job that weft joined without it: call "
            "weft.init() after init_process_group, and weft.finalize() first if it was called "
            "already; or pass comm=weft.world().comm where those ranks are meant"
        )


def _default() -> Any:
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist.group.WORLD


def _remember_in_child() -> None:
    global _inherited
    _inherited = _default()


os.register_at_fork(after_in_child=_remember_in_child)
