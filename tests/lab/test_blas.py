# SPDX-License-Identifier: Apache-2.0
"""weft blas: which libraries there are, and programs that run with one of them."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from weft.blas import NotFound, Refused, libraries

CASES = Path(__file__).with_name("blas_cases.py")
KNOWN = {library.name: library for library in libraries.libraries()}
USABLE = [name for name, library in KNOWN.items() if not library.ilp64]
BLAS = {"sgemm_", "dgemm_", "cgemm_", "zgemm_", "sgemv_", "dgemv_", "sdot_", "ddot_", "strsm_"}

FULL = os.environ.get("WT_FULL") == "1"
if importlib.util.find_spec("torch") is None:
    pytest.skip("no PyTorch here", allow_module_level=True)
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc)")


def weft(*words, **options):
    """`weft blas ...`: its exit status, what it printed and what it complained of."""
    command = [sys.executable, "-m", "weft", "blas", *map(str, words)]
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    env |= options.pop("env", {})
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=env, timeout=600, **options
    )
    done.paragraph = " ".join(done.stderr.split())
    return done


@pytest.fixture(scope="module")
def library():
    """A library for what is the same with each."""
    if not USABLE:
        pytest.skip("no BLAS library here (Debian: libopenblas0-pthread)")
    return KNOWN.get("openblas-pthread") or KNOWN[USABLE[0]]


@pytest.fixture
def script(tmp_path):
    """Writes a Python program and returns the command that runs it."""

    def write(text, name="program.py"):
        file = tmp_path / name
        file.write_text(text)
        return [sys.executable, str(file)]

    return write


@pytest.fixture(scope="module")
def own_results(tmp_path_factory):
    """The cases as PyTorch computes them by itself."""
    file = tmp_path_factory.mktemp("blas") / "own.pt"
    subprocess.run([sys.executable, CASES, file], check=True)
    return file


def compile_library(file, source, *options):
    code = file.with_suffix(".c")
    code.write_text(source)
    command = ["cc", "-shared", "-fPIC", "-o", str(file), str(code), *options]
    subprocess.run(command, check=True)
    return file


# Which libraries there are


def test_debian_s_libraries_are_listed_with_version_and_threads():
    listed = json.loads(weft("list", "--json").stdout)
    by_name = {entry["name"]: entry for entry in listed}
    folders = {
        "openblas-pthread": ("openblas-pthread", "pthread"),
        "openblas-serial": ("openblas-serial", "serial"),
        "openblas-openmp": ("openblas-openmp", "openmp"),
        "blis-pthread": ("blis-pthread", "pthread"),
        "reference": ("blas", "serial"),
    }
    there = 0
    for name, (folder, threads) in folders.items():
        if not list(Path("/usr/lib").glob(f"*/{folder}/libblas.so.3")):
            continue
        there += 1
        assert folder in by_name[name]["file"].split("/")
        assert by_name[name]["threads"] == threads
        assert by_name[name]["version"][0].isdigit()
        assert not by_name[name]["ilp64"]
    if not there:
        pytest.skip("none of Debian's BLAS packages is installed")


def test_the_best_openblas_is_one_with_threads():
    if "openblas-pthread" not in KNOWN:
        pytest.skip("no OpenBLAS with threads here")
    assert libraries.find("openblas").threads == "pthread"


def test_the_environment_s_own_library_comes_before_the_system_s(monkeypatch):
    def openblas(threads, folder):
        file = f"{folder}/libopenblas.so.0"
        return libraries.Library(f"openblas-{threads}", file, "1", threads, False, True, "openblas")

    known = [openblas("serial", "/env/lib"), openblas("pthread", "/usr/lib/x/openblas-pthread")]
    monkeypatch.setattr(libraries, "libraries", lambda: known)
    assert libraries.find("openblas") == known[1]
    monkeypatch.setattr(libraries, "_own_folders", lambda: ["/env/lib"])
    assert libraries.find("openblas") == known[0]


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(NotFound, match="no-such-blas") as error:
        libraries.find("no-such-blas")
    assert all(name in str(error.value) for name in KNOWN)


@pytest.mark.parametrize(
    ("path", "why"),
    [("/no/such/file.so", "no such file"), (__file__, "invalid ELF header"), ("/", "not a BLAS")],
)
def test_a_path_that_is_no_library_is_refused(path, why):
    with pytest.raises(NotFound, match=why):
        libraries.find(path)


@needs_cc
def test_a_library_without_gemm_is_refused(tmp_path):
    file = compile_library(tmp_path / "libnothing.so", "int nothing;\n")
    with pytest.raises(NotFound, match="no routine sgemm_"):
        libraries.find(str(file))


@needs_cc
def test_a_library_that_crashes_when_loaded_harms_nobody(tmp_path):
    source = "#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }\n"
    file = compile_library(tmp_path / "libcrash.so", source)
    with pytest.raises(NotFound, match="crashes"):
        libraries.find(str(file))


WIDE = """
#include <stdint.h>
void sgemm_(void) {}
double dasum_(const int64_t *n, const double *x, const int64_t *stride)
{
    double sum = 0;
    for (int64_t i = 0; i < *n; i++) {
        sum += x[i * *stride];
    }
    return sum;
}
"""


@needs_cc
def test_64_bit_integers_are_noticed_whatever_the_names(tmp_path):
    wide = libraries.find(str(compile_library(tmp_path / "libwide.so", WIDE)))
    narrow_source = WIDE.replace("int64_t", "int32_t")
    narrow = libraries.find(str(compile_library(tmp_path / "libnarrow.so", narrow_source)))
    assert (wide.ilp64, narrow.ilp64) == (True, False)


def test_a_library_with_64_bit_integers_is_refused():
    wide = [library for library in KNOWN.values() if library.ilp64]
    if not wide:
        pytest.skip("no ILP64 library here (Debian: libopenblas64-0-pthread)")
    for library in wide:
        with pytest.raises(Refused, match="ILP64"):
            libraries.environment(library)
        done = weft("run", "--with", library.name, "--", "true")
        assert done.returncode == 2
        assert "ILP64" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_threads_are_given_to_both_runtimes(library):
    given = libraries.environment(library, threads=3)
    assert given["OMP_NUM_THREADS"] == given["OPENBLAS_NUM_THREADS"] == "3"
    assert given["WEFTBLAS_LIBRARY"] == library.file


def test_what_is_preloaded_already_stays_in_front(library, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/first.so")
    assert libraries.environment(library)["LD_PRELOAD"].split(":")[0] == "/first.so"


# Programs that run with one


@pytest.mark.parametrize("name", USABLE or [None])
def test_results_are_those_of_pytorch_s_own_blas(name, own_results, tmp_path):
    if name is None:
        pytest.skip("no BLAS library here (Debian: libopenblas0-pthread)")
    told = tmp_path / "told.json"
    program = [sys.executable, CASES, own_results, "--compare"]
    words = ["--method", "preload", "--json", told]
    if KNOWN[name].kind == "blis" and not FULL:
        words += ["--threads", "1"]  # it starts threads for each product, and these wait busily
    done = weft("run", "--with", name, *words, "--", *program)
    assert done.returncode == 0, done.stdout + done.stderr
    (process,) = json.loads(told.read_text())["processes"]
    assert process["rebound"].keys() >= BLAS
    files = {os.path.realpath(file) for file in process["rebound"].values()}
    assert files == {KNOWN[name].file}
    assert {"sgemm_", "dgemv_", "cdotc_", "zdotu_"} <= process["called"].keys()
    assert {"sgetrf_", "cblas_sgemm_batch"} <= set(process["not_rebound"])
    assert process["ended"]
    assert KNOWN[name].file in done.paragraph


def test_registered_operators_give_the_same_results(library, own_results, tmp_path):
    told = tmp_path / "told.json"
    program = [sys.executable, CASES, own_results, "--compare"]
    words = ["--method", "kernels", "--json", told, "--", *program]
    done = weft("run", "--with", library.name, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    (process,) = json.loads(told.read_text())["processes"]
    assert {"mm", "addmm", "bmm", "baddbmm", "addmv", "dot"} <= set(process["operators"])
    assert {"sgemm_", "dgemv_", "cdotc_", "zdotu_"} <= process["called"].keys()
    assert process["rebound"] == {}


def test_lapack_comes_along_only_when_asked_for(library, script, tmp_path):
    if not library.lapack:
        pytest.skip(f"{library.name} has no LAPACK")
    text = "import torch\na = torch.randn(9, 9)\nassert torch.dist(a, a.inverse().inverse()) < .1\n"
    told = tmp_path / "told.json"
    program = script(text)
    done = weft("run", "--with", library.name, "--lapack", "--json", told, "--", *program)
    assert done.returncode == 0, done.stderr
    (process,) = json.loads(told.read_text())["processes"]
    assert os.path.realpath(process["rebound"]["sgetrf_"]) == library.file
    assert "sgetrf_" not in process["not_rebound"]


THREADS = """
import ctypes, os, torch
library = ctypes.CDLL(os.environ["WEFTBLAS_LIBRARY"])
a = torch.randn(64, 64)
images, weight = torch.randn(4, 3, 9, 9).double(), torch.randn(5, 3, 3, 3).double()
for n in (2, 1, 3):
    torch.set_num_threads(n)
    a @ a
    assert library.openblas_get_num_threads() == n, n
    if n > 1:  # each image on a thread of PyTorch's
        torch.nn.functional.conv2d(images, weight)
        assert library.openblas_get_num_threads() == 1
