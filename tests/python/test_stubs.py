# SPDX-License-Identifier: Apache-2.0
"""The stubs say what the module has, no more and no less."""

import ast
import inspect
import pathlib
import subprocess
import sys

import pytest
import weft
from weft import _core

STUB = pathlib.Path(weft.__file__).with_name("_core.pyi")


def stub_members(body):
    """The names that a stub's body defines, with the parameters of functions."""
    members = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
            members[node.name] = [name for name in names if name != "self"]
        elif isinstance(node, ast.ClassDef):
            members[node.name] = None
        elif isinstance(node, ast.AnnAssign):
            members[node.target.id] = None
    return members


def visible(names):
    return {name for name in names if not name.startswith("_")}


def test_the_module_and_its_stub_have_the_same_names():
    tree = ast.parse(STUB.read_text())
    assert visible(stub_members(tree.body)) == visible(vars(_core))
    in_python = (
        "Region Shared Store attach check_rows dump empty finalize from_file full gather init "
        "new_file rank region scatter scatter_add share size table verify_file world zeros "
        "shared_arrays"
    )
    assert visible(weft.__all__) - visible(stub_members(tree.body)) == set(in_python.split())


@pytest.mark.parametrize(
    "name", ["Comm", "Request", "World", "Op", "RegionHandle", "StoreHandle", "WorkerHandle"]
)
def test_a_class_and_its_stub_have_the_same_members_and_parameters(name):
    tree = ast.parse(STUB.read_text())
    stub = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    members = stub_members(stub.body)
    kind = getattr(_core, name)
    assert visible(members) == visible(vars(kind))
    for member, parameters in members.items():
        value = inspect.getattr_static(kind, member)
        if callable(value) and not member.startswith("_"):
            found = [p for p in inspect.signature(value).parameters if p != "self"]
            assert found == parameters, member
            assert value.__doc__


def test_stubtest_agrees():
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "weft._core"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
