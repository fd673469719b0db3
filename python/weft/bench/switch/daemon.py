# SPDX-License-Identifier: Apache-2.0
"""A weft-switch where the cables of all hosts of a bed end."""

from __future__ import annotations

import os
import re
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from ..._switch import PROGRAM
from ..bed import Bed

__all__ = ["PROGRAM", "Daemon", "make_key"]


def make_key(path: Path) -> Path:
    """A new key, in a file that is not there yet."""
    subprocess.run([PROGRAM, "key", path], check=True, capture_output=True)
    return path


class Daemon:
    """One that runs. `settings` are what ranks need to use it; whoever makes it calls `stop`.

    core: the one that it may use; None: all
    """

    def __init__(self, bed: Bed, *options: str | os.PathLike[str], core: int | None = None):
        self._bed = bed
        key = bed.shared / "switch-key"
        if not key.exists():
            make_key(key)
        pinned: Sequence[str] = () if core is None else ("taskset", "-c", str(core))
        where = ("--key", key, "--port", "0", "--http", f"{bed.switch_address}:0")
        self.process = bed.popen_in_switch(
            [*pinned, PROGRAM, *where, *options], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"ready on port (\d+), (http://\S+)", line)
        if found is None:
            self.stop()
            raise RuntimeError(f"weft-switch did not start: {line.strip() or 'it said nothing'}")
        self.page = found[2]
        self.settings = {
            "WEFT_SWITCH": f"{bed.switch_address}:{found[1]}",
            "WEFT_SWITCH_KEY": str(key),
        }

    def chunks(self) -> int:
        """How many chunks it has reduced for the jobs that it has."""
        return self.counted("job_results_total")

    def counted(self, name: str) -> int:
        """The sum of all samples of a counter."""
        text = self._bed.from_switch(self._metrics)
        found = re.findall(rf"^weft_switch_{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
        return int(sum(map(float, found)))

    def _metrics(self) -> str:
        with urllib.request.urlopen(self.page + "metrics", timeout=10) as answer:
            return answer.read().decode()

    def stop(self) -> None:
        """End it. May be called twice."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
