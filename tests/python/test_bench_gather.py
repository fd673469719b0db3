# SPDX-License-Identifier: Apache-2.0
"""`weft bench gather`: its arithmetic without timing, and one tiny run."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest
from weft.bench.gather import gpu, gpu_marks
from weft.bench.gather import marks as gather_marks
from weft.bench.gather import report as gather_report
from weft.bench.gather import run as gather
from weft.bench.gather.run import FEW_ROWS, MUCH, OPERATIONS, SHARED, SHARED_SIZES
from weft.bench.results import Block, Case
from weft.bench.runner import Options
from weft.cli import bench as command

GIB = 1 << 30


def blocks_of(op: str, row: int, cores: int, **times: float) -> list[Block]:
    """Three rounds of each system, the middle one with the time given."""
    case = Case(op, row, 1, cores)
    return [
        Block(case, system, turn, "any", us * scale)
        for system, us in times.items()
        for turn, scale in enumerate((0.9, 1.0, 1.1))
    ]


def all_blocks(cores: int, ratio: float) -> list[Block]:
    return [
        block
        for op in OPERATIONS
        for row in (64, 256, 1024, 2048)
        for block in blocks_of(op, row, cores, weft=100 * ratio, torch=100, copy=20)
    ]


def shared_blocks(alone: float, both: float, copied: float) -> list[Block]:
    return [
        Block(Case(SHARED, row, ranks, ranks), system, turn, "any", us)
        for row in SHARED_SIZES
        for turn in range(3)
        for system, ranks, us in (("weft", 1, alone), ("weft", 2, both), ("copy", 2, copied))
    ]


def marks(blocks: list[Block], cores: int = 2, **missing: str) -> dict[str, dict]:
    return {row["mark"]: row for row in gather_marks.mark_rows(blocks, missing, cores)}


def test_all_sizes_and_both_batches_must_meet_a_mark():
    found = marks(all_blocks(2, 0.35))
    assert found["G1a"]["met"] is True
    assert found["G1b"]["met"] is True
    found = marks(all_blocks(2, 0.38))
    assert found["G1a"]["met"] is True
    assert found["G1b"]["met"] is False
    assert "64" in found["G1b"]["case"]


def test_without_torch_weft_is_missing_and_the_run_has_failed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gather.importlib.util, "find_spec", lambda name: None)
    assert command.main(["gather", "--json", str(tmp_path / "rows.json")]) == 1
    assert "missing: weft (torch is not installed)" in capsys.readouterr().out


def test_on_many_cores_not_to_be_slower_is_enough():
    assert marks(all_blocks(16, 0.99), 16)["G1a"]["met"] is True
    assert marks(all_blocks(16, 1.01), 16)["G1a"]["met"] is False


def test_what_was_not_measured_is_not_judged():
    found = marks([])
    assert found["G1a"]["met"] is None
    assert found["G2"]["met"] is None
    few = [block for block in all_blocks(2, 0.3) if "huge" not in block.case.op]
    found = marks(few, **{"huge pages": "none"})
    assert found["G1a"]["met"] is True
    assert found["G1b"]["met"] is None
    assert "huge pages" in found["G1b"]["reason"]


@pytest.mark.parametrize(
    ("alone", "both", "copied", "met"),
    [(100, 54, 10, True), (100, 60, 10, False), (100, 80, 75, True)],
)
def test_two_processes_reach_nearly_twice_or_what_memory_gives(alone, both, copied, met):
    row = marks(shared_blocks(alone, both, copied))["G2"]
    assert row["met"] is met
    assert row["ratio"] == pytest.approx(alone / both)


def test_rows_of_a_call():
    assert gather.rows_per_call("gather-4k", 64) == FEW_ROWS
    assert gather.rows_per_call("gather-4k-much", 64) * 64 == MUCH
    assert gather.rows_per_call(SHARED, 1024) == FEW_ROWS


def test_scatters_are_measured_last_in_fewer_sizes_and_have_no_mark():
    everything = Options(families=frozenset(gather.SYSTEMS))
    assert gather.sizes_of(everything, "scatter-4k") == gather.UPDATE_SIZES
    assert gather.systems_of(everything, "scatter-add-huge") == ["weft", "torch", "copy"]
    assert gather.systems_of(everything, "gather-huge") == list(gather.SYSTEMS)
    assert gather.ops_of(everything) == gather.NAMES
    assert "scatter-huge" not in gather.ops_of(Options(quick=True))
    assert gather.ops_of(Options(quick=True, ops=("scatter-huge",))) == ("scatter-huge",)
    assert not any("scatter" in goal.case.op for goal in gather_marks.goals(False, 2))
    blocks = blocks_of("scatter-add-4k", 64, 2, weft=40.96, torch=81.92, copy=20.48)
    text = gather_report.figures(blocks)
    assert f"adding scatter, 4 KiB pages, {FEW_ROWS} rows a call, 2 threads" in text
    assert "0.500" in text and "2.000" in text


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("call", ["gather", "scatter", "scatter_add"])
def test_a_call_that_does_nothing_or_another_thing_is_wrong(call):
    import torch
    from weft.bench.gather.rank import Rank

    class Library:
        """One that gathers, whatever it is asked for."""

        works = False

        def rows(self, name, table, out, threads, region):
            return lambda ids: torch.index_select(table, 0, ids, out=out) if self.works else None

    rank = Rank()
    rank._library = Library()
    rank.do_table(1 << 20, huge=False, numbers=call != "gather")
    assert rank.do_rows(64, 100, 1, call) == {"wrong": ["weft"]}
    Library.works = True
    assert ("weft" in rank.do_rows(64, 100, 1, call)["wrong"]) is (call != "gather")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_fill_a_table_together_as_one_does(ranks, monkeypatch):
    import torch
    from weft.bench.gather import rank as gather_rank

    monkeypatch.setattr(gather_rank, "_FILLED_AT_ONCE", 100)
    alone, together = torch.zeros(730), torch.zeros(730)
    gather_rank._fill(alone, lambda: None, seed=5)
    for number in range(ranks):
        gather_rank._fill(together, lambda: None, seed=5, part=(number, ranks))
    assert torch.equal(alone.view(torch.int32), together.view(torch.int32))
    assert len(set(alone.view(torch.int32).tolist())) == 730


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_a_process_has_a_thread_for_each_core_and_says_that_it_is_at_work():
    import torch
    from weft.bench.gather import rank as gather_rank

    said = []
    rank = gather_rank.Rank(lambda: said.append("at work"))
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    try:
        rank.do_pin([min(cores)])
        assert torch.get_num_threads() == 1
        rank.do_table(9 << 20, huge=False, numbers=False)
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)
    assert said == ["at work"] * 3  # pieces of 4 MiB


def speaker(*lines):
    """A process that says this, and then nothing until it is stopped."""
    code = f"import sys; print({chr(10).join(lines)!r}, flush=True); sys.stdin.read()"
    return gather.Rank(command=(sys.executable, "-c", code))


def test_a_process_that_is_at_work_is_waited_for_and_a_silent_one_is_not():
    rank = speaker('{"at_work": true}', '{"at_work": true}', '{"us": 3}', '{"at_work": true}')
    try:
        assert rank.hear(60) == {"us": 3}
        with pytest.raises(gather.RankError, match="no answer for 0 s"):
            rank.hear(0.1)
    finally:
        rank.stop()


def test_the_table_fits_into_memory():
    assert gather.table_bytes(3 * GIB, quick=True) == GIB
    assert gather.table_bytes(100 * GIB, quick=True) == 2 * GIB
    assert gather.table_bytes(100 * GIB, quick=False) == 8 * GIB


def test_figures_and_rows_tell_rates():
    blocks = blocks_of("gather-4k", 64, 2, weft=40.96, torch=81.92)
    assert "10.0" in gather_report.figures(blocks)
    row = next(row for row in gather_report.rows(blocks) if row["system"] == "weft")
    assert row["rows"] == FEW_ROWS
    assert row["gb_per_s"] == pytest.approx(6.4)


def marks_of_gpu(weft: float, update: float) -> dict[str, dict]:
    near = {size: {"weft": weft, "copy": 1.0, "torch": 12.0} for size in (20, 32, 64, 128, 512)}
    far = {size: {"weft sorted": weft, "weft unsorted": 3.0} for size in (64, 512)}
    ratios = {("adam", 512): update, ("lazy_adam", 512): 9.0}
    return {row["mark"]: row for row in gpu_marks.marks_of(near, far, ratios)}


def test_marks_of_a_gpu_are_those_of_the_worst_case():
    found = marks_of_gpu(1.0, 1.2)
    assert all(row["met"] for row in found.values())
    assert found["G5"]["ratio"] == 1.2, "lazy Adam has no mark"
    found = marks_of_gpu(1.2, 1.4)
    assert [name for name, row in found.items() if row["met"]] == []
    assert found["G3a"]["case"] == "gather 512 B"
    assert found["G3b"]["case"] == "gather 64 B"
    assert found["G4"]["case"] == "host 64 B"


def test_what_a_gpu_was_not_asked_is_not_judged():
    rows = gpu_marks.marks_of({}, {}, {})
    assert [row["mark"] for row in rows] == list(gpu_marks.MARKS)
    assert all(row["met"] is None and row["reason"] == "not measured" for row in rows)


@pytest.mark.skipif(gpu.unavailable() is None, reason="there is a GPU")
def test_without_a_gpu_its_marks_say_why():
    rows = gpu.run(quick=True)
    assert [row["mark"] for row in rows] == list(gpu_marks.MARKS)
    assert {row["reason"] for row in rows} == {gpu.unavailable()}


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_a_quick_run_makes_no_table_when_its_time_is_over(monkeypatch):
    monkeypatch.setattr(gather, "QUICK_SECONDS", -1.0)
    monkeypatch.setattr(gather, "Rank", None)
    options = Options(quick=True, ops=gather.NAMES, families=frozenset(gather.SYSTEMS))
    outcome = gather.measure(options)
    assert not outcome.blocks
    assert not outcome.failed


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_a_tiny_run(monkeypatch):
    monkeypatch.setattr(gather, "TABLE", 4 << 20)
    monkeypatch.setattr(gather, "QUICK_SECONDS", float("inf"))  # ranks may be slow to start
    ops = ("gather-4k", "scatter-4k", "scatter-add-4k")
    if len(os.sched_getaffinity(0)) >= 2:
        ops += (SHARED,)
    options = Options(
        quick=True,
        ops=ops,
        sizes=(20, 64),
        families=frozenset(gather.SYSTEMS),
        rounds=3,
        block_ms=1,
    )
    outcome = gather.measure(options)
    assert not outcome.failed
    assert not outcome.missing
    assert {block.case.op for block in outcome.blocks} == set(ops)
    assert {block.system for block in outcome.blocks} == {"weft", "torch", "copy"}
    assert all(block.us > 0 for block in outcome.blocks)
