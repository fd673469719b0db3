# SPDX-License-Identifier: Apache-2.0
"""The page of a weft-switch, in a browser, while a job uses it."""

import re

import browser
import numpy as np
import pytest
import ranks
import switches
import weft
from weft._switch import PROGRAM

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="weft-switch is not in the package")


def look(page):
    """Rank 0 looks when both have had results, and the other waits for it."""
    comm = weft.init().comm
    x = np.ones(100_000, np.float32)
    for _ in range(3):
        comm.allreduce(x)
    if comm.rank == 0:
        seen = browser.check_live(page, 4)
        assert re.search(r"<h2>job \d+: 2 ranks, \d+ slots, [1-9]\d* chunks</h2>", seen.dom)
        assert seen.count("figure") == 3
        assert seen.count("polyline") == 5  # goodput, and two plots with a line for each rank
        assert seen.count("tr") == 3
        assert re.search('id="lost" hidden', seen.dom)
    comm.barrier()


def test_the_page_shows_the_job_and_its_ranks(tmp_path):
    switch = switches.Switch(switches.make_key(tmp_path / "key"))
    environment = {**switch.environment(), "WEFT_ENGINE": "switch"}
    try:
        ranks.run(2, look, switch.page, environment=environment)
    finally:
        switch.kill()
