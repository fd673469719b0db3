# SPDX-License-Identifier: Apache-2.0
"""Process groups over weft: how they are made, and what torch has no words for."""

import copy
import datetime
import sys
from typing import Any

import torch.distributed as dist

from weft import Comm, _core
from weft._core import InvalidError
from weft.torch._group_comm import GroupComm, all_have, meet
from weft.torch._hold import hold, mend_shrinking
from weft.torch._shim import shim

Backend = shim.Backend
mend_shrinking()

_LONGEST = 9e8  # seconds; longer timeouts mean no other thing


_Options: Any = shim.Options


class Options(_Options):
    """What `init_process_group("weft", pg_options=...)` takes.

    timeout:   how long an operation waits for other ranks; the `timeout` of
               init_process_group and new_group is used if it is None
    blocking_wait: whoever waits for an operation on CUDA tensors waits on the
               host, and is told where it failed; else the stream waits. None:
               as WEFT_TORCH_BLOCKING_WAIT says
    settings:  any setting of the library, in lower case: engine="message",
               algorithm="allreduce=ring", spin="20us", switch="host:port"
    """

    def __init__(
        self,
        timeout: datetime.timedelta | None = None,
        blocking_wait: bool | None = None,
        **settings: object,
    ) -> None:
        check_settings(settings)
        if timeout is None:
            super().__init__()
        else:
            super().__init__(_checked(timeout))
        self.own_timeout = timeout is not None
        self.blocking_wait = _blocking_by_default() if blocking_wait is None else blocking_wait
        self.settings = " ".join(f"{name.upper()}={value}" for name, value in settings.items())


def check_settings(settings: dict[str, object]) -> None:
    """Their names, and that each is one word; the library reads the values."""
    known = [row[0].removeprefix("WEFT_").lower() for row in _core.settings()]
    for name, value in settings.items():
        if name not in known:
            all_known = ", ".join(("blocking_wait", *known))
            raise InvalidError(f"{name} is not an option of weft.torch; options are {all_known}")
        if not str(value) or any(map(str.isspace, str(value))):
            raise InvalidError(f"{name} is {value!r}; a setting is one word")


def _blocking_by_default() -> bool:
    name = "WEFT_TORCH_BLOCKING_WAIT"
    value = next(row[1] for row in _core.settings() if row[0] == name)
    if value not in ("0", "1"):
        raise InvalidError(f"setting {name}: {value!r} is neither 1 nor 0")
    return value == "1"


def _checked(timeout: Any) -> datetime.timedelta:
    if not isinstance(timeout, datetime.timedelta):
        raise TypeError(f"timeout is {timeout!r}; it must be a datetime.timedelta")
    if timeout <= datetime.timedelta(0):
        raise InvalidError(f"timeout is {timeout}; it must be greater than 0")
    return timeout


def create(dist_options: Any, options: Any, name: str = "weft") -> Any:
    """Make the backend of a new process group; torch calls it."""
    if options is None:
        options = Options()
    if not isinstance(options, shim.Options):
        raise TypeError(f"pg_options is {type(options).__name__}; weft takes weft.torch.Options")
    options = copy.deepcopy(options)  # the same ones may serve other groups
    if not options.own_timeout:
        options._timeout = _checked(dist_options.timeout)
    made = _in_default_world(dist_options, options) if name == "weft" else None
    if made is not None:
        return Backend(made, options, name)
    rank, size = dist_options.group_rank, dist_options.group_size
    return backend_at(dist_options.store, rank, size, options, name)


def backend_at(store: Any, rank: int, size: int, options: Any, name: str = "weft") -> Any:
    """Make a backend of the ranks that meet in a store."""
    return Backend(meet(store, rank, size, options.settings, _seconds(options)), options, name)


def _seconds(options: Any) -> float:
    return min(max(options._timeout.total_seconds(), 0.001), _LONGEST)


def _in_default_world(dist_options: Any, options: Any) -> GroupComm | None:
    """A group of `new_group` in the world of the default group, if that can be.

    What decides is known to all members alike, or they compare it: one that went another way
    would be waited for. So also a default group that is broken is asked.
    """
    ranks = dist_options.global_ranks_in_group
    try:
        parent = backend_of().group_comm if ranks else None
    except (InvalidError, RuntimeError):  # it is not weft's, or was shut down
        parent = None
    if parent is None:
        return None
    made = parent.group(ranks, dist_options.group_id, _seconds(options))
    return made if all_have(made.comm, parent.has(options.settings)) else None


def backend_of(group: dist.ProcessGroup | None = None) -> Any:
    """The weft Backend of a process group; of the default one if None."""
    group = group or dist.group.WORLD
    if group is None:
        raise InvalidError("torch.distributed is not initialised")
    for device in group._device_types:
        backend = group._get_backend(device)
        backend = getattr(backend, "wrapped_pg", backend)
        if isinstance(backend, Backend):
            return backend
    raise InvalidError(f"the group {group.group_name} has no weft backend")


def comm_of(group: dist.ProcessGroup | None = None) -> Comm:
    """The communicator that a process group stands on.

    It is the same one, not a copy: calls on the group and on the communicator
    are one sequence, which all ranks make in the same order. It can be used
    as long as the group is.
    """
    return backend_of(group).group_comm.comm


def as_group(comm: Comm, timeout: datetime.timedelta | None = None) -> dist.ProcessGroup:
    """A process group over a communicator, for CPU and CUDA tensors.

    Not collective. It can be passed wherever torch takes a group; the functions
    of torch.distributed that ask for global ranks know only groups that torch
    made itself, so pass group_src and group_dst there. `group.shutdown()` gives
    the communicator back.
    """
    options = Options(timeout or datetime.timedelta(seconds=comm.timeout))
    backend = Backend(GroupComm(comm), options)
    group = dist.ProcessGroup(dist.HashStore(), comm.rank, comm.size)
    hold(group, backend)
    return group


def monitored_barrier(
    group: dist.ProcessGroup | None = None,
    timeout: datetime.timedelta | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """A barrier that fails on rank 0 with the names of the ranks that did not come.

    torch.distributed.monitored_barrier does this for gloo only, by its name.
    """
    backend = backend_of(group)
    backend.monitored_barrier(timeout or backend.options._timeout, wait_all_ranks)


def set_timeout(timeout: datetime.timedelta, group: dist.ProcessGroup | None = None) -> None:
    """How long operations of a group may wait for other ranks from now on."""
    backend_of(group).set_timeout(_checked(timeout))


def dump(group: dist.ProcessGroup | None = None, file: Any = None) -> None:
    """Print what each rank of this host is doing in a group, to stderr or `file`."""
    print(comm_of(group).world.dump(), end="", file=file or sys.stderr)
