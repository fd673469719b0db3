# SPDX-License-Identifier: Apache-2.0
"""A rank with another version of weft: every rank ends with an error that names both."""

import pathlib
import re
import shutil
import time

import host_ranks
import pytest
import test_jobs
import weft

transport = test_jobs.transport  # skips where two hosts cannot be one job

OTHER = re.sub(r"\d", lambda digit: str((int(digit[0]) + 7) % 10), weft.__version__)


class MixedJob(host_ranks.Job):
    """A job of which one rank finds another package first."""

    def __init__(self, odd, package, bed, body, **more):
        self._odd, self._package = odd, package
        super().__init__(bed, body, **more)

    def _start(self, number, size, command, *, env, **more):
        if number == self._odd:
            env = {**env, "PYTHONPATH": str(self._package.parent)}
        return super()._start(number, size, command, env=env, **more)


def other_weft(folder):
    """A copy of the package whose library says that it is another version."""
    package = folder / "weft"
    ours = pathlib.Path(weft.__file__).parent
    shutil.copytree(ours, package, ignore=shutil.ignore_patterns("__pycache__", "libweft_cuda*"))
    (library,) = package.glob("libweft.so*")
    text, version = library.read_bytes(), weft.__version__.encode() + b"\0"
    assert text.count(version) == 1
    library.write_bytes(text.replace(version, OTHER.encode() + b"\0"))
    return package


def try_to_join():
    print("runs", weft.__version__)
    begun = time.monotonic()
    try:
        weft.init()
    except weft.Error as error:
        print(f"refused after {time.monotonic() - begun:.1f} s:", error)


@pytest.mark.parametrize("odd", [0, 1])
def test_a_rank_of_another_version_is_told_to_every_rank_with_both(bed, transport, odd):
    package = other_weft(bed.shared)
    settings = {"each": [1, 2], "environment": test_jobs.environment(transport)}
    with MixedJob(odd, package, bed, try_to_join, **settings) as job:
        said = job.finish(seconds=60)
    for rank, text in enumerate(said):
        runs, refused = text.splitlines()
        assert runs == f"runs {OTHER if rank == odd else weft.__version__}"
        assert refused.startswith("refused")
        assert f"weft {OTHER}" in refused, text
        assert f"weft {weft.__version__}" in refused, text
        # Long before the ranks would have waited for each other in vain.
        assert float(refused.split()[2]) < 30
