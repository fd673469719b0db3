# SPDX-License-Identifier: Apache-2.0
"""weft: what crosses process boundaries, under PyTorch.

    import weft

    world = weft.init()                    # any launcher, or alone
    world.comm.allreduce(tensor)           # in place, on every rank
    world.comm.broadcast(array, root=0)    # torch or NumPy

The guide is docs/guide/python.md.
"""

from typing import Any

from weft._core import (
    ANY_SOURCE,
    ANY_TAG,
    AVG,
    BAND,
    BOR,
    BXOR,
    LAND,
    LOR,
    LXOR,
    MAX,
    MAXLOC,
    MIN,
    MINLOC,
    PROD,
    SUM,
    AbortedError,
    ClosedError,
    Comm,
    DeniedError,
    Error,
    InvalidError,
    Message,
    MismatchError,
    NoMemError,
    Op,
    Peer,
    PeerError,
    ProtocolError,
    Request,
    SystemError,
    TimeoutError,
    TruncatedError,
    UnsupportedError,
    World,
    premul_sum,
    version,
)
from weft._job import dump, finalize, init, rank, size, world

__version__ = version()

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "AVG",
    "BAND",
    "BOR",
    "BXOR",
    "LAND",
    "LOR",
    "LXOR",
    "MAX",
    "MAXLOC",
    "MIN",
    "MINLOC",
    "PROD",
    "SUM",
    "AbortedError",
    "ClosedError",
    "Comm",
    "DeniedError",
    "Error",
    "InvalidError",
    "Message",
    "MismatchError",
    "NoMemError",
    "Op",
    "Peer",
    "PeerError",
    "ProtocolError",
    "Request",
    "SystemError",
    "TimeoutError",
    "TruncatedError",
    "UnsupportedError",
    "World",
    "dump",
    "finalize",
    "init",
    "premul_sum",
    "rank",
    "size",
    "version",
    "world",
]


def __getattr__(name: str) -> Any:
    """The pair types, weft.pair_f32 and so on, which need NumPy: made when asked for."""
    if name.startswith("pair_"):
        from weft import _arrays

        if name in _arrays.PAIRS:
            return _arrays.pair_dtype(name)
    raise AttributeError(f"module 'weft' has no attribute {name!r}")
