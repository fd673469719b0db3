# SPDX-License-Identifier: Apache-2.0
"""The Python of each guide, block after block as a reader would type it, on 1 and 2 ranks."""

import os
import pathlib
import re
import secrets

import processes
import pytest
import torch
import torch.distributed as dist
import weft.torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE = 180.0

# What a guide takes for granted.
GIVEN = {
    "embeddings.md": """
import torch, weft
batches = [(torch.randint(1000, (8,)), torch.zeros(8, 128)) for _ in range(2)]
loss = torch.nn.functional.mse_loss
model = torch.nn.Sequential(weft.nn.Embedding(50, 4), torch.nn.Linear(4, 1))
weft.region(weft.zeros((1000, 8))).save("features.weft")
ids = torch.randint(1000, (8,))
""",
    "mpi4torch.md": "import torch",
    "regions.md": """
import numpy, weft
if weft.init().rank == 0:
    numpy.save("features.npy", numpy.zeros((10, 3), "f4"))
    for part in range(2):
        numpy.zeros((500, 512), "f4").tofile(f"part_{part}")
weft.world().comm.barrier()
""",
    "regions-files.md": """
import weft
weft.region(weft.zeros((10, 3), "f4", like="numpy")).save("table.weft")
""",
    "wholememory.md": "rank, size = place['rank'], place['world_size']",
}
# Of programs that others run: examples/pde.py has these lines.
FRAGMENTS = {"mpi-pde.md"}
# The same with less memory, no GPU, no C++ compiler, and without torchrun.
SMALLER = {
    "10_000_000": "1_000",
    "100000, 512": "100, 512",
    "ratio=0.1)": "ratio=0.1, device='cpu')",
    "torch.compile(fullgraph=True)": "torch.compile(fullgraph=True, backend='aot_eager')",
    'init_process_group("weft"': 'init_process_group("weft", **place',
}


def blocks(text):
    """The blocks of Python, each after as many empty lines as it is down the page."""
    for found in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield "\n" * text[: found.start()].count("\n") + found[1]


def smaller(text):
    for long, short in SMALLER.items():
        text = text.replace(long, short)
    return text


def guides():
    files = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
    return [file for file in files if any(blocks(file.read_text())) and file.name not in FRAGMENTS]


def read_it(rank, size, file, folder, job):
    os.chdir(folder)
    os.environ.update({"WEFT_RANK": str(rank), "WEFT_RANKS": str(size), "WEFT_JOB": job})
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), size)
    place = {"rank": rank, "world_size": size}
    names = {"__name__": "__main__", "place": place}
    exec(GIVEN.get(file.name, ""), names)
    for number, block in enumerate(blocks(smaller(file.read_text()))):
        if "init_process_group" in block and dist.is_initialized():
            dist.destroy_process_group()  # another way to do the same
        place["store"] = dist.PrefixStore(str(number), store)
        path = pathlib.Path(folder, f"{file.name}-{number}-{rank}.py")  # TorchScript looks at it
        path.write_text(block)
        exec(compile(block, path, "exec"), names)
    weft.finalize()


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("file", guides(), ids=lambda file: file.name)
def test_a_guide_runs_from_top_to_bottom(file, size, tmp_path):
    job = secrets.token_hex(8)
    ended = processes.start(size, read_it, size, file, str(tmp_path), job, deadline=DEADLINE)
    processes.values(ended)


def test_the_words_that_are_replaced_are_in_the_guides():
    text = "".join(file.read_text() for file in guides())
    assert all(word in text for word in SMALLER)
