# SPDX-License-Identifier: Apache-2.0
"""What a profile found, whatever tool found it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .operators import Operator
from .samples import Frame, Sample, Spent


@dataclass
class Result:
    """A profile. All times are seconds of CPU time, but those of operators, which are by clock."""

    program: list[str]
    tools: list[str]
    library: str | None = None  # all is about this one only
    status: int = 0  # of the program
    problem: str | None = None  # why there is no profile, though the program ran
    seconds: float = 0.0
    has_stacks: bool = False
    samples: list[Sample] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)
    ranks: dict[int, int] = field(default_factory=dict)
    libraries: dict[str, Spent] = field(default_factory=dict)
    functions: dict[Frame, Spent] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)
    # By operator: CPU time, the function with most of it, and that one's share.
    inside: dict[str, tuple[float, Frame, float]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    epoch: float = 0.0  # seconds from the monotonic clock to that of the epoch
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
