# SPDX-License-Identifier: Apache-2.0
"""The old ways in: the targets, programs and files of pytorch-backend."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import small_trees

FOLDER = pathlib.Path(__file__).parents[2] / "compat" / "pytorch_backend"
pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="no make")


def make(*words, folder=FOLDER, env=None):
    return subprocess.run(
        ["make", "--no-print-directory", f"PYTHON={sys.executable}", *words],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def shown(*words, **more):
    """The calls of weft that a target makes."""
    done = make("-n", *words, **more)
    assert done.returncode == 0, done.stderr
    text = done.stdout.replace("\\\n", " ")
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    calls = [line for line in lines if f"{sys.executable} -m weft" in line]
    return [
        call.replace(f"{sys.executable} -m ", "").replace(sys.executable, "py") for call in calls
    ]


@pytest.mark.parametrize(
    ("target", "calls"),
    [
        ("openblas-install", ["weft build openblas"]),
        ("pytorch-install", ["weft build pytorch"]),
        ("openblas-uninstall", ["weft build uninstall openblas"]),
        ("pytorch-uninstall", ["weft build uninstall pytorch"]),
        ("install-all", ["weft build openblas", "weft build pytorch"]),
        ("uninstall-all", ["weft build uninstall pytorch", "weft build uninstall openblas"]),
        (
            "blas-profile",
            [
                "weft profile --tool auto --lib openblas -- weft blas run --with openblas -- "
                "py ./benchmarks/conv2d_example.py"
            ],
        ),
        (
            "torch-profile",
            [
                "weft profile --tool auto --lib libtorch_python.so -- "
                "py ./benchmarks/conv2d_example.py"
            ],
        ),
    ],
)
def test_each_target_of_the_document_is_a_call_of_weft(target, calls):
    assert shown(target) == calls


def test_any_library_is_profiled_in_both_spellings():
    ours = shown("profile", "PROG=a.py", "LIB=libfoo.so")
    assert ours == ["weft profile --tool auto --lib libfoo.so -- py a.py"]
    old = {"LD_PROFILE": "libfoo.so", "LD_PROFILE_PATH": "/some/where"}
    theirs = shown("profile", "PROG=a.py", env=old)
    assert theirs == ["weft profile --tool sprof --lib /some/where/libfoo.so -- py a.py"]
    assert "make profile PROG=" in make("profile").stderr


def test_a_source_tree_beside_the_makefile_is_used(tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "old")
    (folder / "OpenBLAS").mkdir()
    assert shown("openblas-install", folder=folder) == ["weft build openblas --source OpenBLAS"]


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_openblas_is_installed_and_uninstalled_by_make(tmp_path):
    box = small_trees.Box(tmp_path)
    folder = shutil.copytree(FOLDER, tmp_path / "old")
    small_trees.openblas(folder / "OpenBLAS")
    env = box.variables | {"VIRTUAL_ENV": str(box.env)}
    before = box.listing()
    done = make("openblas-install", folder=folder, env=env)
    assert done.returncode == 0, done.stderr
    assert (box.env / "lib" / "libopenblas.so").exists()
    assert make("openblas-uninstall", folder=folder, env=env).returncode == 0
    assert box.listing() == before


def python(*words):
    return subprocess.run(
        [sys.executable, *words], cwd=FOLDER, capture_output=True, text=True, check=False
    )


def test_check_pytorch_prints_the_build_configuration():
    torch = pytest.importorskip("torch")
    done = python("check_pytorch.py")
    assert done.returncode == 0, done.stderr
    assert torch.__version__ in done.stdout and "PyTorch built with:" in done.stdout


@pytest.mark.parametrize("name", ["conv2d_example.py", "cond2d_example.py"])
def test_the_conv2d_example_runs_under_both_names(name):
    pytest.importorskip("torch")
    done = python(f"benchmarks/{name}", "--repeat", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("conv2d (8, 64, 56, 56)")


def test_the_conda_environment_is_called_torchsrc():
    yaml = pytest.importorskip("yaml")
    read = yaml.safe_load((FOLDER / "environment.yml").read_text())
    assert read["name"] == "torchsrc"
    assert {"cmake>=3.25", "pyyaml", "cxx-compiler"} <= set(read["dependencies"])
