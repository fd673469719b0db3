# SPDX-License-Identifier: Apache-2.0
"""Operators and weft's own operations are recorded in a program that knows nothing of it."""

import json
import os
import subprocess
import sys

import pytest
from weft.profile import ranges
from weft.profile.operators import HOOK

torch = pytest.importorskip("torch")

JOB = """
import sys
import torch
import torch.distributed as dist
import weft
import weft.torch

dist.init_process_group("weft")
x = torch.ones(1000)
dist.all_reduce(x)
dist.all_reduce(x, async_op=True).wait()
weft.init().comm.broadcast(torch.ones(50, dtype=torch.float64), root=0)
table = weft.zeros((100, 4))
weft.gather(table, torch.tensor([1, 2, 3]))
assert sys.argv[1:] == ["--some", "argument"], sys.argv
dist.destroy_process_group()
"""


def run(*command, cwd, **environment):
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def missing():
    from weft.torch import build

    return None if build.find() else f"the shim is not built: {build.COMMAND}"


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_the_trace_of_two_ranks_has_the_operations_of_weft_with_bytes(tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    words = ["-m", "weft", "profile", "--tool", "torch", "--json", "--out", "out", "--"]
    words += [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "job.py"]
    done = run(*words, "--some", "argument", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {op["operator"]: op for op in json.loads(done.stdout)["operators"]}
    calls = {"weft:all_reduce": (4, 16000), "weft:broadcast": (2, 800), "weft:gather": (2, 96)}
    for name, (times, size) in calls.items():
        assert (found[name]["calls"], found[name]["bytes"]) == (times, size)
        assert found[name]["ranks"] == [0, 1]
    events = json.loads((tmp_path / "out/trace.json").read_text())["traceEvents"]
    reduced = [event["args"] for event in events if event["name"] == "weft:all_reduce"]
    assert {(a["bytes"], a["rank"], a["world size"]) for a in reduced} == {
        (4000, 0, 2),
        (4000, 1, 2),
    }
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {name.split(" (")[0] for name in names} >= {"rank 0", "rank 1"}


def test_a_program_without_torch_runs_as_ever_and_it_is_told(tmp_path):
    program = "import sys; print(sys.argv[1], sys.path[0] == ''); sys.exit(7)"
    words = ["-m", "weft", "profile", "--tool", "torch", "--", sys.executable, "-c", program, "x"]
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 7
    assert done.stdout == "x True\n"
    assert "no operator was recorded" in done.stderr
    assert list(tmp_path.iterdir()) == []


def hooked(code, folder, *path, seconds=None):
    """Run code in a process that has the hook, which records into the folder."""
    env = {
        "PYTHONPATH": os.pathsep.join([str(HOOK), *map(str, path)]),
        "_WEFT_PROFILE": json.dumps({"folder": str(folder), "seconds": seconds}),
    }
    return run("-c", code, cwd=folder, **env)


def test_another_sitecustomize_is_imported_too(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('own')\n")
    done = hooked("import sitecustomize; print(sitecustomize.__file__)", tmp_path, own)
    assert done.stdout.splitlines() == ["own", str(own / "sitecustomize.py")], done.stderr


def test_a_hook_that_cannot_record_leaves_the_program_alone(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("name = 'not the real one'\n")
    done = hooked("import torch; print(torch.name)", tmp_path, tmp_path)
    assert (done.returncode, done.stdout) == (0, "not the real one\n"), done.stderr
    (error,) = tmp_path.glob("error-*.txt")
    assert "torch.profiler" in error.read_text()


def test_recording_stops_on_the_thread_that_began_it(tmp_path):
    code = (
        "import glob, time, torch\n"
        "while not glob.glob('torch-*.json'): torch.ones(3); time.sleep(0.01)\n"
    )
    done = hooked(code, tmp_path, seconds=0.2)
    assert done.returncode == 0, done.stderr
    (about,) = tmp_path.glob("process-*.json")
    assert json.loads(about.read_text())["cut"] is True


def test_operations_of_a_comm_are_observed_while_somebody_looks():
    code = (
        "import numpy, weft\n"
        "from weft import _core\n"
        "seen = []\n"
        "comm = weft.init().comm\n"
        "assert _core.observe(lambda *call: seen.append(call)) is None\n"
        "comm.allreduce(numpy.ones(4)); comm.iallreduce(numpy.ones(2)).wait(); comm.barrier()\n"
        "assert _core.observe(None) is not None\n"
        "comm.barrier()\n"
        "names = [(name, size, rank, n) for name, size, rank, n, begin, end in seen]\n"
        "assert names[:2] == [('allreduce', 32, 0, 1), ('iallreduce', 16, 0, 1)], names\n"
        "assert names[2:] == [('barrier', 0, 0, 1)], names\n"
        "assert all(0 < begin <= end for *_, begin, end in seen)\n"
        "def broken(*call): raise ValueError('not mine')\n"
        "_core.observe(broken)\n"
        "comm.barrier()\n"
    )
    done = run("-c", code, cwd=".")
    assert done.returncode == 0, done.stderr
    assert "not mine" in done.stderr


def test_what_is_no_tensor_has_no_bytes():
    assert ranges.nbytes(torch.ones(3)) == 12
    assert ranges.nbytes(None) == 0
