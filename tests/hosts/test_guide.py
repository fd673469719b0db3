# SPDX-License-Identifier: Apache-2.0
"""The guide's Python for torch under a launcher of MPI, on hosts and with its own words."""

import pathlib
import re
import sys

import launched
import pytest

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guide" / "cluster.md"
CHECK = """
import torch
x = torch.ones(3)
dist.all_reduce(x)
assert x.tolist() == [world.size] * 3
print(f"right {world.rank}\\n", end="", flush=True)  # in one piece
dist.destroy_process_group()
weft.finalize()
"""


@pytest.mark.parametrize("each", [1, 2])
def test_torch_is_told_by_weft_who_is_in_a_job_of_mpirun(bed, each):
    pytest.importorskip("torch")
    if (why := launched.lacks("openmpi")) is not None:
        pytest.skip(why)
    (block,) = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    counts = [each] * len(bed)
    words = ["env", "-u", "WEFT_TRANSPORTS", sys.executable, "-c", block + CHECK]
    said = bed.run(0, launched.command("openmpi", bed, counts, words), timeout=180)
    right = sorted(int(rank) for rank in re.findall(r"right (\d)", said))
    assert right == list(range(sum(counts))), said
