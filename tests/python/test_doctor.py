# SPDX-License-Identifier: Apache-2.0
"""`weft doctor`."""

import json
import os
import resource
import secrets
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
        timeout=180,
        check=False,
    )


def test_it_is_one_page_for_people():
    done = doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    titles = [line for line in done.stdout.splitlines() if line and line[0] not in " !"]
    assert titles == [
        "machine",
        "PyTorch",
        "weft",
        "peers",
        "nothing that was asked for is missing",
    ]
    assert weft.__version__ in done.stdout


def test_the_same_is_there_for_programs():
    report = json.loads(doctor("--json").stdout)
    assert set(report) == {"machine", "PyTorch", "weft", "peers", "problems"}
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
    done = doctor("--json", WEFT_RANK="0", WEFT_RANKS="two", WEFT_JOB="x")
    assert done.returncode == 1
    assert "the job cannot start" in json.loads(done.stdout)["problems"][0]


def run_doctor(seconds=job.SECONDS):
    job.SECONDS = seconds
    sys.exit(cli.main(["doctor", "--json"]))


def test_each_setting_that_no_world_would_take_has_a_remedy(monkeypatch):
    bad = {"WEFT_TIMEOUT": "soon", "WEFT_LOG": "loud", "WEFT_HUGE": "maybe"}
    for name, value in {**bad, "WEFT_SPIN": "20us"}.items():
        monkeypatch.setenv(name, value)
    facts = {fact.name: fact for fact in library.page(machine.page({})).facts}
    assert {name for name, fact in facts.items() if fact.remedy} == set(bad)
    for name, value in bad.items():
        assert name in facts[name].remedy and value in facts[name].remedy
        assert os.environ[name] == value
    assert facts["a job of one rank"].data is True
    facts = {fact.name: fact for fact in library.settings_page().facts}
    assert {name for name, fact in facts.items() if fact.remedy} == set(bad)


def test_a_list_of_settings_tells_which_are_none():
    done = doctor("--settings", WEFT_NO_SUCH="1")
    assert done.returncode == 1
    assert "WEFT_NO_SUCH: no such setting" in done.stdout


def test_a_world_that_cannot_be_made_is_no_fault_of_the_settings(monkeypatch):
    def fails(boot):
        raise weft.SystemError("no boot id here")

    monkeypatch.setenv("WEFT_SPIN", "20us")
    monkeypatch.setattr(library._core, "create", fails)
    facts = {fact.name: fact for fact in library.page(machine.page({})).facts}
    assert [name for name, fact in facts.items() if fact.remedy] == ["a job of one rank"]
    assert "no boot id here" in facts["a job of one rank"].remedy


def test_of_a_job_that_cannot_start_rank_0_has_a_page_and_the_others_a_line():
    with ranks.Job(2, run_doctor, environment={"WEFT_TIMEOUT": "soon"}) as bad:
        page, line = bad.finish(expected={0: 1, 1: 1})
    assert len(json.loads(page)["problems"]) == 2
    assert line.count("weft doctor: rank 1: ") == len(line.splitlines()) == 2


def test_ranks_that_do_not_come_are_waited_for_aloud(monkeypatch, capsys):
    alone = {"WEFT_RANK": "0", "WEFT_RANKS": "2", "WEFT_JOB": secrets.token_hex(8)}
    for name, value in {**alone, "WEFT_BOOT_TIMEOUT": "2s"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(job, "PATIENCE", 0.01)
    (fact,) = job.page().facts
    assert "rank 1 did not join in time; start all ranks at once" in fact.remedy
    said = capsys.readouterr().err
    assert "rank 0 waits for the others, 2s at most (WEFT_BOOT_TIMEOUT)" in said


def test_torch_that_finds_no_room_is_no_broken_installation():
    pytest.importorskip("torch")
    little = 400 << 20
    done = subprocess.run(
        [sys.executable, "-m", "weft", "doctor"],
        env=ranks.quiet_environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (little, little)),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "address space            400 MiB" in done.stdout
    assert "ulimit -v" in done.stdout


def test_torch_that_ends_the_process_leaves_a_page(tmp_path):
    (tmp_path / "torch.py").write_text("import os\nos.abort()\n")
    done = doctor(PYTHONPATH=str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "import fails: Aborted" in done.stdout
    assert "a job of one rank        works" in done.stdout


@pytest.mark.parametrize("seconds", [job.SECONDS, 0.0])
def test_under_a_launcher_rank_0_reports_every_pair_however_slow(seconds):
    texts = ranks.run(3, run_doctor, seconds)
    assert not texts[1] and not texts[2]
    report = json.loads(texts[0])["job"]
    assert report["ranks"] == 3
    assert report["arena"] > 0
    for title in ("latency of 8 bytes, microseconds", "bandwidth of 1 MiB messages, GB/s"):
        for a in range(3):
            for b in range(3):
                assert (0 < report[title][a][b] < float("inf")) == (a != b)


def run_doctor_on_nodes(nodes):
    os.environ["WEFT_NODE"] = f"node{int(os.environ['WEFT_RANK']) % nodes}"
    run_doctor(0.0)


@pytest.mark.over("nodes")
def test_what_leads_from_node_to_node_is_told():
    report = json.loads(ranks.run(3, run_doctor_on_nodes, 2)[0])["job"]
    assert report["node 0"]["ranks"] == [0, 2] and report["node 1"]["ranks"] == [1]
    assert report["by shm"] == [[0, 1]]


def test_of_a_large_job_ranks_of_all_nodes_are_tested():
    def tested(nodes, each):
        peers = [weft.Peer((r, r // each, 1, False, "h", "shm")) for r in range(nodes * each)]
        return job.tested(peers)

    assert tested(1, 3) == [0, 1, 2]
    assert tested(2, 100) == [*range(8), *range(100, 108)]
    assert tested(40, 4) == [4 * node for node in range(16)]


def test_the_matrix_is_a_small_picture():
    matrix = job.Matrix("pairs", [0, 1], [0, 1.25, 1.25, 0])
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
    facts = {fact.name: fact for fact in machine.page({"WEFT_CPU": ("avx2", "")}).facts}
    assert {"cores", "caches of cpu 0", "shared memory", "open files"} <= set(facts)
    assert facts["memory"].text == "unknown"
    assert facts["reduce kernels"].text.startswith("unknown")
    assert not any(fact.remedy for fact in facts.values())


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
