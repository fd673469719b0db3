# SPDX-License-Identifier: Apache-2.0
"""The library that `weft blas run` preloads, with a PyTorch that is made up."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from weft.blas import libraries

SOURCES = sorted((Path(__file__).parents[2] / "python" / "ext" / "blas").glob("*.c"))
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g"]

# cdotc_ stores the value, zdotc_ returns it; all are wrong, to tell who was called.
OWN = """
void sgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
            const float *alpha, const float *a, const int *lda, const float *b,
            const int *ldb, const float *beta, float *c, const int *ldc)
{
    *c = -1;
}
void cdotc_(float _Complex *sum, const int *n, const float _Complex *x, const int *dx,
            const float _Complex *y, const int *dy)
{
    *sum = -1;
}
double _Complex zdotc_(const int *n, const double _Complex *x, const int *dx,
                       const double _Complex *y, const int *dy)
{
    return -1;
}
"""
TORCH = """
#include <complex.h>
void sgemm_(const char *, const char *, const int *, const int *, const int *, const float *,
            const float *, const int *, const float *, const int *, const float *, float *,
            const int *);
void cdotc_(float _Complex *, const int *, const float _Complex *, const int *,
            const float _Complex *, const int *);
double _Complex zdotc_(const int *, const double _Complex *, const int *, const double _Complex *,
                       const int *);
int run(void)
{
    const int one = 1, two = 2;
    const float f = 3;
    const float _Complex c[2] = {1 + 2 * I, 3};
    const double _Complex z[2] = {1 + 2 * I, 3};
    float product = 0;
    float _Complex sum = 0;

    sgemm_("N", "N", &one, &one, &one, &f, &f, &one, &f, &one, &f, &product, &one);
    cdotc_(&sum, &two, c, &one, c, &one);
    return product == 27 && sum == 14 && zdotc_(&two, z, &one, z, &one) == 14 ? 0 : 1;
}
"""
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    void *torch = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*run)(void) = 0;
    int status = 1;
    pid_t child;

    if (torch == NULL) {
        puts(dlerror());
        return 2;
    }
    *(void **)&run = dlsym(torch, "run");
    child = fork();
    if (child == 0) {
        _exit(run());
    }
    waitpid(child, &status, 0);
    return run() || status;
}
"""


def compiled(file, source, *options):
    code = file.with_suffix(".c")
    code.write_text(source)
    subprocess.run(["cc", "-std=gnu11", "-o", str(file), str(code), *options], check=True)
    return file


