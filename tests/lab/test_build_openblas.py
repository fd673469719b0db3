# SPDX-License-Identifier: Apache-2.0
"""OpenBLAS, really built from Debian's source and used by PyTorch."""

import ctypes
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import small_trees

TOOLS = ("make", "cc", "apt-get", "dpkg-source")
FULL = os.environ.get("WT_FULL") == "1"
pytestmark = [
    pytest.mark.skipif(not FULL, reason="compiles for minutes; WT_FULL=1 runs it"),
    pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"not all of {TOOLS} are here"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the small target is for x86-64"),
]
AVX2 = "avx2" in pathlib.Path("/proc/cpuinfo").read_text()
# As little as a test of float32 and float64 needs.
SMALL = {
    "TARGET": "HASWELL" if AVX2 else "GENERIC",
    "NO_LAPACK": "1",
    "USE_OPENMP": "0",
    "USE_THREAD": "0",
    "SMALL_MATRIX_OPT": "0",
    "COMMON_OPT": "-O1",
    "BUILD_SINGLE": "1",
    "BUILD_DOUBLE": "1",
}


def with_ccache():
    """Where there is one: the second time it takes seconds."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = os.environ.get("CCACHE_DIR") or pathlib.Path(cache) / "ccache"
    return {"PATH": f"/usr/lib/ccache:{os.environ['PATH']}", "CCACHE_DIR": folder}


def build(box, options):
    words = [word for option in options.items() for word in ("--option", "=".join(option))]
    done = box.run("openblas", *words, "--json", variables=with_ccache(), timeout=3000)
    if re.search(r"(fetching the source|reading Debian's lists) failed", done.stderr):
        pytest.skip("Debian's source package cannot be fetched")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    """An environment with a small OpenBLAS."""
    box = small_trees.Box(tmp_path_factory.mktemp("openblas"))
    box.before = box.listing()
    box.built = build(box, SMALL)
    yield box
    # Last, so that it is what was used that is removed.
    gone = box.run("uninstall", "openblas")
    assert gone.returncode == 0, gone.stderr
    assert box.listing() == box.before


def test_the_library_multiplies_matrices(box):
    library = ctypes.CDLL(box.env / "lib" / "libopenblas.so")
    numbers = ctypes.c_double * 4
    a, b, c = numbers(1, 2, 3, 4), numbers(5, 6, 7, 8), numbers()
    two, one, zero = (ctypes.byref(ctypes.c_int(2)), *map(ctypes.c_double, (1, 0)))
    one, zero = ctypes.byref(one), ctypes.byref(zero)
    library.dgemm_(b"N", b"N", two, two, two, one, a, two, b, two, zero, c, two)
    assert list(c) == [23, 34, 31, 46]  # by columns


def test_headers_and_cmake_files_are_there(box):
    for name in ("include/cblas.h", "lib/cmake/openblas/OpenBLASConfig.cmake"):
        assert (box.env / name).is_file()
    assert str(box.env) in (box.env / "lib/pkgconfig/openblas.pc").read_text()


def blas(box, *words):
    return subprocess.run(
        [sys.executable, "-m", "weft", "blas", *map(str, words)],
        env=box.variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


needs_blas = pytest.mark.skipif(
    importlib.util.find_spec("weft.cli.blas") is None, reason="no weft blas"
)


@needs_blas
def test_weft_blas_lists_it(box):
    listed = json.loads(blas(box, "list", "--json").stdout)
    mine = [one for one in listed if one["file"].startswith(f"{box.env}/lib/")]
    assert [one["version"] for one in mine] == [box.built["version"]]


PROGRAM = """
import torch

def check(a, b):
    a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
    got = a @ b
    expected = (a[:, :, None] * b[None]).sum(1)
    direction = torch.linspace(-1, 1, got.numel(), dtype=got.dtype).reshape(got.shape)
    pairs = zip(
        [got, *torch.autograd.grad(got, [a, b], direction)],
        [expected, *torch.autograd.grad(expected, [a, b], direction)],
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)

torch.manual_seed(0)
for dtype in (torch.float32, torch.float64):
    for m, k, n in ((1, 1, 1), (33, 64, 17), (130, 70, 90), (0, 5, 3), (4, 0, 3), (3, 5, 0)):
        a, b = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)
        wide = torch.randn(2 * m, 2 * k, dtype=dtype)[::2, ::2]
        for left in (a, a.t().contiguous().t(), wide):
            check(left, b)
            check(left, b.t().contiguous().t())
    check(torch.randn(1, 8, dtype=dtype).expand(5, 8), torch.randn(8, 3, dtype=dtype))
print("right")
"""


@needs_blas
def test_pytorch_runs_on_it_and_its_results_are_right(box):
    pytest.importorskip("torch")
    script, report = box.root / "program.py", box.root / "report.json"
    script.write_text(PROGRAM)
    library = box.env / "lib" / "libopenblas.so"
    done = blas(box, "run", "--with", box.env, "--json", report, "--", sys.executable, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "right\n"
    calls: dict[str, str] = {}
    for process in json.loads(report.read_text())["processes"]:
        calls |= process["called"]
    for routine in ("sgemm_", "dgemm_"):
        assert os.path.realpath(calls[routine]) == os.path.realpath(library)


def test_the_whole_library_is_built_from_the_defaults(full, tmp_path):
    box = small_trees.Box(tmp_path)
    before = box.listing()
    build(box, {})
    library = ctypes.CDLL(box.env / "lib" / "libopenblas.so")
    assert library.zgemm_ and library.cblas_sgemm
    assert box.run("uninstall", "openblas").returncode == 0
    assert box.listing() == before