"""


def test_the_library_uses_as_many_threads_as_pytorch_and_one_inside_its_threads(script):
    if "openblas-pthread" not in KNOWN:
        pytest.skip("no OpenBLAS with threads of its own here")
    env = {"OPENBLAS_NUM_THREADS": "", "OMP_NUM_THREADS": "4"}
    done = weft("run", "--with", "openblas-pthread", "--", *script(THREADS), env=env)
    assert done.returncode == 0, done.stderr


def test_the_ranks_of_torchrun_are_told_of(library, script, tmp_path):
    _, file = script("import torch\ntorch.ones(4, 4) @ torch.ones(4, 4)\n")
    told = tmp_path / "told.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", file]
    done = weft("run", "--with", library.name, "--json", told, "--", *launcher)
    assert done.returncode == 0, done.stderr
    ranks = {entry["rank"] for entry in json.loads(told.read_text())["processes"]}
    assert {"0", "1"} <= ranks
    assert "2 processes (ranks 0, 1)" in done.paragraph


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
        ("os._exit(7)", 7),
        ("raise SystemExit(3)", 3),
    ],
)
def test_a_program_that_fails_or_is_killed_keeps_its_status_and_is_told_of(
    end, status, library, script
):
    text = f"import os, signal, torch\ntorch.ones(4, 4) @ torch.ones(4, 4)\n{end}\n"
    done = weft("run", "--with", library.name, "--", *script(text))
    assert done.returncode == status
    assert "Called: sgemm_." in done.paragraph
    assert ("may not be all" in done.paragraph) == (status != 3)


def test_a_process_that_was_forked_tells_for_itself(library, script, tmp_path):
    text = (
        "import os, torch\nx = torch.ones(4, 4)\nx @ x\n"
        "if os.fork() == 0:\n    torch.dot(x[0], x[1])\n    os._exit(0)\nos.wait()\n"
    )
    told = tmp_path / "told.json"
    done = weft("run", "--with", library.name, "--json", told, "--", *script(text))
    assert done.returncode == 0, done.stderr
    calls = [set(entry["called"]) for entry in json.loads(told.read_text())["processes"]]
    assert calls == [{"sgemm_"}, {"sdot_"}]


def test_a_program_without_pytorch_runs_and_is_said_to_have_none(library):
    done = weft("run", "--with", library.name, "--", "sh", "-c", "exit 5")
    assert done.returncode == 5
    assert "no process loaded PyTorch" in done.paragraph


def test_a_program_killed_before_any_call_is_not_said_to_have_been_served(library):
    done = weft("run", "--with", library.name, "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + signal.SIGTERM
    assert "SIGTERM" in done.paragraph
    assert "served nothing" in done.paragraph


def test_quiet_says_nothing(library):
    done = weft("run", "--with", library.name, "--quiet", "--", "true")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--with", "nothing-like-it", "--", "true"], "nothing-like-it"),
        (["--with", "/etc/passwd", "--", "true"], "not a BLAS library"),
        (["--with", "@", "--", "/no/such/program"], "/no/such/program"),
        (["--with", "@"], "no program to run"),
        (["--with", "@", "--json", "/no/such/folder/x.json", "--", "true"], "no such folder"),
        (["--with", "@", "--lapack", "--method", "kernels", "--", "true"], "--lapack"),
    ],
)
def test_bad_input_is_one_line_and_status_2(words, why, library):
    done = weft("run", *(library.name if word == "@" else word for word in words))
    assert done.returncode == 2
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1


FAKE = """
int sgemm_(void) { return 0; }
int call_it(void) { return sgemm_(); }
"""


@needs_cc
@pytest.mark.parametrize("method", ["preload", "auto"])
def test_a_pytorch_whose_symbols_cannot_be_rebound_is_refused(method, library, tmp_path):
    package = tmp_path / "torch"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    bound_inside = ("-Wl,-Bsymbolic", "-Wl,-z,now")
    compile_library(package / "lib" / "libtorch_cpu.so", FAKE, *bound_inside)
    mark = tmp_path / "started"
    program = [sys.executable, "-c", f"open({str(mark)!r}, 'w')"]
    words = ["run", "--with", library.name, "--method", method, "--", *program]
    done = weft(*words, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2
    assert "none of the BLAS symbols" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not mark.exists()


def test_a_sitecustomize_of_the_user_s_is_run_as_well(library, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.of_the_user = 1\n")
    text = (
        "import sys, torch; assert sys.of_the_user; assert not torch.backends.mkldnn.enabled; "
        "torch.nn.functional.conv2d(torch.ones(2, 3, 9, 9), torch.ones(5, 3, 3, 3))"
    )
    words = ["run", "--with", library.name, "--no-onednn", "--", sys.executable, "-c", text]
    done = weft(*words, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "Called: sgemm_." in done.paragraph


# Comparing them


def test_compare_measures_pytorch_s_own_beside_a_library(library, tmp_path):
    rows = tmp_path / "rows.json"
    words = ["--quick", "--ops", "sgemm", "--sizes", "32", "--rounds", "1", "--json", rows]
    done = weft("compare", "gemm", *words, "--systems", f"torch,{library.name}")
    assert done.returncode == 0, done.stderr
    measured = [row for row in json.loads(rows.read_text()) if row.get("value") is not None]
    assert {row["system"] for row in measured} >= {"torch", library.name}


@pytest.mark.parametrize("words", [[], ["list"], ["run"], ["compare"]])
def test_help_has_examples(words):
    done = weft(*words, "--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout
    assert "weft blas" in done.stdout.split("examples:")[1]


def test_compare_refuses_what_it_cannot_measure():
    done = weft("compare", "--systems", "no-such-library")
    assert done.returncode == 2
    assert "no-such-library" in done.stderr
