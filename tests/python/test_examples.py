# SPDX-License-Identifier: Apache-2.0
"""Each example runs."""

import importlib
import json
import pathlib
import re
import secrets
import shutil
import subprocess
import sys

import pytest
import ranks
import weft

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run(*command, **more):
    done = subprocess.run(
        [str(word) for word in command],
        env={**ranks.quiet_environment(), **more},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_trains_on_two_ranks_and_ends_with_a_table():
    pytest.importorskip("torch")
    text = run(sys.executable, EXAMPLES / "demo.py", "--ranks", 2, "--steps", 20)
    assert "all ranks hold the same parameters" in text
    assert "gloo / weft" in text or "no gloo" in text


def test_the_demo_refuses_bad_numbers():
    command = [sys.executable, EXAMPLES / "demo.py", "--ranks", "0"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def torchrun(example, *arguments):
    """Run an example on two ranks; skip where torch has no backend to run it on."""
    pytest.importorskip("torch")
    from weft.torch import build

    if build.find() is None:
        pytest.skip(f"the shim is not built: {build.COMMAND}")
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return run(*start, EXAMPLES / example, *arguments, OMP_NUM_THREADS="1")


@pytest.mark.parametrize("example", ["ddp.py", "fsdp2.py"])
def test_a_model_trains_under_torchrun(example):
    text = torchrun(example, "--backend", "weft", "--steps", 8)
    losses = [float(line.split()[-1]) for line in text.splitlines() if line.startswith("step")]
    assert len(losses) == 8
    assert losses[-1] < losses[0]
    assert "weft:" in text


def test_a_model_trains_on_four_hosts_through_a_switch():
    pytest.importorskip("torch")
    from weft.torch import build

    if build.find() is None:
        pytest.skip(f"the shim is not built: {build.COMMAND}")
    text = run(sys.executable, EXAMPLES / "switch.py", "--steps", 10)
    without, through = text.split("through a switch:")
    last = [re.findall(r"step +10 of 10: loss (\S+)", part) for part in (without, through)]
    assert len(last[0]) == 1
    assert abs(float(last[0][0]) - float(last[1][0])) < 1e-3


def test_a_language_model_says_the_same_with_weft_and_gloo():
    text = torchrun("llm_tensor_parallel.py", "--tokens", 8, "--rounds", 1, "--layers", 2)
    assert "both say the same 8 tokens" in text
    assert re.search(r"weft \d+ tokens/s, gloo \d+ tokens/s", text)


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_a_model_is_the_same_with_tensors_in_shared_memory(kind):
    small = ("--kind", kind, "--width", 64, "--layers", 2, "--tokens", 16, "--steps", 2)
    texts = [torchrun("large_model.py", *small, *more) for more in ([], ["--share"])]
    losses = [re.search(r"loss (\S+)", text)[1] for text in texts]
    assert losses[0] == losses[1]
    assert "weft, shared tensors" in texts[1]


@pytest.mark.parametrize("example", ["ddp", "fsdp2", "large_model", "llm_tensor_parallel"])
def test_what_needs_torchrun_says_so(example):
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{example}.py"],
        env=ranks.quiet_environment(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 2 and "torchrun starts it" in done.stderr


def on_ranks(size, example, *arguments):
    """Run an example on `size` ranks; what rank 0 prints."""
    command = [sys.executable, str(EXAMPLES / example), *map(str, arguments)]
    common = {"WEFT_RANKS": str(size), "WEFT_JOB": secrets.token_hex(8)}
    others = [
        subprocess.Popen(
            command,
            env={**ranks.quiet_environment(), **common, "WEFT_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
        )
        for rank in range(1, size)
    ]
    text = run(*command, **common, WEFT_RANK="0")
    assert [other.wait(180) for other in others] == [0] * (size - 1)
    return text


@pytest.mark.parametrize("size", [1, 3])
def test_numbers_are_sorted_over_all_ranks(size):
    pytest.importorskip("numpy")
    text = on_ranks(size, "sort.py")
    assert f"all {size * 100_000} numbers are in order" in text


@pytest.mark.parametrize("size", [1, 3])
def test_a_table_of_features_is_in_memory_once(size):
    pytest.importorskip("numpy")
    text = on_ranks(size, "features.py", "--rows", 61_440, "--batches", 3)
    numbers = re.search(r"sees (\d+) MiB, owns (\d+) MiB, is charged (\d+) MiB", text).groups()
    seen, owned, charged = map(int, numbers)
    assert (seen, owned) == (30, 30 // size)
    assert charged < seen if size > 1 else charged >= seen


@pytest.mark.parametrize("size", [1, 2])
def test_a_recommender_learns_in_shared_tables(size):
    pytest.importorskip("torch")
    text = on_ranks(size, "embeddings.py", "--steps", 40)
    losses = [float(line.split()[-1]) for line in text.splitlines() if line.startswith("step")]
    assert losses[-1] < 0.9 * losses[0]
    assert f"{size} ranks, tables of" in text


@pytest.mark.parametrize("size", [1, 2])
def test_a_recommender_learns_in_stores(size):
    pytest.importorskip("torch")
    text = on_ranks(size, "store.py", "--steps", 40)
    losses = [float(line.split()[-1]) for line in text.splitlines() if line.startswith("step")]
    assert losses[-1] < 0.5 * losses[0]
    assert f"{size} ranks, 100% of all rows" in text


@pytest.mark.parametrize("size", [1, 2])
def test_a_program_for_adapm_loses_no_push(size):
    pytest.importorskip("torch")
    text = on_ranks(size, "adapm.py", "--steps", 30)
    assert text.splitlines() == [f"each worker has pushed 600 rows, and sees {1200 * size}"] * 2


def quality_of(application, *arguments):
    """What an application of examples/store says of a small run, and its quality."""
    text = run(sys.executable, EXAMPLES / "store" / f"{application}.py", "--json", *arguments)
    (row,) = map(json.loads, text.splitlines())
    return row, row["quality"]


# The measure of a model that was not trained, and how much better each has to be than it; how far
# runs may differ, since ranks train at their own pace.
APPLICATIONS = {
    "kge": ("MRR untrained", lambda found, untrained: found > 10 * untrained, 0.15),
    "word2vec": ("purity untrained", lambda found, untrained: found > 8 * untrained, 0.2),
    "mf": ("RMSE untrained", lambda found, untrained: found < 0.6 * untrained, 0.1),
}


@pytest.mark.parametrize("application", APPLICATIONS)
def test_an_application_is_as_good_on_two_hosts_as_with_plain_torch(application):
    pytest.importorskip("torch")
    untrained, is_better, slack = APPLICATIONS[application]
    _, of_torch = quality_of(application, "--torch")
    row, found = quality_of(application, "--hosts", 2)
    assert is_better(found, row["measures"][untrained])
    assert abs(found - of_torch) < slack * of_torch
    assert (row["hosts"], row["ranks"], row["intent"]) == (2, 2, True)
    assert row["store_bytes"] > 0
    if row["where"] == "namespaces":
        assert row["cable_bytes"] > row["store_bytes"]


def test_an_application_pulls_from_afar_what_it_does_not_announce():
    pytest.importorskip("torch")
    hosts = ("--hosts", 2, "--ranks-per-host", 2, "--pretend")
    row, found = quality_of("mf", *hosts, "--no-intent")
    announced, as_good = quality_of("mf", *hosts)
    assert (row["hosts"], row["ranks"], row["cable_bytes"]) == (2, 4, None)
    assert "pretended" in row["where"]
    assert row["local_share"] < announced["local_share"]
    assert abs(found - as_good) < 0.1 * found


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (("--hosts", "-1"), "from 0 on, not -1"),
        (("--ahead", "few"), "from 0 on, not few"),
        (("--ahead=--5",), "from 0 on, not --5"),
        (("--ranks-per-host", "0"), "from 1 on, not 0"),
        (("--hosts", "1000", "--pretend", "--torch"), "takes no --hosts"),
    ],
    ids=lambda part: part[0] if isinstance(part, tuple) else "",
)
def test_a_wrong_argument_of_an_application_is_told_in_a_line(wrong, told):
    pytest.importorskip("torch")
    command = [sys.executable, EXAMPLES / "store" / "mf.py", *wrong]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and told in done.stderr.splitlines()[-1], done.stderr


DIES_BEFORE_IT_MEETS_OTHERS = """
import os, signal, time
if os.environ["WEFT_RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)  # as a rank that waits for one that never comes
"""


def test_a_rank_that_dies_before_the_others_have_met_it_is_named_and_ends_an_application():
    start = f"import sys; sys.path.insert(0, {str(EXAMPLES / 'store')!r}); import hosts"
    start += f"; list(hosts.run(['-c', {DIES_BEFORE_IT_MEETS_OTHERS!r}], 3, 1, None, pretend=True))"
    done = subprocess.run(
        [sys.executable, "-c", start], capture_output=True, text=True, timeout=120, check=False
    )
    first, last = done.stderr.splitlines()[0], done.stderr.splitlines()[-1]
    assert first == "rank 1 was killed by SIGKILL"
    assert last == "failed: rank 0, 1, 2" and done.returncode == 1


def test_applications_are_compared_in_a_table_and_plots(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, EXAMPLES / "store" / "compare.py", "--out", tmp_path / "figures"]
    some = ["--applications", "mf", "--hosts", 2, "--seed", 1, 2, "--epochs", 1]
    text = run(*command, *some)
    rows = json.loads((tmp_path / "figures.json").read_text())
    assert [(row["system"], row["intent"], row["seed"]) for row in rows] == [
        *(("torch", False, seed) for seed in (1, 2)),
        *(("weft", True, seed) for seed in (1, 2)),
        *(("weft", False, seed) for seed in (1, 2)),
    ]
    table = (tmp_path / "figures.md").read_text()
    assert table in text and len(table.splitlines()) == 2 + 3
    said = [line for line in text.splitlines() if line.startswith("mf on 2 hosts")]
    assert len(said) == 2 and all("2 seeds: " in line and "within 2%" in line for line in said)
    assert "not drawn" in text or (tmp_path / "mf.svg").stat().st_size > 1000


def trained(hosts, quality, **more):
    """A row of an application, as it prints it."""
    row = {"application": "kge", "system": "weft" if hosts else "torch", "hosts": hosts}
    hits = {"Hits@1": 0.25, "Hits@3": 0.5, "Hits@10": 0.75}
    row |= {"intent": True, "seconds": 1.0, "local_share": 0.5, "store_bytes": 10**6}
    return row | {"quality": quality, "measures": {"MRR": quality, **hits}, **more}


def test_a_way_to_train_is_compared_with_torch_in_the_mean_of_its_seeds(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "store"))
    report = importlib.import_module("report")
    rows = [trained(0, 0.5), trained(0, 0.5), trained(1, 0.4), trained(1, 0.59)]
    rows += [trained(2, 0.489), trained(4, 0.511)]
    assert list(report.verdicts(rows)) == [
        "kge on 1 host, with intent, 2 seeds: 99.0% of torch's quality, within 2%",
        "kge on 2 hosts, with intent, 1 seed: 97.8% of torch's quality, NOT within 2%",
        "kge on 4 hosts, with intent, 1 seed: 102.2% of torch's quality, NOT within 2%",
    ]
    lines = report.table(rows).splitlines()
    assert all(line.count("|") == lines[0].count("|") for line in lines)
    assert "0.250 0.500 0.750" in lines[2]
    assert list(report.verdicts(rows[2:])) == []


def test_the_c_program_compiles_and_adds_up_its_ranks(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    package = pathlib.Path(weft.__file__).parent
    library = next(package.glob("libweft.so*"))
    program = tmp_path / "allreduce"
    run(
        *(compiler, "-std=c11", "-Wall", "-Werror", f"-I{ROOT / 'include'}"),
        *(EXAMPLES / "allreduce.c", library, f"-Wl,-rpath,{package}", "-o", program),
    )
    assert run(program) == "rank 0 of 1: the ranks add up to 0, and are 1\n"
    common = {"WEFT_RANKS": "2", "WEFT_JOB": secrets.token_hex(8)}
    other = subprocess.Popen(
        [program],
        env={**ranks.quiet_environment(), **common, "WEFT_RANK": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    text = run(program, **common, WEFT_RANK="0")
    assert text == "rank 0 of 2: the ranks add up to 1, and are 2\n"
    assert other.communicate(timeout=180)[0] == "rank 1 of 2: the ranks add up to 1, and are 2\n"
