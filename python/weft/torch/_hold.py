# SPDX-License-Identifier: Apache-2.0
"""How a process group holds a backend of weft, also one that torch shrinks.

torch (2.13) registers the backend of a shrunken group as gloo's or NCCL's, by its device, and
DDP's logger then reads it as an object of that class, which ends the process. So what torch made
is registered again, as what it is.
"""

import functools
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from weft.torch._shim import shim


def hold(group: dist.ProcessGroup, backend: Any) -> None:
    """Have a group use a backend of weft for CPU and CUDA tensors."""
    kind = dist.ProcessGroup.BackendType.CUSTOM
    for device in ("cpu", "cuda"):
        group._register_backend(torch.device(device), kind, backend)
    group._set_default_backend(kind)


def mend_shrinking() -> None:
    """Have torch.distributed.shrink_group make groups that hold weft as a plugin."""
    make: Any = getattr(c10d, "_create_shrunk_process_group", None)
    if make is None or hasattr(make, "__wrapped__"):
        return

    @functools.wraps(make)
    def make_and_hold(new_backend: Any, *args: Any, **more: Any) -> Any:
        group = make(new_backend, *args, **more)
        if isinstance(new_backend, shim.Backend):
            hold(group, new_backend)
        return group

    c10d._create_shrunk_process_group = make_and_hold
