# SPDX-License-Identifier: Apache-2.0
"""Ranks of one job, on hosts that are namespaces, which measure what they are told to."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from .bed import Bed
from .piped import Rank, Ranks


@contextmanager
def bed_ranks(
    bed: Bed, command: Sequence[str], hosts: Sequence[int], **env: str
) -> Iterator[Ranks]:
    """A rank on each of these hosts, several of which may be one; they meet in a directory."""
    with ExitStack() as stack:
        boot = stack.enter_context(tempfile.TemporaryDirectory(prefix="boot-", dir=bed.shared))
        shared = {"WEFT_RANKS": str(len(hosts)), "WEFT_BOOT_DIR": boot, **env}
        ranks = []
        for number, host in enumerate(hosts):
            start = functools.partial(bed.popen, host)
            ranks.append(Rank(command, {**shared, "WEFT_RANK": str(number)}, start))
            stack.callback(ranks[-1].stop)
        yield Ranks(ranks)
