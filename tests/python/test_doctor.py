# SPDX-License-Identifier: Apache-2.0
"""`weft doctor`."""

import json
import subprocess
import sys

import pytest
import ranks
import weft
from weft import cli
from weft.cli import doctor as command
from weft.doctor import Fact, job, library, machine, pytorch


def doctor(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "weft", "doctor", *arguments],
        env={**ranks.quiet_environment(), **environment},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_it_is_one_page_for_people():
    done = doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    titles = [line for line in done.stdout.splitlines() if line and line[0] not in " !"]
    assert titles == ["machine", "PyTorch", "weft", "nothing that was asked for is missing"]
    assert weft.__version__ in done.stdout


def test_the_same_is_there_for_programs():
    report = json.loads(doctor("--json").stdout)
    assert set(report) == {"machine", "PyTorch", "weft", "problems"}
    assert report["weft"]["launcher"] == "alone"
    assert report["machine"]["cores"]["usable"] >= 1
    assert report["problems"] == []


def test_every_setting_is_listed_with_value_source_and_help():
    report = json.loads(doctor("--settings", "--json", WEFT_TIMEOUT="5s").stdout)["settings"]
    assert report["WEFT_TIMEOUT"]["value"] == "5s"
    assert report["WEFT_TIMEOUT"]["source"] == "environment"
    assert all(setting["help"] for setting in report.values())
    text = doctor("--settings").stdout
    assert all(name in text for name in report)


def test_what_was_asked_for_and_cannot_work_is_an_exit_status_and_a_remedy():
    done = doctor(WEFT_NO_SUCH="1")
    assert done.returncode == 1
    assert "WEFT_NO_SUCH: no such setting; weft doctor --settings lists them" in done.stdout
    done = doctor("--json", WEFT_RANK="5", WEFT_RANKS="2", WEFT_JOB="x")
    assert done.returncode == 1
    assert "the job cannot start" in json.loads(done.stdout)["problems"][0]


def run_doctor():
    sys.exit(cli.main(["doctor", "--json"]))


def test_a_setting_that_no_world_would_take_has_a_remedy(monkeypatch):
    monkeypatch.setenv("WEFT_TIMEOUT", "soon")
    facts = library.page(machine.page({})).facts
    (fact,) = [fact for fact in facts if fact.name == "settings"]
    assert fact.remedy is not None
    assert "WEFT_TIMEOUT" in fact.remedy and "soon" in fact.remedy


def test_under_a_launcher_rank_0_reports_every_pair():
    texts = ranks.run(3, run_doctor)
    assert not texts[1] and not texts[2]
    report = json.loads(texts[0])["job"]
    assert report["ranks"] == 3
    for title in ("latency of 8 bytes, microseconds", "bandwidth of 1 MiB messages, GB/s"):
        for a in range(3):
            for b in range(3):
                assert (report[title][a][b] > 0) == (a != b)


def test_the_matrix_is_a_small_picture():
    matrix = job.Matrix("pairs", 2, [0, 1.25, 1.25, 0])
    assert matrix.lines() == [
        "pairs",
        "           0     1",
        "     0     -  1.25",
        "     1  1.25     -",
    ]


def test_a_path_is_not_broken_in_two():
    path = "/" + "/".join(["site-packages"] * 9)
    assert any(path in line for line in command._fact(Fact("library", f"it is in {path}")))
    assert command._fact(Fact("nothing", "")) == ["  nothing                  "]


def test_the_machine_page_does_not_need_what_a_container_hides(monkeypatch):
    monkeypatch.setattr(machine, "read", lambda path: "")
    names = [fact.name for fact in machine.page({}).facts]
    assert {"cores", "caches of cpu 0", "memory", "shared memory", "open files"} <= set(names)


def test_asking_for_a_vector_unit_that_is_not_there_has_a_remedy(monkeypatch):
    monkeypatch.setattr(machine, "read", lambda path: "flags : avx2 fma f16c\n")
    facts = {
        fact.name: fact for fact in machine.page({"WEFT_CPU": ("avx512", "environment")}).facts
    }
    assert "no avx512" in facts["reduce kernels"].remedy
    facts = {fact.name: fact for fact in machine.page({"WEFT_HUGE": ("hugetlb", "")}).facts}
    assert "nr_hugepages" in facts["huge pages"].remedy


def test_a_vector_unit_that_there_is_not_has_a_remedy():
    facts = {fact.name: fact for fact in machine.page({"WEFT_CPU": ("avx2048", "")}).facts}
    assert "WEFT_CPU=avx2048 is none of auto, plain" in facts["reduce kernels"].remedy


def test_kernels_for_gpus_that_cannot_be_loaded_have_a_remedy(monkeypatch):
    monkeypatch.setenv("WEFT_CUDA_LIBRARY", "/no/such/library.so")
    facts = {fact.name: fact for fact in library.page(machine.page({})).facts}
    assert "/no/such/library.so" in facts["kernels for GPUs"].remedy


def test_the_pytorch_page_tells_whether_the_shim_is_built(monkeypatch):
    pytest.importorskip("torch")
    from weft.torch import build

    for found in (None, "/a/shim.so"):
        monkeypatch.setattr(build, "find", lambda found=found: found)
        facts = {fact.name: fact for fact in pytorch.page().facts}
        assert (found or build.COMMAND) in facts["shim of weft"].text


def test_the_pytorch_page_says_when_there_is_none(monkeypatch):
    monkeypatch.setattr(pytorch.importlib.util, "find_spec", lambda name: None)
    assert pytorch.page().facts[0].text == "not installed"


def test_an_unknown_command_is_refused(capsys):
    for bad in ([], ["surgeon"]):
        try:
            cli.main(bad)
        except SystemExit as stop:
            assert stop.code == 2
    assert "invalid choice: 'surgeon'" in capsys.readouterr().err