@pytest.fixture(params=["own", "linked"])
def program(request, tmp_path):
    """Runs the program with the made-up PyTorch, which contains a BLAS or is linked with one, and
    a preloaded library."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc)")
    usable = [one for one in libraries.libraries() if libraries.refusal(one) is None]
    if not usable:
        pytest.skip("no BLAS library here (Debian: libblas3)")
    (tmp_path / "lib").mkdir()
    shared = ("-shared", "-fPIC")
    if request.param == "own":
        torch = compiled(tmp_path / "lib" / "libtorch_cpu.so", TORCH + OWN, *shared)
    else:
        blas = compiled(tmp_path / "lib" / "libsystem.so", OWN, *shared)
        torch = compiled(tmp_path / "lib" / "libtorch_cpu.so", TORCH, *shared, str(blas))
    main = compiled(tmp_path / "program", PROGRAM, "-ldl")
    report = tmp_path / "report"

    def run(preload, **extra):
        report.write_text("")
        env = {**os.environ, "LD_PRELOAD": preload, "WEFTBLAS_REPORT": str(report)}
        env |= {"WEFTBLAS_LIBRARY": usable[0].file, "WEFTBLAS_PREFIX": usable[0].prefix} | extra
        done = subprocess.run(
            [main, torch], env=env, capture_output=True, text=True, check=False, timeout=120
        )
        return done, [line.split("\t") for line in report.read_text().splitlines()]

    return run


def test_both_ways_to_return_a_complex_number_are_met(program):
    done, lines = program(str(libraries.SHIM))
    assert done.returncode == 0, done.stderr
    calls = [(pid, name) for kind, pid, name, *_ in (line for line in lines if line[0] == "call")]
    assert [name for _, name in calls] == ["sgemm_", "cdotc_", "zdotc_"] * 2
    assert len({pid for pid, _ in calls}) == 2
    bound = {(line[2], line[4]) for line in lines if line[0] == "bind"}
    assert bound == {(name, "library") for name in ("sgemm_", "cdotc_", "zdotc_")}
    assert [line[0] for line in lines].count("end") == 1  # the forked one left without


def test_a_library_that_is_gone_leaves_the_calls_to_pytorch(program):
    done, lines = program(str(libraries.SHIM), WEFTBLAS_LIBRARY="/no/such/library.so")
    assert done.returncode == 1  # what the made-up routines return is wrong
    assert "/no/such/library.so" in done.stderr
    assert any(line[0] == "failure" for line in lines)


def test_without_a_report_nothing_is_said(program):
    done, lines = program(str(libraries.SHIM), WEFTBLAS_REPORT="/no/such/file")
    assert (done.returncode, done.stdout, done.stderr, lines) == (0, "", "", [])


def test_it_is_clean_under_sanitizers(program, tmp_path):
    shim = tmp_path / "libweftblas.so"
    options = ["-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-fvisibility=hidden"]
    command = ["cc", *options, *SANITIZE, *map(str, SOURCES), "-ldl", "-o", str(shim)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("cc has no address sanitizer")
    find = ["cc", "-print-file-name=libasan.so"]
    runtime = subprocess.run(find, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(runtime):
        pytest.skip("cc links its sanitizer statically: it cannot be preloaded")
    done, lines = program(f"{runtime}:{shim}", ASAN_OPTIONS="detect_leaks=0")
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    assert any(line[0] == "end" for line in lines)


# It stores how many callers were inside at once, at most.
ONE_THREAD = """
#include <stdatomic.h>
#include <unistd.h>
static atomic_int inside, most;
int openblas_get_parallel(void)
{
    return PARALLEL;
}
void sgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
            const float *alpha, const float *a, const int *lda, const float *b,
            const int *ldb, const float *beta, float *c, const int *ldc)
{
    int now = atomic_fetch_add(&inside, 1) + 1;

    if (now > atomic_load(&most)) {
        atomic_store(&most, now);
    }
    usleep(20000);
    atomic_fetch_sub(&inside, 1);
    *c = atomic_load(&most);
}
"""
THREADS = """
#include <pthread.h>
void sgemm_(const char *, const char *, const int *, const int *, const int *, const float *,
            const float *, const int *, const float *, const int *, const float *, float *,
            const int *);
static float most;
static void *call(void *ignored)
{
    const int one = 1;
    const float f = 1;
    float c = 0;

    for (int i = 0; i < 5; i++) {
        sgemm_("N", "N", &one, &one, &one, &f, &f, &one, &f, &one, &f, &c, &one);
    }
    most = c;
    return ignored;
}
int main(void)
{
    pthread_t thread[3];

    for (int i = 0; i < 3; i++) {
        pthread_create(&thread[i], 0, call, 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], 0);
    }
    return (int)most;
}
"""


@pytest.mark.parametrize("parallel", [0, 1])
def test_calls_of_a_library_for_one_thread_take_turns(tmp_path, parallel):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc)")
    shared = ("-shared", "-fPIC")
    library = compiled(tmp_path / "one.so", ONE_THREAD, *shared, f"-DPARALLEL={parallel}")
    own = compiled(tmp_path / "libown.so", OWN, *shared)
    main = compiled(tmp_path / "threads", THREADS, str(own), "-lpthread")
    env = {**os.environ, "LD_PRELOAD": str(libraries.SHIM), "WEFTBLAS_LIBRARY": str(library)}
    done = subprocess.run([main], env=env, check=False, timeout=120)
    assert done.returncode == 1 if parallel == 0 else done.returncode > 1
