# SPDX-License-Identifier: Apache-2.0
"""The communicator under a process group, and the world it belongs to."""

import contextlib
import os
import weakref
from collections.abc import Sequence
from typing import Any

from weft import Comm, World, _boot, _core
from weft._core import InvalidError

_worlds: "weakref.WeakSet[OwnedWorld]" = weakref.WeakSet()


class GroupComm:
    """The communicator of a process group.

    The shim asks it for `comm`, for a `subset` when a group is split, and for
    those who are left when it is to `shrink`. A world that was made for a group
    ends with the last communicator that uses it.
    """

    def __init__(self, comm: Comm, owned: "OwnedWorld | None" = None) -> None:
        self.comm, self._owned = comm, owned

    def subset(self, ranks: Sequence[int]) -> "GroupComm":
        return GroupComm(self.comm.subset(list(ranks)), self._owned)

    def shrink(self, exclude: Sequence[int]) -> "GroupComm":
        return GroupComm(self.comm.shrink(list(exclude)), self._owned)


class OwnedWorld:
    """A world that was made for process groups; it ends with this object."""

    def __init__(self, world: World) -> None:
        self.world = world
        _worlds.add(self)

    def __del__(self) -> None:
        # A Comm that the user took from the group may still be lent.
        with contextlib.suppress(InvalidError):
            self.world.close()


def meet(store: Any, rank: int, size: int, settings: str) -> GroupComm:
    """Join a world of the ranks that meet in a torch Store."""
    world = _core.create(_boot.TorchStore(store, rank, size), settings)
    return GroupComm(world.comm, OwnedWorld(world))


def _forget_in_child() -> None:
    for owned in list(_worlds):
        owned.world._forget()


os.register_at_fork(after_in_child=_forget_in_child)
