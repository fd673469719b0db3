# SPDX-License-Identifier: Apache-2.0
"""`weft bench gemm` and `weft bench conv2d`: arithmetic without timing, and one tiny run each."""

import argparse
import dataclasses
import json
import os
import subprocess
import sys

import browser
import pytest
from weft.bench import htmlpage, plots, report
from weft.bench.build import BuildError
from weft.bench.conv2d.cases import BATCH
from weft.bench.conv2d.cases import PLAN as CONV2D
from weft.bench.dense import run, systems
from weft.bench.dense.limit import Rank as LimitRank
from weft.bench.dense.report import figures, rows
from weft.bench.gemm.cases import PLAN as GEMM
from weft.bench.piped import RankError
from weft.bench.results import Block, changes
from weft.bench.runner import Options
from weft.blas.libraries import Library
from weft.cli import bench as command
from weft.cli import common

OPENBLAS = Library("openblas-pthread", "/a/libopenblas.so.0", "0.3", "pthread", False, True)
SERIAL = Library("openblas-serial", "/b/libopenblas.so.0", "0.3", "serial", False, True)
BLIS = Library("blis-serial", "/c/libblis.so.4", "0.9", "serial", False, False)
WIDE = Library("openblas64-pthread", "/d/libopenblas64.so.0", "0.3", "pthread", True, True)
KINDS = {"/a": "openblas", "/b": "openblas", "/c": "blis", "/d": "openblas"}


@pytest.fixture
def installed(monkeypatch):
    """A machine with these libraries."""
    known = [
        dataclasses.replace(one, kind=KINDS[one.file[:2]]) for one in (SERIAL, OPENBLAS, BLIS, WIDE)
    ]
    monkeypatch.setattr(systems.libraries, "libraries", lambda: known)
    systems.found.cache_clear()
    yield known
    systems.found.cache_clear()


def case(plan, op, at, threads=2):
    return next(c for c in plan.cases(Options(ops=(op,)), threads) if c.at == at)


def block(system, turn, us, at="64"):
    return Block(case(GEMM, "sgemm", at), system, turn, "any", us)


def test_a_product_has_two_flops_for_each_pair_and_moves_every_matrix_once():
    work = GEMM.work_of(case(GEMM, "dgemm-thin", "512"))
    assert work.flops == 2 * 512 * 512 * 8
    assert work.bytes == 8 * (512 * 512 + 2 * 512 * 8)
    assert work.shape == (512, 8, 512)


def test_a_layer_has_the_flops_of_its_output():
    work = CONV2D.work_of(case(CONV2D, "conv2d-gemm", "7x7/2 3-64 224"))
    assert work.flops == 2 * BATCH * 112 * 112 * 64 * 3 * 49
    groups = CONV2D.work_of(case(CONV2D, "conv2d-gemm", "3x3 144 groups 56"))
    assert groups.flops == 2 * BATCH * 56 * 56 * 144 * 9


def test_a_quick_run_has_some_cases_of_every_operation():
    for plan in (GEMM, CONV2D):
        quick, full = (plan.cases(Options(quick=quick), 2) for quick in (True, False))
        assert {c.op for c in quick} == {c.op for c in full} == set(plan.operations)
        assert set(quick) < set(full)


def test_sizes_and_operations_can_be_chosen():
    cases = GEMM.cases(Options(ops=("sgemm",), sizes=(100, 33)), 1)
    assert [(c.op, c.at, c.cores) for c in cases] == [("sgemm", "100", 1), ("sgemm", "33", 1)]
    assert GEMM.work_of(cases[1]).flops == 2 * 33**3


def test_the_systems_are_what_is_installed_without_libraries_of_64_bit_integers(installed):
    names = ("torch", "openblas-serial", "openblas-pthread", "blis-serial", "limit")
    assert systems.names() == names
    assert systems.quick_names() == ("torch", "openblas-pthread", "blis-serial", "limit")
    assert run.systems_of(Options(families=frozenset(names))) == list(names)
    assert "openblas-serial" not in run.systems_of(Options(quick=True, families=frozenset(names)))
    some = Options(quick=True, families=frozenset({"openblas-serial"}))
    assert run.systems_of(some) == ["openblas-serial"]


def test_a_system_that_is_not_here_is_refused_with_those_that_are(installed, capsys):
    assert command.main(["gemm", "--systems", "torch,atlas"]) == 2
    said = capsys.readouterr().err
    assert "gemm has no atlas; it has torch, openblas-serial" in said
    assert len(said.splitlines()) == 1


def test_another_command_can_run_some_programs_under_its_own_name(installed, capsys):
    made = common.parser("weft x", "")
    assert command.run_some(made, ("gemm", "conv2d"), ["--systems", "torch,atlas"]) == 2
    assert "weft x: gemm and conv2d has no atlas; it has" in capsys.readouterr().err
    asked = argparse.Namespace(benches=("gemm", "conv2d"), ops=("sgemm",))
    assert [bench.name for bench in command._chosen(asked)] == ["gemm"]


