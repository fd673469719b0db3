#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run test suites and end with a table of what passed and how long it took.

usage: suites.py [checks|c|asan|asan_python|tsan|fuzz|python|hosts|spread|spread_nodes|spread_mpi
                  |shared|peers|soak ...]

Those that are named run one after the other. Without a name all of QUEUES run: tests of several
ranks wait more than they compute, so that two suites at a time take little longer than one.
"""

import collections
import collections.abc
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOBS = str(os.cpu_count() or 1)
SKIPPED = 77  # exit status of what cannot run here
# The tests themselves look at WT_FULL too, and run whole cross products.
FULL = os.environ.get("WT_FULL") == "1"
FUZZ_SECONDS = os.environ.get("FUZZ_SECONDS", "5")
# Executions of the parsers of switches, in a full run.
FUZZ_RUNS = os.environ.get("FUZZ_RUNS", "10000000" if FULL else "0")
SOAK_MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
SOAK_OPERATIONS = os.environ.get("SOAK_OPERATIONS", "1e9")
SOAK_SEED = int(os.environ.get("SOAK_SEED") or time.time())
PYTHON = ROOT / ".venv" / "bin" / "python"

# Where there is clang, fuzz targets run under libFuzzer, with ASan and UBSan: not under gcc's, too.
CLANG = shutil.which("clang") is not None
SEEDS = "OFF" if CLANG and not FULL else "ON"
# The builds beside the one that `make` makes: settings, and what is in the environment.
BUILDS = {
    "build-asan": (
        (
            *("-DWEFT_SANITIZE=address", "-DWEFT_BENCH=OFF", f"-DWEFT_FUZZ_TARGETS={SEEDS}"),
            *("-DWEFT_PYTHON=ON", f"-DPython_EXECUTABLE={PYTHON}"),
        ),
        {},
    ),
    "build-tsan": (("-DWEFT_SANITIZE=thread", "-DWEFT_BENCH=OFF", "-DWEFT_FUZZ_TARGETS=OFF"), {}),
}
if CLANG:
    BUILDS["build-fuzz"] = (
        (
            *("-DWEFT_FUZZ=ON", "-DWEFT_SANITIZE=address", "-DWEFT_BENCH=OFF"),
            f"-DWEFT_FUZZ_RUNS={FUZZ_RUNS}",
        ),
        {"CC": "clang"},
    )
BUILD_NICE = 10  # of builds that run beside tests
# Some of everything that is done in C and C++ for Python, in a few minutes.
ASAN_TESTS = (
    *("test_arrays.py", "test_memory.py", "test_messages.py", "test_requests.py"),
    *("test_interrupt.py", "test_region_rows.py", "test_region_share.py", "test_store.py"),
    "test_shared_arrays.py",
)
ASAN_SHIM_TESTS = (
    *("tests/torch/test_features.py", "tests/torch/test_groups.py"),
    *("tests/mpi/test_letters.py", "tests/mpi/test_programs.py"),
)
# What several ranks do, without what needs one host: shared tensors, gloo beside weft.
SPREAD_TESTS = (
    *("tests/torch/test_operations.py", "tests/torch/test_features.py"),
    *("tests/torch/test_arguments.py", "tests/torch/test_group_death.py"),
    *("tests/mpi/test_values.py", "tests/mpi/test_derivatives.py", "tests/mpi/test_programs.py"),
    *("tests/mpi/test_letters.py", "tests/mpi/test_order.py", "tests/mpi/test_combinations.py"),
    *("tests/python/test_messages.py", "tests/python/test_collectives.py"),
)
# With every tensor in the arena: what is done with tensors most, and all of it in the full run.
SHARED_TESTS = ("tests/torch/test_operations.py", "tests/torch/test_features.py")
SHARED_TESTS_FULL = ("tests/torch",)
# Of these, what needs no process but the ranks: mpirun starts them, and ends all when one dies.
SPREAD_MPI_TESTS = tuple(
    test for test in SPREAD_TESTS if not re.search("arguments|death|tests/python", test)
)
SPREAD_MPI_NOT = "not last_messages and not ctrl_c and not warned_of"
# What this machine lacks for them, printed.
SPREAD_LACKS = """
import pathlib, weft
from weft.bench.bed import missing
ucx = pathlib.Path(weft.__file__).parent / "libweft_ucx.so"
print(missing() or ("" if ucx.exists() else "libweft_ucx.so was not built"), end="")
"""
MPI_LACKS = """
import sys
sys.path.insert(0, "tests/support")
import launched
print(launched.lacks("openmpi") or "", end="")
"""
# Tests between hosts or pretended ones, by what their ranks talk over: the label of a C test
# (over_ucx, tests/CMakeLists.txt), or the property `over` of a Python one (tests/conftest.py).
TRANSPORTS = {
    "ucx": "UCX",
    "mpi": "MPI",
    "nodes": "shm between nodes",
    "sockets": "sockets of the tests",
    "bed": "no transport of weft's, about hosts as such",
}
# As many failed tests are run again at most; none by `make test-full` and `make soak`.
AGAIN_MOST = 0 if FULL or os.environ.get("WT_AGAIN") == "0" else 3
FAILURE_LINES = 40  # of what a failed test printed, shown again at the end
ASAN_TOO_SLOW = "not compiled_collectives and not on_shared_memory_give_what"


@dataclasses.dataclass
class Result:
    title: str
    ok: bool
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    note: str = ""
    failures: dict[str, str] = dataclasses.field(default_factory=dict)  # test: what it printed
    flaky: int = 0  # failed, and passed when they were run again
    again: collections.abc.Callable[[], None] | None = None  # run what failed once more
    # How many tests "run" over a transport, how many were "skipped", and their "seconds".
    over: collections.Counter = dataclasses.field(default_factory=collections.Counter)


# Of the suite that this thread runs, before each line; none where suites do not run side by side.
place = threading.local()
folders = {name: threading.Lock() for name in ("build", *BUILDS)}  # held by who builds there


def say(text):
    """Print a line, whole, whoever else prints."""
    sys.stdout.write(f"{getattr(place, 'prefix', '')}{text}\n")
    sys.stdout.flush()


def run(command, **environment):
    """Run a command in the project's root, its output shown as it comes."""
    say("$ " + " ".join(map(str, command)))
    how = {"cwd": ROOT, "env": {**os.environ, **environment}}
    if not hasattr(place, "prefix"):
        return subprocess.run(command, check=False, **how).returncode
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, text=True, errors="replace", **pipe, **how)
    copying = threading.Thread(target=copy_lines, args=(process.stdout, place.prefix), daemon=True)
    copying.start()
    code = process.wait()
    copying.join(5.0)  # what a test left behind may hold the pipe open
    return code


def copy_lines(lines, prefix):
    place.prefix = prefix
    for line in lines:
        say(line.rstrip("\n"))


def build(folder, *settings, **environment):
    """Configure and build; return whether both went well."""
    with folders[folder]:
        return build_alone(folder, *settings, **environment)


def build_alone(folder, *settings, **environment):
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    common = ["-DWEFT_WERROR=ON", f"-DWEFT_FUZZ_SECONDS={FUZZ_SECONDS}"]
    common.append(f"-DWEFT_TEST_PATIENCE={10 if FULL else 1}")
    configure = ["cmake", "-S", ".", "-B", folder, *generator, *common, *settings]
    return (
        run([*configure, "--log-level=NOTICE"], **environment) == 0
        and run(["cmake", "--build", folder, "--parallel", JOBS]) == 0
    )


def failures_of(report):
    """What the tests of a JUnit report that failed printed, by their names.

    CTest marks one that ran out of time by status only.
    """
    found = {}
    for case in report.iter("testcase"):
        bad = [part for kind in ("failure", "error") for part in case.findall(kind)]
        if bad or case.get("status") == "fail":
            name = f"{case.get('classname')}.{case.get('name')}".removeprefix(
                f"{case.get('name')}."
            )
            parts = [*bad, *case.findall("system-out")]
            found[name] = "\n".join(part.text for part in parts if part.text)
    return found


def labels(folder):
    """The transport between hosts of each C test of a build that has one, by its labels."""
    command = ["ctest", "--test-dir", folder, "--show-only=json-v1"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {}
    for test in json.loads(said)["tests"]:
        values = [p["value"] for p in test["properties"] if p["name"] == "LABELS"]
        for label in itertools.chain(*values):
            if label.startswith("over_"):
                found[test["name"]] = label.removeprefix("over_")
    return found


def over_transports(report, labelled):
    """How many tests of a report ran over each transport between hosts, were skipped, and took."""
    found = collections.Counter()
    for case in report.iter("testcase"):
        told = [p.get("value") for p in case.iter("property") if p.get("name") == "over"]
        over = told[0] if told else labelled.get(case.get("name"))
        if over is not None:
            skipped = case.find("skipped") is not None
            found[over, "skipped" if skipped else "run"] += 1
            found[over, "seconds"] += float(case.get("time") or 0)
    return found


def counted(title, code, report, labelled):
    """A result out of the exit code and the JUnit report of a test run."""
    result = Result(title, ok=code == 0)
    try:
        root = xml.etree.ElementTree.parse(report).getroot()
    except (OSError, xml.etree.ElementTree.ParseError):
        return dataclasses.replace(result, ok=False, note="left no report")
    result.failures = failures_of(root)
    result.over = over_transports(root, labelled)
    total = 0
    for suite in [root] if root.tag == "testsuite" else root.iter("testsuite"):
        count = {k: int(suite.get(k, 0)) for k in ("tests", "failures", "errors", "skipped")}
        total += count["tests"]
        result.failed += count["failures"] + count["errors"]
        result.skipped += count["skipped"]
    result.passed = total - result.failed - result.skipped
    if total == 0:
        return dataclasses.replace(result, ok=False, note="found no tests")
    return result


def counted_run(title, command, option, report, again, *, labelled=None, **environment):
    """Run tests. Those that failed may be run once more, when all suites have ended: machines that
    others use, too, stop processes at any place, and a test may have counted on time. One that
    passes then is told from the others in the table, and what it printed is shown all the same.

    `option` names the report to the command; `again` turns the names of tests that failed into
    what makes the command run them alone; `labelled` has the transports of C tests.
    """
    labelled = labelled or {}
    report.unlink(missing_ok=True)
    first = counted(title, run([*command, option, report], **environment), report, labelled)

    def once_more():
        say(f"once more, {title}: {', '.join(first.failures)}")
        second_report = report.with_suffix(".again.xml")
        second_report.unlink(missing_ok=True)
        code = run([*command, *again(first.failures), option, second_report], **environment)
        second = counted(title, code, second_report, labelled)
        first.ok = second.ok and second.passed == first.failed
        if first.ok:
            first.passed, first.failed, first.flaky = first.passed + first.failed, 0, first.failed

    if not first.ok and 0 < len(first.failures) <= AGAIN_MOST:
        first.again = once_more
    return first


def ctest(title, folder, *choice):
    command = ["ctest", "--test-dir", folder, "--output-on-failure", "--parallel", JOBS, *choice]

    def again(names):
        return ["-R", f"^({'|'.join(names)})$"]

    report = ROOT / folder / "report.xml"
    return counted_run(title, command, "--output-junit", report, again, labelled=labels(folder))


def built_ctest(title, folder, *choice):
    settings, environment = BUILDS.get(folder, ((), {}))
    if not build(folder, *settings, **environment):
        return Result(title, ok=False, note="does not build")
    return ctest(title, folder, *choice)


def checks():
    return built_ctest("includes, symbols", "build", "-L", "check")


def c():
    return built_ctest("C", "build", "-LE", "check|fuzz")


def asan():
    return built_ctest("C, ASan+UBSan", "build-asan")


def has_module(name):
    command = [PYTHON, "-c", f"import {name}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def asan_libraries():
    """What must be loaded first for Python to run under ASan; None: not here.

    The C++ library, too, or ASan does not find the function that throws.
    """
    files = []
    for name in ("libasan.so", "libstdc++.so"):
        command = [os.environ.get("CC", "cc"), f"-print-file-name={name}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        files.append(result.stdout.strip())
    return ":".join(files) if all(map(os.path.isabs, files)) else None


def can_build_shim():
    compiler = os.environ.get("CXX", "c++").split()[0]
    return has_module("torch") and shutil.which(compiler) is not None


def asan_package(with_shim):
    """Install the package of the sanitized build beside it; is it there?"""
    package = ROOT / "build-asan" / "package"
    install = ["cmake", "--install", "build-asan", "--component", "python", "--prefix", package]
    if not build("build-asan", *BUILDS["build-asan"][0]) or run(install) != 0:
        return False
    flags = "-O1 -g1 -fsanitize=address -fno-omit-frame-pointer"
    shim = [PYTHON, "-P", package / "weft" / "torch" / "build.py"]
    return not with_shim or run(shim, CXXFLAGS=flags) == 0


def asan_environment(libraries):
    """Leaks are not looked for: CPython and torch leave memory to the end of the process.

    Python's own allocator is replaced, so that ASan sees what extensions do with objects.
    """
    return {
        "LD_PRELOAD": libraries,
        "PYTHONPATH": str(ROOT / "build-asan" / "package"),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def asan_python():
    """The extensions of Python under ASan; the package in .venv is left alone."""
    title = "Python, ASan"
    libraries = asan_libraries()
    with_shim = can_build_shim()
    if libraries is None:
        return Result(title, ok=True, note="skipped: the C compiler has no libasan.so")
    if not has_module("pytest"):
        return Result(title, ok=True, note="skipped: no pytest")
    if not asan_package(with_shim):
        return Result(title, ok=False, note="does not build")
    choice = ["-k", ASAN_TOO_SLOW, *(f"tests/python/{name}" for name in ASAN_TESTS)]
    choice += ASAN_SHIM_TESTS if with_shim else []
    report = ROOT / "build-asan" / "pytest.xml"
    result = pytest(title, report, *choice, **asan_environment(libraries))
    result.note = result.note or ("" if with_shim else "without the shim: no torch or no c++")
    return result


def tsan():
    # Explorers are one thread each: nothing there can race.
    choice = [] if FULL else ["-LE", "explore|agg"]
    return built_ctest("C, TSan", "build-tsan", *choice)


def fuzz():
    if not CLANG:
        result = built_ctest("fuzz", "build", "-L", "fuzz")
        result.note = result.note or "no clang: seeds only"
        return result
    return built_ctest(f"fuzz, {FUZZ_SECONDS} s each", "build-fuzz", "-L", "fuzz")


def pytest(title, report, *choice, **environment):
    if not has_module("pytest"):
        return Result(title, ok=True, note="skipped: no pytest")
    report = ROOT / "build" / report
    # Each suite keeps what failed in a place of its own.
    cache = ["-o", f"cache_dir={report.with_suffix('.cache')}"]
    command = [PYTHON, "-m", "pytest", "-q", *cache, *choice]
    return counted_run(title, command, "--junitxml", report, lambda _names: ["--lf"], **environment)


def python():
    return pytest("Python", "pytest.xml")


def hosts():
    """What needs several hosts; skipped, test by test, where there can be none."""
    return pytest("several hosts", "hosts.xml", "tests/hosts")


def lacked(question):
    """What this machine lacks, as a program prints it; nothing, if that is nothing."""
    command = [PYTHON, "-c", question]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout


def spread():
    """Tests that were written for one host, with their ranks on two, over UCX."""
    title = "on 2 hosts, UCX"
    if lacks := lacked(SPREAD_LACKS):
        return Result(title, ok=True, note=f"skipped: {lacks}")
    return pytest(title, "spread.xml", *SPREAD_TESTS, WT_HOSTS="2")


def spread_nodes():
    """The same on two nodes of this host, between which shared memory carries messages."""
    return pytest("on 2 nodes", "spread_nodes.xml", *SPREAD_TESTS, WT_HOSTS="2", WT_PRETEND="1")


def spread_mpi():
    """The same on two hosts, their ranks started by Open MPI, over which messages go."""
    title = "on 2 hosts, MPI"
    if lacks := lacked(SPREAD_LACKS):
        return Result(title, ok=True, note=f"skipped: {lacks}")
    if lacks := lacked(MPI_LACKS):
        return Result(title, ok=True, note=f"skipped: {lacks}")
    choice = [*SPREAD_MPI_TESTS, "-k", SPREAD_MPI_NOT]
    return pytest(title, "spread_mpi.xml", *choice, WT_HOSTS="2", WT_MPI="openmpi")


def shared():
    """Tests of torch.distributed with every tensor in the arena (weft.torch.share_all)."""
    tests = SHARED_TESTS_FULL if FULL else SHARED_TESTS
    return pytest("tensors in the arena", "shared.xml", *tests, WT_SHARE_ALL="1")


def peers():
    """torch's own tests of torch.distributed, on weft."""
    result = Result("torch's suite", ok=True)
    ways = [("gloo", None, {}), ("alltoall", None, {})]
    if lacks := lacked(SPREAD_LACKS):
        result.note = f"not on 2 hosts: {lacks}"
    else:
        ways += [("gloo", "ucx", {"WT_HOSTS": "2"})]
    if FULL:
        ways += [("gloo", "nodes", {"WT_HOSTS": "2", "WT_PRETEND": "1"})]
        ways += [("gloo", None, {"WT_SHARE_ALL": "1"})]
    if FULL and not lacks and not lacked(MPI_LACKS):
        ways += [("gloo", "mpi", {"WT_HOSTS": "2", "WT_MPI": "openmpi"})]
    counts = ROOT / "build" / "peers.json"
    for variant, over, environment in ways:
        counts.unlink(missing_ok=True)
        command = [PYTHON, "tests/peers/torch_suite.py", "--counts", counts]
        code = run([*command, "--as", variant, "--ranks", "4"], **environment)
        if code == SKIPPED:
            return dataclasses.replace(result, note="skipped: no torch, or no shim for it")
        found = json.loads(counts.read_text()) if counts.exists() else {"run": 1, "failed": 1}
        result.ok = result.ok and code == 0
        result.passed += found["run"] - found["failed"]
        result.failed += found["failed"]
        result.skipped += found.get("skipped", 0)
        if over is not None:
            result.over.update({(over, what): n for what, n in found.items()})
    return result


def soak_store():
    """Operations of the parameter store; in two thirds of the time at most."""
    return run(
        ["build/tests/soak_store"],
        SOAK_OPERATIONS=SOAK_OPERATIONS,
        SOAK_MINUTES=f"{SOAK_MINUTES * 2 / 3:g}",
        SOAK_SEED=str(SOAK_SEED),
    )


def soak():
    """Store operations with faults; then repeat what involves several ranks until time is up.

    Ends with the first failure. The same SOAK_SEED draws the same faults.
    """
    title = f"soak, {SOAK_MINUTES:g} min"
    end = time.monotonic() + SOAK_MINUTES * 60
    print(f"soak: SOAK_SEED={SOAK_SEED}", flush=True)
    if not build("build"):
        return Result(title, ok=False, note="does not build")
    total = Result(title, ok=soak_store() == 0, note=f"SOAK_SEED={SOAK_SEED}")
    total.passed, total.failed = int(total.ok), int(not total.ok)
    seed = SOAK_SEED
    while total.ok and time.monotonic() < end:
        once = ctest(title, "build", "-L", "conform|ranks|faults", "--schedule-random")
        total.ok = once.ok
        total.passed += once.passed
        total.failed += once.failed
        for program in sorted(ROOT.glob("build/tests/*_soak")):
            failed = run([program, "60", str(seed)]) != 0
            total.ok = total.ok and not failed
            total.failed += failed
            total.passed += not failed
        seed += 1
    return total


SUITES = {
    f.__name__: f
    for f in (
        *(checks, c, asan, asan_python, tsan, fuzz),
        *(python, hosts, spread, spread_nodes, spread_mpi, shared, peers, soak),
    )
}
# What `make test` runs, one queue beside the other, and the builds that it needs beside both.
QUEUES = (
    ("checks", "c", "asan", "fuzz"),
    ("python", "hosts", "spread", "shared", "peers", "asan_python", "tsan"),
)


def table(results, seconds):
    head = ("suite", "result", "passed", "failed", "flaky", "skipped", "time")
    rows = [
        (
            r.title,
            "ok" if r.ok else "FAILED",
            str(r.passed),
            str(r.failed),
            str(r.flaky),
            str(r.skipped),
            f"{r.seconds:.0f} s",
        )
        for r in results
    ]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row, note in zip([head, *rows], ["", *(r.note for r in results)], strict=True):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)), note)
    print(f"in all {seconds:.0f} s")
    over = sum((r.over for r in results), collections.Counter())
    told = [key for key in TRANSPORTS if over[key, "run"] or over[key, "skipped"]]
    for key in told:
        ran, skipped, took = (over[key, what] for what in ("run", "skipped", "seconds"))
        print(f"over {TRANSPORTS[key]}: {ran} tests run, {skipped} skipped, {took:.0f} s")
    if told:
        # Suites run side by side, so that this is more than what they add to the whole.
        print(f"all of these: {sum(over[key, 'seconds'] for key in told):.0f} s")


def print_failures(results):
    """Once more, since the place where it happened is far above."""
    for r in results:
        for name, output in r.failures.items():
            print(f"\n-- failed in {r.title}: {name}")
            print("\n".join(output.splitlines()[-FAILURE_LINES:]))
    for r in results:
        for name in r.failures:
            print(f"failed in {r.title}: {name}{' (once)' if r.flaky else ''}")


def timed(name):
    start = time.monotonic()
    result = SUITES[name]()
    result.seconds = time.monotonic() - start
    say(f"== {result.title}: {result.seconds:.0f} s\n")
    return result


def run_queue(names, results):
    for name in names:
        place.prefix = f"{name}: "
        results[name] = Result(name, ok=False, note="broke off")
        results[name] = timed(name)


def build_ahead():
    """What later suites need, while earlier ones wait: at a low priority, which is inherited."""
    place.prefix = "build: "
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BUILD_NICE)
    for folder, (settings, environment) in BUILDS.items():
        build(folder, *settings, **environment)


def side_by_side():
    """All suites, by name. A build that fails here fails again in the suite that needs it."""
    results = {}
    queues = [threading.Thread(target=run_queue, args=(names, results)) for names in QUEUES]
    threads = [threading.Thread(target=build_ahead), *queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = [name for name in SUITES if any(name in queue for queue in QUEUES)]
    return [results.get(name, Result(name, ok=False, note="did not run")) for name in wanted]


def main(names):
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        sys.exit(f"there is no suite {unknown[0]}; there are {', '.join(SUITES)}")
    start = time.monotonic()
    if names:
        results = [timed(name) for name in names]
    elif FULL:
        results = [timed(name) for name in SUITES if name != "soak"]
    else:
        results = side_by_side()
    for result in results:
        if result.again is not None:
            result.again()
    table(results, time.monotonic() - start)
    print_failures(results)
    return 0 if all(r.ok for r in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
