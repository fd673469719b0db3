# SPDX-License-Identifier: Apache-2.0
"""The communicator under a process group, and the world it belongs to.

The groups of a process share one world, that of the default group, and so its arena: a tensor
there is read in place by the members of each of them. A group whose settings are others than that
world's has one of its own, because settings are a world's.
"""

import contextlib
import hashlib
import os
import weakref
from collections.abc import Sequence
from typing import Any

from weft import Comm, World, _boot, _core
from weft._core import InvalidError, MismatchError

_worlds: "weakref.WeakSet[OwnedWorld]" = weakref.WeakSet()


class GroupComm:
    """The communicator of a process group.

    The shim asks it for `comm`, for a `subset` when a group is split, and for
    those who are left when it is to `shrink`. A world that was made for a group
    ends with the last communicator that uses it.
    """

    def __init__(self, comm: Comm, owned: "OwnedWorld | None" = None) -> None:
        self.comm, self._owned = comm, owned

    def has(self, settings: str) -> bool:
        """Would a world that is made now with these settings be like the one of this group?"""
        return self._owned is not None and self._owned.settings == _effective(settings)

    def group(self, ranks: Sequence[int], name: str, seconds: float) -> "GroupComm":
        """A group of some ranks, which goes on whatever becomes of this one.

        Groups of different names may be made at once.
        """
        tag = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "little")
        return GroupComm(self.comm.create_group(list(ranks), tag, seconds), self._owned)

    def subset(self, ranks: Sequence[int]) -> "GroupComm":
        return GroupComm(self.comm.subset(list(ranks)), self._owned)

    def shrink(self, exclude: Sequence[int]) -> "GroupComm":
        return GroupComm(self.comm.shrink(list(exclude)), self._owned)


class OwnedWorld:
    """A world that was made for process groups; it ends with this object."""

    def __init__(self, world: World, settings: str = "") -> None:
        self.world, self.settings = world, _effective(settings)
        _worlds.add(self)

    def __del__(self) -> None:
        # A Comm that the user took from the group may still be lent.
        with contextlib.suppress(InvalidError):
            self.world.close()


def _effective(settings: str) -> tuple[object, ...]:
    """All settings of a world that is made now: those that are given, and the environment's."""
    return (sorted(settings.split()), [row[:2] for row in _core.settings()])


def meet(store: Any, rank: int, size: int, settings: str, seconds: float) -> GroupComm:
    """Join a world of the ranks that meet in a torch Store."""
    limits = f"TIMEOUT={seconds:.3f}s BOOT_TIMEOUT={seconds:.3f}s"
    world = _core.create(_boot.TorchStore(store, rank, size), f"{limits} {settings}")
    return GroupComm(world.comm, OwnedWorld(world, settings))


def all_have(comm: Comm, has: bool) -> bool:
    """Do all members say so, or none? Some of them is an error on all."""
    said = bytearray(comm.size)  # a tensor would follow torch's default device and modes
    comm.allgather(bytearray([has]), said)
    if 0 in said and 1 in said:
        yes, no = said.index(1), said.index(0)
        raise MismatchError(
            f"rank {no} of the new group gives it settings other than those of the default group, "
            f"rank {yes} does not"
        )
    return has


def _forget_in_child() -> None:
    for owned in list(_worlds):
        owned.world._forget()


os.register_at_fork(after_in_child=_forget_in_child)
