# SPDX-License-Identifier: Apache-2.0
"""What the modules of weft.nn have in common."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from weft._core import Comm, InvalidError


def not_compiled(method: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Like torch.compiler.disable, but without importing the compiler, which takes seconds."""
    disabled = torch._disable_dynamo(method)

    @functools.wraps(method)
    def either(*args: Any, **kwargs: Any) -> torch.Tensor:
        compiles = "torch._dynamo" in sys.modules
        return (disabled if compiles else method)(*args, **kwargs)

    either._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch reports the graph break here
    return either


def padding(padding_idx: int | None, rows: int) -> int | None:
    if padding_idx is None:
        return None
    if not isinstance(padding_idx, int):
        raise InvalidError(f"padding_idx must be an int or None, not {padding_idx!r}")
    if not -rows <= padding_idx < rows:
        raise InvalidError(f"padding_idx {padding_idx} is out of range ({rows} rows)")
    return padding_idx % rows


def shared_seed(comm: Comm) -> int:
    """A random number that all ranks agree on. Collective."""
    seed = torch.randint(1 << 40, (1,))
    comm.broadcast(seed)
    return int(seed)


@contextlib.contextmanager
def own_random_numbers(seed: int, device: str) -> Iterator[None]:
    devices = [] if device == "cpu" else [device]
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield
