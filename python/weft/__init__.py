# SPDX-License-Identifier: Apache-2.0
"""weft: what crosses process boundaries, under PyTorch.

    import weft

    world = weft.init()                    # any launcher, or alone
    world.comm.allreduce(tensor)           # in place, on every rank
    world.comm.broadcast(array, root=0)    # torch or NumPy
    table = weft.empty((10_000_000, 512))  # one tensor, seen by all ranks
    store = weft.Store(10_000_000, 512)    # rows by keys, each where it is used

The guides are docs/guide/python.md, docs/guide/regions.md and docs/guide/store.md.
"""

import importlib
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
    Arena,
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
from weft._create import empty, from_file, full, new_file, table, verify_file, zeros
from weft._job import dump, finalize, init, rank, size, world
from weft._region import Region, region
from weft._rows import check_rows, gather, scatter, scatter_add
from weft._share import Shared, attach, share
from weft._shared_arrays import shared_arrays
from weft._store import Store

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
    "Arena",
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
    "Region",
    "Request",
    "Shared",
    "Store",
    "SystemError",
    "TimeoutError",
    "TruncatedError",
    "UnsupportedError",
    "World",
    "attach",
    "check_rows",
    "dump",
    "empty",
    "finalize",
    "from_file",
    "full",
    "gather",
    "init",
    "new_file",
    "premul_sum",
    "rank",
    "region",
    "scatter",
    "scatter_add",
    "share",
    "shared_arrays",
    "size",
    "table",
    "verify_file",
    "version",
    "world",
    "zeros",
]


def __getattr__(name: str) -> Any:
    """What needs torch or NumPy: weft.nn, weft.optim, weft.Cache, and the pair types."""
    if name in ("nn", "optim"):
        return importlib.import_module(f"weft.{name}")
    if name == "Cache":
        return importlib.import_module("weft._cache").Cache
    if name.startswith("pair_"):
        from weft import _arrays

        if name in _arrays.PAIRS:
            return _arrays.pair_dtype(name)
    raise AttributeError(f"module 'weft' has no attribute {name!r}")