def test_a_library_can_be_named_by_its_path_or_its_kind(installed):
    assert systems.find("openblas") is None
    assert systems.found()["openblas"].file == OPENBLAS.file
    assert "no such file" in systems.find("/no/such/library.so")


@pytest.mark.parametrize(
    ("name", "text"),
    [("openblas64-pthread", "ILP64"), ("/etc/passwd", "not a BLAS"), ("/no/such.so", "no such")],
)
def test_a_library_that_cannot_be_is_refused_with_the_reason(name, text, installed, capsys):
    assert command.main(["gemm", "--systems", f"torch,{name}"]) == 2
    said = capsys.readouterr().err
    assert text in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["gemm", "--sizes", "100000"], "too many"),
        (["conv2d", "--sizes", "64"], "layers"),
        (["gemm", "--sizes", "0"], "greater than 0"),
        (["collectives", "--sizes", "6"], "whole number of floats"),
    ],
)
def test_sizes_that_cannot_be_are_refused(arguments, text, capsys):
    with pytest.raises(SystemExit) as stop:
        command.main(arguments)
    assert stop.value.code == 2
    assert text in capsys.readouterr().err


def some_blocks():
    times = {"torch": 4.0, "openblas-pthread": 2.0, "limit": 1.0}
    blocks = [
        block(name, turn, us * factor, at)
        for at, factor in (("64", 1), ("128", 8))
        for turn in range(3)
        for name, us in times.items()
    ]
    path = Block(case(CONV2D, "conv2d-onednn", "3x3 64-64 56"), "torch", 0, "any", 1.0, "oneDNN")
    return blocks, [path]


def test_rows_have_rates_and_shares():
    found = {(row["system"], row["at"]): row for row in rows(GEMM, some_blocks()[0])}
    row = found["openblas-pthread", "64"]
    assert row["gflops"] == pytest.approx(2 * 64**3 / 2.0 / 1000)
    assert (row["of_torch"], row["of_limit"]) == (2.0, 0.5)
    assert (row["threads"], row["dtype"], row["unit"]) == (2, "float32", "us")
    (row,) = rows(CONV2D, some_blocks()[1])
    assert (row["path"], row["at"], row["of_limit"]) == ("oneDNN", "3x3 64-64 56", None)


def test_the_table_has_rates_ratios_and_the_share_of_the_limit():
    blocks, convolution = some_blocks()
    text = figures(GEMM, blocks)
    assert "sgemm: float32, n x n times n x n, 2 threads: GFLOP/s" in text
    assert "262 +0/+0% 2.00x" in text
    assert "50%" in text
    assert "oneDNN" in figures(CONV2D, convolution)
    assert figures(GEMM, []) == ""


def test_what_changed_names_the_size_and_the_threads():
    old, new = (rows(GEMM, [block("torch", 0, us)]) for us in (1.0, 3.0))
    text = report.changes_text(changes(old, new))
    assert "slower: torch, sgemm 64, 2 threads: 3.00x, now 3.00 us" in text
    other = rows(GEMM, [block("torch", 0, 3.0, at="128")])
    assert changes(old, other) == []


def test_every_system_has_a_line_of_its_own_and_the_limit_is_dashed():
    names = ["reference", "limit", "torch", "openblas-serial", "openblas-pthread", "/x/liby.so"]
    found = systems.lines(names)
    assert (*found,)[0] == "torch" and (*found,)[-1] == "limit"
    assert len({line.color for line in found.values()}) == len(names)
    assert found["limit"].linestyle == "--" and not found["limit"].marker
    assert found["/x/liby.so"].label == "liby.so"


def test_the_page_has_both_plots_and_a_table_in_flops_in_a_browser(tmp_path):
    if (why := plots.unavailable()) is not None:
        pytest.skip(why)
    blocks, convolution = some_blocks()
    about = {"bench": "gemm", "case": "system", "system": "torch", "about": "<inside>"}
    page = htmlpage.render(
        [about, *rows(GEMM, blocks), *rows(CONV2D, convolution)], "x", ("gemm", "conv2d")
    )
    assert page.count("<img") == 3  # who is ahead, and a plot for each operation
    assert "<th>GFLOP/s</th>" in page and "<td>262</td>" in page and "&lt;inside&gt;" in page
    assert "<h2>Marks</h2>" not in page
    file = tmp_path / "page.html"
    file.write_text(page)
    assert browser.check(file).count("img") == 3


def needs_torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 8, 70), (16, 16, 0)])
def test_a_right_product_passes_and_one_wrong_corner_does_not(dtype, shape):
    torch = needs_torch()
    from weft.bench.dense.products import Gemm

    product = Gemm(torch, getattr(torch, dtype), list(shape))
    found = product.call()
    assert product.wrong(found) is None
    found[-1, -1] += 1e-2
    assert "off by" in product.wrong(found)
    found[0, 0] = float("nan")
    assert "off by" in product.wrong(found)


