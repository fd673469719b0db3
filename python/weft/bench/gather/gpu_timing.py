# SPDX-License-Identifier: Apache-2.0
"""How calls on a GPU are timed and noted, and the tables and ids that they get.

Systems take turns, one call between two events; a figure is the median of these, low and high its
10th and 90th percentile.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cuda_calls import Kernels

GIB = 1 << 30


@dataclass
class Times:
    """Microseconds of one system in one case."""

    us: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.us)

    def at(self, share: float) -> float:
        return sorted(self.us)[round(share * (len(self.us) - 1))]


@dataclass
class Bench:
    """What all measurements share."""

    kernels: Kernels
    quick: bool
    show: bool = False  # print each row as it comes
    failed: dict[str, str] = field(default_factory=dict)
    rows: list[dict] = field(default_factory=list)
    seconds: float = 0.15  # for the timed calls of one system in one case

    def times(self, calls: dict[str, Callable[[], Any]], inner: int = 1) -> dict[str, Times]:
        """Time each of `calls` in turn, `inner` at a time."""
        import torch

        found: dict[str, Times] = {name: Times() for name in calls}
        for call in calls.values():
            call()
        torch.cuda.synchronize()
        began = time.monotonic()
        for call in calls.values():
            call()
        torch.cuda.synchronize()
        once = max(time.monotonic() - began, 1e-4)
        least = 20 if once * inner < 0.1 else 7
        turns = int(max(least, min(50, self.seconds * len(calls) / (once * inner))))
        pairs: list[tuple[str, Any, Any]] = []
        for _ in range(turns):
            for name, call in calls.items():
                begin = torch.cuda.Event(enable_timing=True)
                end = torch.cuda.Event(enable_timing=True)
                begin.record()
                for _ in range(inner):
                    call()
                end.record()
                pairs.append((name, begin, end))
        torch.cuda.synchronize()
        for name, begin, end in pairs:
            found[name].us.append(begin.elapsed_time(end) * 1000 / inner)
        return found

    def note(self, op: str, size: int, payload: int, found: dict[str, Times]) -> None:
        """Keep a row for each system; `payload` is the bytes that a call moves."""
        for system, times in found.items():
            self.rows.append(
                {
                    "bench": "gather",
                    "case": op,
                    "system": system,
                    "ranks": 1,
                    "bytes": size,
                    "value": times.median,
                    "unit": "us",
                    "low": times.at(0.1),
                    "high": times.at(0.9),
                    "op": op,
                    "placement": "any",
                    "cores": None,
                    "blocks": len(times.us),
                    "gb_per_s": payload / times.median / 1e3,
                }
            )
            row = self.rows[-1]
            self.tell(
                f"{op:28} {size:5} B  {system:16} {times.median:10.1f} us "
                f"({row['low']:.1f} to {row['high']:.1f})  {row['gb_per_s']:8.1f} GB/s"
            )

    def tell(self, text: str) -> None:
        if self.show:
            print(text, flush=True)

    def attempt(self, what: Callable[..., Any], *arguments: Any) -> Any:
        """A measurement that may fail without keeping the others from being made; {} then."""
        import torch

        try:
            return what(self, *arguments)
        except Exception as error:
            self.failed[what.__name__] = f"{what.__name__}: {error}"
            self.tell(f"FAILED {self.failed[what.__name__]}")
            return {}
        finally:
            torch.cuda.empty_cache()


def must_equal(got: Any, want: Any, what: str) -> None:
    """Nothing is timed whose result is wrong."""
    import torch

    a, b = got.contiguous().view(torch.uint8), want.contiguous().view(torch.uint8)
    if a.shape != b.shape or not torch.equal(a, b):
        raise RuntimeError(f"{what}: the result is wrong")


def fill(tensor: Any) -> None:
    """Random bits; compared as bytes, so that a NaN is as good as any."""
    import torch

    flat = tensor.view(-1)
    step = GIB
    for at in range(0, flat.numel(), step):
        flat[at : at + step].view(torch.int64).random_()


def as_rows(memory: Any, size: int) -> Any:
    """Bytes as a table of f32 with rows of `size` bytes."""
    import torch

    count = memory.numel() // size
    return memory[: count * size].view(torch.float32).view(count, size // 4)


def random_ids(n: int, rows: int, zipf: bool = False) -> Any:
    """Row numbers, all as likely as others or a few much more."""
    import torch

    if not zipf:
        return torch.randint(0, rows, (n,), device="cuda")
    # Numbers of a Zipf law of exponent 1, spread over the table.
    rank = torch.exp(torch.rand(n, device="cuda", dtype=torch.float64) * math.log(rows)).long()
    return (rank * 2654435761) % rows
