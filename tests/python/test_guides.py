# SPDX-License-Identifier: Apache-2.0
"""The snippets of each page run from top to bottom, on two ranks under torchrun's variables.

docs/README.md says that names which a page does not introduce stand for the reader's
own data: here they have values. Tables are made smaller.
"""

import os
import pathlib
import re
import runpy
import socket

import numpy as np
import processes
import pytest

torch = pytest.importorskip("torch")
build = pytest.importorskip("weft.torch.build")

ROOT = pathlib.Path(__file__).parents[2]
SIZE = 2
# Without a GPU, in little memory and little time.
INSTEAD = (
    ("10_000_000", "1_000"),
    ("(1_000_000, 128)", "(1_000, 512)"),
    ("100000", "1000"),
    ("ratio=0.1)", 'ratio=0.1, device="cpu")'),
    ("(fullgraph=True)", '(fullgraph=True, backend="eager")'),
)
# Three ways to write one call, of which only one can suit the number of ranks.
LEFT_OUT = ("comm.allgather(x, out)  ",)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

# What a page takes for granted.
GIVEN = {
    "README.md": "",
    "docs/guide/python.md": """
import torch
""",
    "docs/guide/torch.md": "",
    "docs/guide/regions.md": "",
    "docs/guide/embeddings.md": """
import torch, weft
ids = torch.tensor([1, 2])
batches = [(ids, torch.zeros(2, 128))]
loss = torch.nn.functional.mse_loss
model = torch.nn.ModuleDict({"emb": weft.nn.Embedding(10, 4), "top": torch.nn.Linear(4, 1)})
weft.region(weft.full((1000, 8), 1.0)).save("features.weft")
""",
    "docs/guide/mpi.md": """
import torch
x, y = torch.randn(5, 3), torch.randn(5)
""",
    "docs/guide/mpi4torch.md": "import torch",
    "docs/guide/wholememory.md": """
rank, size = int(__import__("os").environ["RANK"]), 2
""",
}


def program_of(page):
    """All snippets of a page as one program."""
    text = (ROOT / page).read_text()
    for old, new in INSTEAD:
        text = text.replace(old, new)
    blocks = [block for block in BLOCK.findall(text) if not block.startswith(LEFT_OUT)]
    return "\n".join([GIVEN[page], *blocks])


def prepare(folder, page):
    """The files that a reader has."""
    (folder / "guide.py").write_text(program_of(page))
    rows = np.ones((1000, 512), np.float32)
    np.save(folder / "features.npy", rows)
    for part in (0, 1):
        rows[:500].tofile(folder / f"part_{part}")


def follow(rank, folder, port):
    os.chdir(folder)
    os.environ.update(
        {"RANK": str(rank), "WORLD_SIZE": str(SIZE), "LOCAL_RANK": str(rank)},
        LOCAL_WORLD_SIZE=str(SIZE),
        MASTER_ADDR="localhost",
        MASTER_PORT=str(port),
    )
    torch.set_num_threads(1)
    runpy.run_path("guide.py")


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("page", GIVEN)
def test_the_snippets_of_a_page_run_from_top_to_bottom(page, tmp_path):
    if not build.find():
        pytest.skip("the shim is not built")
    prepare(tmp_path, page)
    ended = processes.start(SIZE, follow, str(tmp_path), free_port(), deadline=150.0)
    processes.values(ended)