@pytest.mark.filterwarnings("ignore:TF32")
@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize(
    "shape", [(2, 3, 9, 4, 3, 1, 1), (1, 6, 8, 12, 5, 2, 3), (1, 4, 6, 4, 1, 1, 4)]
)
def test_a_right_convolution_passes_and_a_wrong_one_does_not(shape, onednn):
    torch = needs_torch()
    from weft.bench.dense.products import Conv2d

    with torch.backends.mkldnn.flags(enabled=onednn):
        product = Conv2d(torch, torch.float32, list(shape))
        found = product.call()
        assert product.wrong(found) is None
        found[0, 1, 0, 0] += 1.0
        found[:, :, -1, -1] += 1.0
        assert "off by" in product.wrong(found)


@pytest.mark.filterwarnings("ignore:TF32")
def test_without_onednn_a_convolution_is_a_product():
    torch = needs_torch()
    from weft.bench.dense.products import Conv2d

    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    product = Conv2d(torch, torch.float32, [2, 8, 16, 8, 3, 1, 1])
    for allowed, path in ((True, "oneDNN"), (False, "im2col + gemm")):
        with torch.backends.mkldnn.flags(enabled=allowed), torch.inference_mode():
            assert product.path() == path


def test_the_limit_grows_with_the_work():
    try:
        path = str(run._driver())
    except BuildError as error:
        pytest.skip(str(error))
    rank = LimitRank()
    rank.do_start(list(os.sched_getaffinity(0)), 1, path)
    times = {}
    for dtype in ("float32", "float64"):
        rank.do_case(flops=1e9, bytes=4096, dtype=dtype)
        times[dtype] = rank.do_block(ms=20)["us"]
    rank.do_case(flops=1.0, bytes=64 << 20, dtype="float32")
    times["read"] = rank.do_block(ms=20)["us"]
    assert all(us > 0 for us in times.values())
    assert times["float64"] > times["float32"]


def test_a_process_that_does_not_call_its_library_takes_no_part(installed):
    runner = run.Runner(GEMM, Options(), lambda _text: None)
    said = {"torch": "2.13", "own": "/t/libtorch_cpu.so", "sgemm": "/t/libtorch_cpu.so"}
    with pytest.raises(RankError, match="still calls its own"):
        runner._look("openblas-pthread", {**said, "mapped": []})
    with pytest.raises(RankError, match="still calls its own"):
        runner._look("openblas-pthread", {**said, "sgemm": "/shim.so", "mapped": []})
    runner._look("openblas-pthread", {**said, "sgemm": "/shim.so", "mapped": [OPENBLAS.file]})
    runner._look("torch", {**said, "mapped": []})
    assert [row["system"] for row in runner.outcome.ready] == ["openblas-pthread", "torch"]


class Pretended:
    """A process that answers at once, and is wrong or as slow as it is told."""

    def __init__(self, us=1.0, wrong=None):
        self.us, self.wrong, self.stopped = us, wrong, False

    def ask(self, do, **words):
        return {"wrong": self.wrong, "path": ""} if do == "case" else {"us": self.us}

    def stop(self):
        self.stopped = True


def test_what_is_wrong_is_not_timed_and_what_is_slow_sits_out():
    runner = run.Runner(GEMM, Options(rounds=2), lambda _text: None)
    ranks = {"torch": Pretended(), "bad": Pretended(wrong="off"), "slow": Pretended(us=1e6)}
    bad, speeds = ranks["bad"], {}
    for at in ("64", "256", "512"):
        runner._case(ranks, case(GEMM, "sgemm", at), speeds)
    assert bad.stopped and "wrong result: off" in runner.outcome.failed["bad"]
    counted = [(b.system, b.case.at) for b in runner.outcome.blocks]
    assert counted.count(("torch", "512")) == 2
    assert counted.count(("slow", "64")) == counted.count(("slow", "256")) == 2
    assert ("slow", "512") not in counted
    assert runner._left_out == {"slow": ["sgemm 512"]}


def test_a_run_without_torch_says_so_and_fails(tmp_path, monkeypatch, capsys, installed):
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: None)
    assert command.main(["gemm", "--json", str(tmp_path / "rows.json")]) == 1
    assert "missing: torch (torch is not installed)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("bench", "op", "more"),
    [
        ("gemm", "sgemm", ["--sizes", "16,33"]),
        ("conv2d", "conv2d-gemm", ["--quick"]),
    ],
)
def test_a_tiny_run_measures_torch_beside_a_library_and_the_limit(bench, op, more, tmp_path):
    needs_torch()
    here = systems.quick_names()[1:-1][:1]
    file, page = tmp_path / "rows.json", tmp_path / "page.html"
    drawn = [] if plots.unavailable() else ["--html", str(page)]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "weft", "bench", bench, "--ops", op, *more, *drawn),
            *("--systems", ",".join(("torch", "limit", *here)), "--cores", "1"),
            *("--rounds", "1", "--block-ms", "1", "--json", str(file)),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    values = [row for row in found if row.get("value")]
    assert {row["system"] for row in values} == {"torch", "limit", *here}
    assert all(row["gflops"] > 0 and row["threads"] == 1 for row in values)
    about = {row["system"]: row for row in found if row["case"] == "system"}
    for name in here:
        assert about[name]["library"] == systems.found()[name].file
    assert "1 thread: GFLOP/s" in done.stdout
    if drawn:
        assert "<img" in page.read_text()
