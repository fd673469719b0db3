# SPDX-License-Identifier: Apache-2.0
"""weft as a backend of torch.distributed.

    import torch.distributed as dist
    import weft.torch

    dist.init_process_group("weft")

Importing this module registers the backend; from torch 2.14 on the name alone
is enough. The guide is docs/guide/torch.md.

"sml" is registered, too: the same backend with a switch in the network, see
docs/guide/switch.md.
"""

from typing import TYPE_CHECKING, Any

from weft import _missing

try:
    import torch.distributed as dist
except ModuleNotFoundError as error:
    raise _missing.torch("weft.torch", error) from None

if TYPE_CHECKING:
    from weft.torch._group import (
        Backend,
        Options,
        as_group,
        backend_of,
        comm_of,
        dump,
        monitored_barrier,
        set_timeout,
    )
    from weft.torch._shared import Sharing, is_shared, share_all, shared

__all__ = [
    "Backend",
    "Options",
    "Sharing",
    "as_group",
    "backend_of",
    "comm_of",
    "dump",
    "is_shared",
    "monitored_barrier",
    "register",
    "set_timeout",
    "share_all",
    "shared",
]
_SHARED = ("Sharing", "is_shared", "share_all", "shared")


def __getattr__(name: str) -> Any:
    """The rest needs the shim, which this module must not: it is how to build it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from weft.torch import _group, _shared

    return getattr(_shared if name in _SHARED else _group, name)


def _create(dist_options: Any, options: Any) -> Any:
    from weft.torch import _group

    return _group.create(dist_options, options)


def _create_sml(dist_options: Any, options: Any) -> Any:
    from weft.torch import _sml

    return _sml.create(dist_options, options)


def register() -> None:
    """Make "weft" and "sml" known to torch.distributed. Does nothing the second time."""
    for name, create in (("weft", _create), ("sml", _create_sml)):
        known = dist.Backend._plugins.get(name.upper())
        if known is None:
            dist.Backend.register_backend(name, create, extended_api=True, devices=["cpu", "cuda"])
        elif known.creator_fn is not create and name == "weft":
            raise ImportError("another package has registered a backend named weft")


register()
