# SPDX-License-Identifier: Apache-2.0
"""Hosts with different versions of UCX: Debian's, and that of the wheel libucx-cu12.

`make` unpacks the wheel into a folder of its own beside the packages of .venv, so that nothing
else finds it.
"""

import ctypes
import os
import pathlib
import re
import sys

import host_ranks
import numpy as np
import pytest
import test_jobs
import weft

WHEEL = pathlib.Path(sys.prefix, "ucx", "libucx", "lib")

pytestmark = pytest.mark.over("ucx")


def load_wheel():
    """Before libweft_ucx.so asks for libraries of these names."""
    ctypes.CDLL(str(WHEEL / "libucp.so.0"))


def say_which_ucx():
    """Print where this rank's libucp is, once the transport is open."""
    maps = pathlib.Path("/proc/self/maps").read_text()
    (path,) = set(re.findall(r"/\S*libucp\.so\S*", maps))
    print(path)


def collectives_and_messages(newer):
    """Ranks whose numbers are in `newer` use the wheel's UCX."""
    if int(os.environ["WEFT_RANK"]) in newer:
        load_wheel()
    test_jobs.collectives()
    comm = weft.init().comm
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for count in (0, 1, 10_000, 1_000_000):
        came = np.empty(count, int)
        comm.sendrecv(np.full(count, comm.rank), after, came, before)
        assert (came == before).all()
    say_which_ucx()


@pytest.mark.bed(hosts=3)
@pytest.mark.parametrize("newer", [[1], [0, 2]], ids=str)
def test_hosts_with_two_versions_of_ucx_are_one_job(bed, newer):
    if (why := test_jobs.unsupported("ucx")) is not None:
        pytest.skip(f"no job on several hosts by ucx: {why}")
    if not WHEEL.exists():
        pytest.skip(f"no second UCX to mix with: the wheel libucx-cu12 is not in {WHEEL}")
    said = host_ranks.run(
        bed, collectives_and_messages, newer, environment=test_jobs.environment("ucx")
    )
    used = [text.splitlines()[-1] for text in said]
    assert [path.startswith(str(WHEEL)) for path in used] == [r in newer for r in range(3)], used
