# SPDX-License-Identifier: Apache-2.0
"""How far a build is, read from what its tools print: a bar by tqdm, else a line now and then."""

from __future__ import annotations

import re
import sys
import time
from typing import Any

NINJA = re.compile(r"\[(\d+)/(\d+)\] ")
COMPILE = re.compile(r"(?:^|\s)-c\s.*(?:^|\s)-o\s|(?:^|\s)-o\s.*(?:^|\s)-c\s")
EVERY = 15.0  # seconds between lines where there is no bar


def is_compile(line: str) -> bool:
    """Whether a line of make is the compilation of one file."""
    return COMPILE.search(line) is not None


class Progress:
    """Fed with the lines of a step's output."""

    def __init__(self, what: str, total: int | None = None, quiet: bool = False):
        self.what, self.total, self.quiet = what, total, quiet
        self.done = 0
        self._told = time.monotonic()
        self._bar = None if quiet else _bar(what, total)
        if self._bar is None and not quiet:
            print(f"{what} ...", file=sys.stderr, flush=True)

    def feed(self, line: str) -> None:
        if found := NINJA.match(line):
            self.done, self.total = int(found[1]), int(found[2])
        elif is_compile(line):
            self.done += 1
        else:
            return
        self._show()

    def _show(self) -> None:
        if self._bar is not None:
            if self.total is not None:
                self._bar.total = max(self.total, self.done)
            self._bar.update(self.done - self._bar.n)
        elif not self.quiet and time.monotonic() - self._told >= EVERY:
            self._told = time.monotonic()
            of = f" of {self.total}" if self.total else ""
            print(f"{self.what}: {self.done}{of} files", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _bar(what: str, total: int | None) -> Any:
    """A bar where somebody looks on; in a file of output it would be noise."""
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(desc=what, total=total, unit="file", leave=False)
