# SPDX-License-Identifier: Apache-2.0
"""weft: what crosses process boundaries, under PyTorch.

    import weft

    world = weft.init()                    # any launcher, or alone
    world.comm.allreduce(tensor)           # in place, on every rank
    world.comm.broadcast(array, root=0)    # torch or NumPy

The guide is docs/guide/python.md.
"""

from weft._core import (
    AVG,
    BAND,
    BOR,
    BXOR,
    LAND,
    LOR,
    LXOR,
    MAX,
    MIN,
    PROD,
    SUM,
    AbortedError,
    ClosedError,
    Comm,
    DeniedError,
    Error,
    InvalidError,
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
    "AVG",
    "BAND",
    "BOR",
    "BXOR",
    "LAND",
    "LOR",
    "LXOR",
    "MAX",
    "MIN",
    "PROD",
    "SUM",
    "AbortedError",
    "ClosedError",
    "Comm",
    "DeniedError",
    "Error",
    "InvalidError",
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
