# SPDX-License-Identifier: Apache-2.0
"""`weft build pytorch`: on a tree that is built in a moment, and CMake on Debian's."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import small_trees
from weft.build import pytorch

pytestmark = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("make", "cc", "c++", "cmake")),
    reason="no make, cmake or compiler",
)


@pytest.fixture
def box(tmp_path):
    """With an OpenBLAS in its environment, built by weft."""
    box = small_trees.Box(tmp_path)
    tree = small_trees.openblas(tmp_path / "OpenBLAS")
    done = box.run("openblas", "--source", tree)
    assert done.returncode == 0, done.stderr
    return box


@pytest.fixture
def tree(tmp_path):
    pytest.importorskip("yaml", reason="PyTorch's setup.py needs pyyaml")
    return small_trees.pytorch(tmp_path / "pytorch")


def test_it_is_built_with_the_openblas_of_the_environment_and_uninstalled(box, tree):
    before = box.listing()
    done = box.run("pytorch", "--source", tree)
    assert done.returncode == 0, done.stderr
    assert f"CMake chose {box.env}/lib/libopenblas.so" in done.stdout
    (module,) = box.env.rglob("site-packages/torch/__init__.py")
    code = "import sys; sys.path.insert(0, sys.argv[1]); import torch; print(torch.answer)"
    answer = subprocess.run(
        [sys.executable, "-c", code, module.parents[1]], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "42\n"
    gone = box.run("uninstall", "pytorch")
    assert gone.returncode == 0, gone.stderr
    assert box.listing() == before


def test_configure_only_stops_there_and_installs_nothing(box, tree):
    before = box.listing()
    done = box.run("pytorch", "--source", tree, "--configure-only", "--json")
    read = json.loads(done.stdout)
    assert read["chosen"]["OpenBLAS_LIB"] == f"{box.env}/lib/libopenblas.so"
    assert "files" not in read and box.listing() == before


def test_another_openblas_in_its_way_is_an_error(box, tree):
    done = box.run("pytorch", "--source", tree, "--configure-only", variables={"FOUND": "/usr"})
    assert "CMake chose /usr/lib/libopenblas.so as OpenBLAS_LIB, not" in small_trees.said(done, 1)


def test_without_openblas_it_says_what_to_run_first(box, tree):
    assert box.run("uninstall", "openblas").returncode == 0
    done = box.run("pytorch", "--source", tree)
    assert "run weft build openblas first" in small_trees.said(done, 2)


def test_a_clone_without_submodules_is_told_what_to_run(box, tree):
    shutil.rmtree(tree / "third_party" / "onnx")
    done = box.run("pytorch", "--source", tree)
    assert "git submodule update --init --recursive" in small_trees.said(done, 2)


def test_an_option_that_setup_would_ignore_is_refused(box, tree):
    done = box.run("pytorch", "--source", tree, "--option", "COLOUR=red")
    assert "PyTorch has no option COLOUR" in small_trees.said(done, 2)


def test_a_torch_that_pip_installed_is_not_overwritten(box, tree):
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    theirs = box.env / f"lib/python{version}/site-packages/torch/__init__.py"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs = True\n")
    before = box.listing()
    assert "torch/__init__.py" in small_trees.said(box.run("pytorch", "--source", tree), 2)
    assert box.listing() == before
    forced = box.run("pytorch", "--source", tree, "--force")
    assert forced.returncode == 0, forced.stderr
    assert box.run("uninstall", "pytorch").returncode == 0
    assert box.listing() == before


def lacking():
    """What the configure step of Debian's source lacks here."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-source"):
        return "no apt-get or no dpkg-source"
    pattern = "-f=${db:Status-Status} "
    done = subprocess.run(
        ["dpkg-query", "-W", pattern, *pytorch.PACKAGES],
        capture_output=True,
        text=True,
        check=False,
    )
    here = done.stdout.split().count("installed")
    return None if here == len(pytorch.PACKAGES) else "Debian's packages for PyTorch are not here"


def test_cmake_on_debians_source_chooses_the_openblas_just_built(box):
    """Its try_compile programs link with the small library, which has what they look for."""
    pytest.importorskip("yaml", reason="PyTorch's setup.py needs pyyaml")
    if (why := lacking()) is not None:
        pytest.skip(why)
    done = box.run("pytorch", "--configure-only", "--json", timeout=3000)
    if re.search(r"(fetching the source|reading Debian's lists) failed", done.stderr):
        pytest.skip("Debian's source package cannot be fetched")
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    assert read["chosen"]["BLAS"] == "OpenBLAS"
    assert read["chosen"]["OpenBLAS_LIB"] == f"{box.env}/lib/libopenblas.so"
    assert read["chosen"]["OpenBLAS_INCLUDE_DIR"] == f"{box.env}/include"
    build = pathlib.Path(read["work"]) / "source" / "build"
    assert (build / "build.ninja").exists() or (build / "Makefile").exists()
