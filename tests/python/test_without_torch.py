# SPDX-License-Identifier: Apache-2.0
"""What needs torch says so, by name, where there is none; the rest works."""

import subprocess
import sys

CODE = """
import importlib, sys

class Absent:  # as if it were not installed
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Absent)
import weft
for name in ("nn", "optim", "mpi", "torch", "compat.mpi4torch", "compat.wholememory", "Cache"):
    try:
        weft.Cache if name == "Cache" else importlib.import_module("weft." + name)
    except ModuleNotFoundError as error:
        assert str(error) == f"weft.{name} needs torch, which is not installed: pip install torch"
        assert error.name == "torch" and error.__cause__ is None
    else:
        raise AssertionError(name)
try:
    weft.nn
except ModuleNotFoundError as error:
    assert "weft.nn needs torch" in str(error)
assert weft.init("alone").comm.size == 1
import numpy, weft.compat.adapm
store = weft.Store(5, 2, init=lambda keys: numpy.stack([keys, -keys], 1))
assert store.pull([3]).tolist() == [[3, -3]]
print("well")
"""


def test_each_module_that_needs_torch_names_itself_and_the_remedy():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.stdout == "well\n", done.stderr
