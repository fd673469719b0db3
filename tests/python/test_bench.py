# SPDX-License-Identifier: Apache-2.0
"""`weft bench`: its arithmetic without timing, and one tiny run for the form of its output."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest.mock

import pytest
from weft.bench import contest, htmlpage, plots, report, results
from weft.bench.build import SOURCES, BuildError, find_library
from weft.bench.collectives import gloo_rank, marks
from weft.bench.collectives import report as collectives_report
from weft.bench.collectives.operations import OPERATIONS, SIZES
from weft.bench.collectives.run import CollectivesRunner, plan, takes_case, takes_turn
from weft.bench.collectives.systems import SYSTEMS, taking_part
from weft.bench.dense.systems import DRIVER as PEAK_DRIVER
from weft.bench.job import Job, Program
from weft.bench.marks import MIN_PAIRS
from weft.bench.results import Block, Case, block_from, changes, paired_ratios, rows_of
from weft.bench.runner import QUICK_SECONDS, Options, fits_memory, quick_end, run_setups
from weft.bench.store.cable import DRIVER as CABLE_DRIVER
from weft.bench.store.run import DRIVER as STORE_DRIVER
from weft.bench.switch.bare import BARE
from weft.bench.systems import Tools, launch_command
from weft.bench.units import format_size, format_time, parse_size
from weft.cli import bench as command

PAIR = Case("allreduce", 4, 2, 2)
FAMILIES = {system.family.name: system.family for system in SYSTEMS}
OURS = ("weft", "weft-arena", "weft-thp")
VALUE_KEYS = {"bench", "case", "system", "ranks", "bytes", "value", "unit", "low", "high"}
MARK_KEYS = {"mark", "ratio", "goal", "direction", "met"}


def block(system, turn, us, placement="near", case=PAIR):
    return Block(case, system, turn, placement, us)


def judge(goal, placement, blocks, missing):
    """On a machine that has cores enough for every mark."""
    return marks.judge(goal, placement, blocks, missing, marks.MANY_CORES)


def blocks_with_ratio(goal, placement, factor, factor_else=None):
    """Three rounds in which weft takes `factor` of what the goal allows against every opponent.

    It takes `factor_else`, or the same, of what the goal allows that will do instead.
    """
    ours = goal.at_most[placement] * factor
    found = []
    for turn in range(MIN_PAIRS):
        found += [block(name, turn, ours, placement, goal.case) for name in OURS]
        for systems in marks.opponents(goal.against).values():
            found += [block(s.name, turn, 1.0, placement, goal.case) for s in systems]
        if goal.or_else is not None:
            bound = ours / (goal.or_else.at_most[placement] * (factor_else or factor))
            found.append(block(goal.or_else.against, turn, bound, placement, goal.case))
    return found


@pytest.mark.parametrize("bench", [*command.BENCHES, "all"])
def test_help_names_the_systems_of_every_benchmark(bench, capsys):
    with pytest.raises(SystemExit, match="0"):
        command.main([bench, "--help"])
    assert "who takes part" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "size"), [("4", 4), ("64K", 65536), ("4MiB", 4 << 20), (" 1 g ", 1 << 30)]
)
def test_a_size_is_read_as_people_write_it(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-4", "4T", "1.5K", "x"])
def test_what_is_not_a_size_is_refused(text):
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


def test_sizes_and_times_are_written_in_their_largest_unit():
    assert [format_size(n) for n in (4, 1000, 1024, 4 << 20)] == [
        "4 B",
        "1000 B",
        "1 KiB",
        "4 MiB",
    ]
    assert [format_time(us) for us in (0.195, 15.8, 1930.0, 2.1e6)] == [
        "195 ns",
        "15.8 us",
        "1.93 ms",
        "2.10 s",
    ]


@pytest.mark.parametrize(
    ("ns", "placement"), [(0, "any"), (25, "smt"), (48, "near"), (150, "near"), (240, "far")]
)
def test_a_probe_tells_the_placement(ns, placement):
    assert results.placement_of(ns) == placement


def test_a_block_is_as_slow_as_its_slowest_rank():
    answers = [[55, 60, 100.0, 90, 200, 16], [55, 60, 300.0, 90, 200, 16]]
    assert block_from(PAIR, "weft", 0, answers) == block("weft", 0, 0.3)


def test_a_block_whose_probes_differ_is_dropped():
    assert block_from(PAIR, "weft", 0, [[55, 240, 100.0, 90, 200, 16]] * 2) is None


def test_ratios_pair_blocks_of_one_round_and_one_placement():
    blocks = [
        block("weft", 0, 1.0),
        block("openmpi", 0, 4.0),
        block("weft", 1, 1.0, "far"),
        block("openmpi", 1, 2.0),
        block("weft", 2, 3.0),
        block("openmpi", 2, 2.0),
        block("weft", 3, 9.0),
    ]
    assert paired_ratios(blocks, PAIR, "weft", "openmpi", "near") == [0.25, 1.5]
    assert paired_ratios(blocks, PAIR, "weft", "openmpi", "far") == []


def test_a_row_carries_the_median_and_the_spread_of_its_blocks():
    (row,) = rows_of([block("weft", turn, us) for turn, us in enumerate((3.0, 1.0, 2.0))])
    assert row.keys() >= VALUE_KEYS
    assert (row["value"], row["low"], row["high"], row["unit"]) == (2.0, 1.0, 3.0, "us")
    assert row["case"] == "allreduce near"


def test_near_and_far_get_rows_of_their_own():
    rows = rows_of([block("weft", 0, 1.0), block("weft", 1, 4.0, "far")])
    assert [(row["case"], row["value"]) for row in rows] == [
        ("allreduce near", 1.0),
        ("allreduce far", 4.0),
    ]


def test_a_missing_system_has_a_row_without_a_value():
    row = results.missing_row("mpich", "no mpicc")
    assert row.keys() >= VALUE_KEYS
    assert row["value"] is None


def goal_id(goal):
    return f"{goal.mark}-{goal.against}-{goal.case.op}-{goal.case.bytes}"


@pytest.mark.parametrize("goal", marks.GOALS, ids=goal_id)
def test_a_goal_is_met_below_its_bound_and_not_above(goal):
    for placement in goal.at_most:
        below = judge(goal, placement, blocks_with_ratio(goal, placement, 0.9), {})
        above = judge(goal, placement, blocks_with_ratio(goal, placement, 1.1), {})
        assert (below.met, above.met) == (True, False)


EITHER = next(goal for goal in marks.GOALS if goal.or_else is not None)


def test_large_data_may_be_near_the_bound_instead_of_ahead_of_the_peers():
    for factor, factor_else, met, against in (
        (1.5, 0.9, True, "limit"),
        (0.9, 1.5, True, "openmpi"),
        (1.5, 1.2, False, "limit"),
        (1.2, 1.5, False, "openmpi"),
    ):
        blocks = blocks_with_ratio(EITHER, "near", factor, factor_else)
        verdict = judge(EITHER, "near", blocks, {})
        assert (verdict.met, verdict.peer) == (met, against)
        assert verdict.ratio == pytest.approx(verdict.bound * min(factor, factor_else))


def test_a_goal_that_failed_is_open_while_its_alternative_was_not_judged():
    blocks = [b for b in blocks_with_ratio(EITHER, "near", 1.5) if b.system != "limit"]
    verdict = judge(EITHER, "near", blocks, {})
    assert verdict.met is None
    assert verdict.reasons[0][0] == "too few pairs"


def test_the_marks_of_data_movement_ask_for_what_the_table_says():
    asked = {
        (g.case.op, g.case.bytes): dict(g.at_most)
        for g in marks.GOALS
        if g.mark == "C3b" and g.or_else is None
    }
    assert asked["broadcast", 64 << 10] == {"near": 0.30}
    assert asked["broadcast", 4 << 20] == {"near": 0.40}
    for op in ("allgather", "alltoall"):
        assert asked[op, 64 << 10] == {"near": 0.65, "far": 1.0}
        assert asked[op, 4 << 20] == {"near": 0.90, "far": 1.0}
    assert {
        at
        for (op, _), at_most in asked.items()
        if op == "reduce_scatter"
        for at in at_most.values()
    } == {0.5}
    either = {(g.case.op, g.case.bytes) for g in marks.GOALS if g.or_else is not None}
    assert either == {
        (op, size << 20)
        for op in ("broadcast", "allgather", "alltoall", "reduce_scatter")
        for size in (32, 256)
    }


def test_a_mark_carries_the_worst_of_its_sizes():
    factors = iter((0.5, 0.9, 0.7, 0.6, 0.8, 0.4))
    goals = [goal for goal in marks.GOALS if goal.mark == "C1"]
    blocks = [b for goal in goals for b in blocks_with_ratio(goal, "near", next(factors))]
    row = next(r for r in marks.mark_rows(blocks, {}) if r["placement"] == "near")
    assert row.keys() >= MARK_KEYS
    assert (row["mark"], row["met"], row["case"]) == ("C1", True, "allreduce 64 B")
    assert row["ratio"] == pytest.approx(0.9 * row["goal"])


def test_against_the_better_peer_is_against_each_of_them():
    goal = marks.GOALS[0]
    blocks = [block("weft", turn, 0.3) for turn in range(3)]
    blocks += [block("openmpi", turn, 0.5) for turn in range(3)]
    blocks += [block("mpich", turn, 3.0) for turn in range(3)]
    verdict = judge(goal, "near", blocks, {})
    assert (verdict.ratio, verdict.peer, verdict.met) == (0.6, "openmpi", False)


def test_the_mark_of_buffers_from_the_library_is_not_met_by_private_ones():
    goals = [goal for goal in marks.GOALS if goal.case.op == "cycle"]
    assert {goal.mark for goal in goals} == {"C3c"}
    blocks = blocks_with_ratio(goals[0], "near", 0.5)
    assert judge(goals[0], "near", blocks, {}).met
    blocks = [b for b in blocks if b.system != "weft-arena"]
    assert judge(goals[0], "near", blocks, {}).ratio is None


def test_huge_pages_are_compared_with_huge_pages():
    goal = next(g for g in marks.GOALS if g.against == "best")
    blocks = blocks_with_ratio(goal, "near", 0.5)
    blocks = [b for b in blocks if b.system not in ("weft-thp", "mpich", "openmpi")]
    assert judge(goal, "near", blocks, {}).ratio is None


def test_a_goal_without_one_of_its_peers_can_fail_but_not_be_met():
    goal = marks.GOALS[0]
    for factor, met in ((0.9, None), (1.1, False)):
        blocks = blocks_with_ratio(goal, "near", factor)
        blocks = [b for b in blocks if b.system != "mpich"]
        verdict = judge(goal, "near", blocks, {"mpich": "no mpicc"})
        assert verdict.met is met
        assert verdict.reasons == (("missing", "mpich (no mpicc)"),)


def test_a_placement_that_was_not_seen_is_not_judged():
    blocks = blocks_with_ratio(marks.GOALS[0], "near", 0.5)
    verdict = judge(marks.GOALS[0], "far", blocks, {})
    assert (verdict.met, verdict.ratio) == (None, None)
    assert set(verdict.reasons) == {("not seen", "the far placement")}


def test_too_few_pairs_are_not_judged():
    blocks = [b for b in blocks_with_ratio(marks.GOALS[0], "near", 0.5) if b.turn]
    verdict = judge(marks.GOALS[0], "near", blocks, {})
    assert verdict.met is None
    assert verdict.reasons[0] == ("too few pairs", "2 with openmpi at allreduce 4 B")


def test_a_run_without_blocks_judges_nothing():
    rows = marks.mark_rows([], {}, marks.MANY_CORES)
    assert [row["mark"] for row in rows if row["placement"] != "far"] == [
        *("C1", "C2a", "C2b", "C3a", "C3b", "C3c", "C4", "C5", "C6")
    ]
    assert all(row["met"] is None for row in rows)
    assert all(row["reason"].startswith("not measured: ") for row in rows)
    json.dumps(rows)


def test_a_full_run_measures_every_case_that_a_mark_needs():
    setups = plan(Options(), range(marks.MANY_CORES))
    planned = {case for setup in setups for case in setup.cases}
    assert {goal.case for goal in marks.GOALS} <= planned
    for goal in [*marks.GOALS, *(g.or_else for g in marks.GOALS if g.or_else)]:
        setup = next(s for s in setups if goal.case in s.cases)
        names = {s.name for s in setup.systems if takes_case(s, goal.case, False)}
        for systems in marks.opponents(goal.against).values():
            assert {s.name for s in systems} <= names


def test_marks_that_need_more_cores_are_not_judged_and_not_planned():
    many = {goal.case for goal in marks.GOALS if goal.needs_cores}
    blocks = [b for g in marks.GOALS for b in blocks_with_ratio(g, next(iter(g.at_most)), 0.9)]
    for cores, met, reason in ((16, True, ""), (15, None, "needs: 16 cores")):
        row = next(r for r in marks.mark_rows(blocks, {}, cores) if r["mark"] == "C5")
        assert (row["met"], row["reason"]) == (met, reason)
        planned = {case for setup in plan(Options(), range(cores)) for case in setup.cases}
        assert (many <= planned, many.isdisjoint(planned)) == (met is True, met is None)


def test_the_marks_of_many_ranks_ask_for_what_the_table_says():
    asked = {g.case: g.at_most["any"] for g in marks.GOALS if g.mark == "C5"}
    assert {(case.ranks, case.cores) for case in asked} == {(8, 8), (16, 16)}
    assert {case.op for case in asked} == set(OPERATIONS) - {"cycle"}
    for op, bound in (("allreduce", 0.5), ("broadcast", 0.5), ("alltoall", 0.7), ("scan", 0.7)):
        for size in (64 << 10, 512 << 10, 4 << 20):
            assert asked[Case(op, size, 8, 8)] == asked[Case(op, size, 16, 16)] == bound
        assert asked[Case(op, 64, 16, 16)] == 1.0


def test_pairs_of_several_placements_judge_a_mark_that_knows_none():
    goal = next(g for g in marks.GOALS if g.mark == "C5")
    blocks = [
        block(system, turn, us, placement, goal.case)
        for turn, placement in enumerate(("near", "far", "near"))
        for system, us in (("weft", 1.0), ("openmpi", 2.0))
    ]
    assert judge(goal, "any", blocks, {}).ratio == 0.5
    # A turn at which the two had different placements is no pair.
    moved = [*blocks[:-1], block("openmpi", 2, 2.0, "far", goal.case)]
    assert judge(goal, "any", moved, {}).reasons[0][0] == "too few pairs"


def test_what_was_not_measured_is_told_by_its_ranks():
    (goal, *_) = (g for g in marks.GOALS if g.mark == "C6")
    assert judge(goal, "any", [], {}).reasons == (("not measured", "4 ranks on 2 cores"),)
    blocks = [block("weft", 0, 1.0, "any", Case("allreduce", 4, 4, 2))]
    assert judge(goal, "any", blocks, {}).reasons == (
        ("not measured", "broadcast 32 MiB with 4 ranks"),
    )


def test_further_setups_have_those_alone_that_their_marks_compare():
    *_, eight, sixteen, crowd = plan(Options(), range(16))
    assert [case.bytes for case in crowd.cases] == [32 << 20] * 3
    assert {s.name for s in crowd.systems} == {"weft", "weft-arena", "openmpi-yield"}
    assert (len(crowd.cores), len(eight.cores), len(sixteen.cores)) == (2, 8, 16)
    for setup in (eight, sixteen):
        assert {s.name for s in setup.systems} == {"weft", "weft-arena", "openmpi"}
    assert [setup.ranks for setup in plan(Options(quick=True), range(16))] == [2, 4, 8]
    chosen = Options(ops=("alltoall", "barrier"), sizes=(64,))
    (*_, some) = plan(chosen, range(16))
    assert {(case.op, case.bytes) for case in some.cases} == {("alltoall", 64), ("barrier", 0)}


def test_ranks_have_a_core_each_where_there_are_enough():
    setups = plan(Options(ranks=(2, 8, 32)), range(16))
    assert [(s.ranks, len(s.cores), s.crowded) for s in setups] == [
        (2, 2, False),
        (8, 8, False),
        (32, 16, True),
    ]


def test_a_full_run_has_every_operation_on_16_cores():
    for setup in plan(Options(ranks=(2, 4, 8, 16)), range(16)):
        assert {case.op for case in setup.cases} == set(OPERATIONS)
        assert {"weft", "openmpi", "mpich", "gloo", "limit"} <= {s.name for s in setup.systems}


def test_operations_and_sizes_can_be_chosen():
    (setup,) = plan(Options(ranks=(2,), ops=("barrier", "scan"), sizes=(4, 64)), range(2))
    assert [(case.op, case.bytes) for case in setup.cases] == [
        ("barrier", 0),
        ("scan", 4),
        ("scan", 64),
    ]


def test_crowds_run_allreduce_unless_more_is_asked_for():
    def crowd(options):
        return {case.op for case in plan(options, range(2))[-1].cases}

    assert crowd(Options(quick=True)) == {"allreduce"}
    assert crowd(Options()) == {"broadcast", "allgather", "alltoall"}
    assert crowd(Options(ops=("scan",))) == {"scan"}
    assert crowd(Options(ranks=(4,))) == set(OPERATIONS) - {"cycle"}


def test_tuned_settings_of_peers_can_be_left_out():
    (setup,) = plan(Options(ranks=(2,), installed=True), range(2))
    names = {"weft", "weft-arena", "openmpi", "mpich", "gloo", "limit"}
    assert {s.name for s in setup.systems} == names


def test_an_interrupted_run_keeps_what_it_has(tmp_path, monkeypatch, capsys):
    class Interrupted(CollectivesRunner):
        def prepare(self):
            pass

        def run_all(self, setups, advance):
            self.outcome.blocks.append(block("weft", 0, 1.5))
            raise KeyboardInterrupt

    def measure(options):
        return run_setups(Interrupted(options, {}), [])

    rows_file = tmp_path / "rows.json"
    bench = dataclasses.replace(command.BENCHES["collectives"], measure=measure)
    monkeypatch.setitem(command.BENCHES, "collectives", bench)
    assert command.main(["collectives", "--json", str(rows_file)]) == 130
    assert [row["value"] for row in json.loads(rows_file.read_text()) if "value" in row] == [1.5]
    assert "interrupted" in capsys.readouterr().out


def test_a_system_runs_what_it_has():
    systems = {system.name: system for system in SYSTEMS}

    def runs(name, op, size=4 << 20, quick=False):
        return takes_case(systems[name], Case(op, size, 2, 2), quick)

    assert not runs("gloo", "scan")
    assert runs("gloo", "alltoall")
    assert not runs("limit", "cycle")
    assert runs("openmpi-alg6", "allreduce")
    assert not runs("openmpi-alg6", "reduce")
    assert runs("mpich-keep", "reduce")
    assert not runs("mpich-keep", "reduce", quick=True)
    assert not runs("mpich-keep", "reduce", 8)
    assert runs("mpich-keep", "reduce", 32 << 20)
    assert not runs("mpich-eager", "reduce", 32 << 20)
    assert runs("mpich-eager", "allreduce", 32 << 20)


def test_large_data_has_enough_turns_for_a_mark():
    large = Case("alltoall", 256 << 20, 2, 2)
    assert all(takes_turn(large, turn) for turn in range(MIN_PAIRS))
    assert not all(takes_turn(large, turn) for turn in range(10))
    assert all(takes_turn(PAIR, turn) for turn in range(10))


def test_the_drivers_know_the_same_operations():
    """The two tables say the same of each: its name, blocks for all, in place."""
    text = (SOURCES / "op.c").read_text()
    theirs = {
        match[1]: tuple(f".{field} = true" in match[0] for field in fields)
        for fields in [("src_for_all", "dst_for_all", "in_place")]
        for match in re.finditer(r'\{\s*\.name = "(\w+)"[^}]*\}', text)
    }
    assert theirs == {
        name: (op.src_for_all, op.dst_for_all, op.in_place) for name, op in OPERATIONS.items()
    }


def test_the_limit_is_for_ranks_with_cores_and_yielding_for_crowds():
    some = Options(families=frozenset({"limit", "openmpi"}))
    assert "limit" in {s.name for s in taking_part(some, 2, 2)}
    assert "limit" in {s.name for s in taking_part(some, 4, 4)}
    assert [s.name for s in taking_part(some, 4, 2)] == ["openmpi-yield"]


def test_a_quick_run_leaves_out_large_sizes_and_what_no_mark_needs_and_ends_in_time():
    setups = plan(Options(quick=True), range(2))
    assert max(case.bytes for setup in setups for case in setup.cases) < SIZES[-2]
    measured = {case.op for setup in setups for case in setup.cases}
    assert measured == {goal.case.op for goal in marks.GOALS if not goal.needs_cores}
    ends = [quick_end(number, 3) for number in range(3)]
    assert ends == sorted(ends)
    assert ends[-1] == quick_end(0, 1) == QUICK_SECONDS < 50


def test_a_size_that_does_not_fit_is_left_out():
    case = Case("allreduce", 1 << 30, 2, 2)
    assert fits_memory(OPERATIONS["allreduce"], case, 2, 16 << 30)
    assert not fits_memory(OPERATIONS["allreduce"], case, 2, 8 << 30)


def test_an_operation_with_a_block_for_each_rank_needs_so_much_more_memory():
    def needs(op, ranks):
        return sum(OPERATIONS[op].buffer_bytes(100, ranks))

    assert [needs(op, 4) for op in ("allreduce", "reduce", "allgather", "alltoall")] == [
        *(100, 200, 500, 800)
    ]

    def fits(op):
        return fits_memory(OPERATIONS[op], Case(op, 32 << 20, 16, 16), 8, 24 << 30)

    assert fits("allreduce")
    assert not fits("alltoall")


def test_systems_have_names_of_their_own():
    assert len({system.name for system in SYSTEMS}) == len(SYSTEMS)


def test_every_folder_of_a_benchmark_has_its_row():
    folders = {path.parent.name for path in SOURCES.parent.glob("*/benchmark.py")}
    assert set(command.BENCHES) == folders


def test_every_file_of_a_driver_exists():
    named = {unit for family in FAMILIES.values() for unit in family.driver.units}
    for driver in (STORE_DRIVER, PEAK_DRIVER, CABLE_DRIVER, BARE.driver):
        named |= {*driver.units}
    assert {path.name for path in SOURCES.glob("*.c")} == named


def test_weft_runs_in_one_job_whatever_the_pages():
    assert {system.job for system in SYSTEMS if system.family.name == "weft"} == {"weft"}


def test_a_missing_tool_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    assert "mpicc" in (FAMILIES["openmpi"].find().missing or "")
    assert "compiler" in (FAMILIES["limit"].find().missing or "")


def test_openmpi_may_run_as_root_only_when_it_is_root(monkeypatch):
    tools = FAMILIES["openmpi"].find()
    if tools.missing:
        pytest.skip(tools.missing)
    for uid, allowed in ((0, True), (1000, False)):
        monkeypatch.setattr("os.geteuid", lambda uid=uid: uid)
        assert ("--allow-run-as-root" in launch_command(tools, 2)) is allowed


def test_only_changes_beyond_the_spread_are_told():
    def row(system, low, value, high):
        one = rows_of([block(system, 0, value)])[0]
        return one | {"low": low, "high": high}

    old = [row("weft", 1, 2, 3), row("mpich", 1, 2, 3), row("gloo", 4, 5, 6)]
    new = [row("weft", 4, 5, 6), row("mpich", 2, 3, 4), row("gloo", 1, 2, 3)]
    assert [(r["system"], ratio) for r, ratio in changes(old, new)] == [
        ("weft", 2.5),
        ("gloo", 0.4),
    ]
    text = report.changes_text(changes(old, new))
    assert "slower: weft" in text
    assert "faster: gloo" in text
    assert "nothing changed" in report.changes_text([])


@pytest.mark.parametrize("content", ["", "{}", "[1]", "\x00"])
def test_a_file_that_is_no_earlier_run_is_refused(tmp_path, content, capsys):
    path = tmp_path / "old.json"
    path.write_text(content)
    assert command.main(["collectives", "--compare", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_an_earlier_run_that_is_not_there_is_told_once(tmp_path, capsys):
    path = tmp_path / "old.json"
    assert command.main(["collectives", "--compare", str(path)]) == 2
    assert capsys.readouterr().err == f"weft bench: {path}: No such file or directory\n"


def test_earlier_rows_come_back_without_marks_and_missing_systems(tmp_path):
    value = rows_of([block("weft", 0, 1.0)])
    path = tmp_path / "old.json"
    rows = [*value, results.missing_row("gloo", "?"), *marks.mark_rows([], {})]
    path.write_text(json.dumps(rows))
    assert results.load_rows(path) == value


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["collectives", "--sizes", "3"],
        ["collectives", "--sizes", "many"],
        ["collectives", "--ranks", "1"],
        ["collectives", "--ranks", "two"],
        ["collectives", "--systems", "weft,nccl"],
        ["collectives", "--ops", "allreduce,allscatter"],
        ["collectives", "--rounds", "0"],
    ],
)
def test_a_bad_command_line_is_refused_with_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as raised:
        command.main(arguments)
    assert raised.value.code == 2
    assert capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_told_before_the_run(tmp_path, capsys):
    where = tmp_path / "no" / "rows.json"
    assert command.main(["collectives", "--json", str(where)]) == 2
    assert "no such folder" in capsys.readouterr().err
    needs_matplotlib()
    (tmp_path / "file").write_text("")
    assert command.main(["collectives", "--plots", str(tmp_path / "file" / "plots")]) == 2
    assert "plots" in capsys.readouterr().err


def test_the_table_shows_medians_spread_and_ratios():
    blocks = [block("weft", turn, us) for turn, us in enumerate((0.09, 0.1, 0.11))]
    blocks += [block("openmpi", turn, 0.2) for turn in range(3)]
    text = collectives_report.figures(blocks)
    assert "2 ranks on 2 cores, near (3 rounds)" in text
    assert "100 ns -10/+10%" in text
    assert "0.500" in text


def test_the_table_has_both_ways_and_says_when_the_arena_was_used():
    case = Case("allgather", 4 << 20, 2, 2)
    blocks = [block("weft", 0, 8.0, case=case), block("openmpi", 0, 10.0, case=case)]
    alone = collectives_report.figures(blocks)
    assert "arena" not in alone
    assert "no buffer was in the arena" in collectives_report.arena_legend(blocks)
    blocks.append(block("weft-arena", 0, 2.0, case=case))
    text = collectives_report.figures(blocks)
    head, _rule, line = text.splitlines()[1:4]
    assert re.split(r"\s{2,}", head.strip())[:3] == ["weft", "weft arena", "openmpi"]
    assert re.search(r"8.00 us.*2.00 us.*10.0 us.*0\.800.*0\.200", line)
    assert "all buffers were in the arena" in collectives_report.arena_legend(blocks)


def test_the_table_has_operations_in_order_and_says_what_a_size_is():
    cases = [Case("alltoall", 8, 2, 2), Case("barrier", 0, 2, 2), PAIR]
    blocks = [block("weft", 0, 1.0, case=case) for case in cases]
    text = collectives_report.figures(blocks)
    assert text.index("allreduce 4 B") < text.index("barrier") < text.index("alltoall 8 B")
    legend = collectives_report.size_legend(blocks)
    assert "alltoall: what one rank sends to one" in legend
    assert "barrier" not in legend
    assert collectives_report.size_legend([]) == ""


def test_a_difference_of_times_that_is_nothing_gives_no_block():
    assert block_from(PAIR, "weft", 0, [[55, 60, -3.0, 90, 200, 16]] * 2) is None


def rows_to_draw():
    blocks = []
    for ranks in (2, 4):
        for op in ("allreduce", "barrier", "scan"):
            for size in (0,) if op == "barrier" else (4, 1024):
                case = Case(op, size, ranks, 4)
                for name in ("weft", "openmpi", "limit", "openmpi-keep"):
                    blocks += [block(name, turn, 1.0 + size, "near", case) for turn in range(2)]
                    blocks += [block(name, 0, 2.0 + size, "far", case)]
    return rows_of(blocks)


def test_a_figure_has_a_panel_for_each_number_of_ranks_and_one_placement():
    rows = [row for row in rows_to_draw() if row["op"] == "scan"]
    found = plots.panels(rows)
    assert [title for title, _ in found] == ["2 ranks, near", "4 ranks, near"]
    assert all(row["placement"] == "near" for _, group in found for row in group)


def needs_matplotlib():
    if (why := plots.unavailable()) is not None:
        pytest.skip(why)


def test_every_operation_with_sizes_gets_a_figure_that_can_be_made_again():
    needs_matplotlib()
    rows = rows_to_draw()
    found = plots.figures(rows)
    assert list(found) == ["allreduce", "scan"]
    assert all(picture.lstrip().startswith(b"<?xml") for picture in found.values())
    assert plots.figures(rows) == found


def test_rows_of_earlier_runs_are_drawn_without_measuring(tmp_path, capsys):
    needs_matplotlib()
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    rows = rows_to_draw()
    first.write_text(json.dumps([row for row in rows if row["op"] == "allreduce"]))
    second.write_text(json.dumps([row for row in rows if row["op"] == "scan"]))
    folder = tmp_path / "plots"
    arguments = ["collectives", "--from", str(first), str(second), "--plots", str(folder)]
    assert command.main(arguments) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["allreduce.svg", "scan.svg"]
    assert "scan.svg" in capsys.readouterr().out


def contest_rows():
    """weft, two peers and the limit at two sizes; gloo far away, and without a placement."""
    rows = []
    times = {"weft": (1.0, 6.0), "openmpi": (4.0, 3.0), "mpich": (2.0, 4.0), "limit": (0.5, 1.5)}
    for system, both in times.items():
        for size, us in zip((64, 4 << 20), both, strict=True):
            case = Case("allreduce", size, 2, 2)
            rows += results.rows_of([Block(case, system, turn, "near", us) for turn in range(3)])
    rows += results.rows_of([Block(Case("allreduce", 64, 2, 2), "gloo", 0, "far", 0.1)])
    rows += results.rows_of([Block(Case("allreduce", 4 << 20, 2, 2), "gloo", 0, "any", 2.0)])
    return rows


def test_a_contest_is_with_the_fastest_peer_of_each_size_and_one_placement():
    (row,) = contest.standing(contest_rows())
    assert row.what == "allreduce, 2 ranks, near"
    assert row.points == (
        contest.Point("64 B", 0.5, "mpich", 0.25),
        contest.Point("4 MiB", 3.0, "gloo", 0.75),
    )
    text = contest.headline([row])
    assert text.startswith("weft is faster than the best peer in 1 of 2 cases, slower in 1;")
    assert "4 MiB (3.00 of gloo's time)" in text


def arena_rows():
    """Of the larger size alone: data that goes with the calls is in no arena."""
    case = Case("allreduce", 4 << 20, 2, 2)
    return results.rows_of([Block(case, "weft-arena", 0, "near", 0.5)])


def test_a_contest_shows_data_in_the_arena_beside_the_other():
    (row,) = contest.standing([*contest_rows(), *arena_rows()])
    assert [point.also for point in row.points] == [None, 0.25]
    assert "faster than the best peer in 1 of 2 cases" in contest.headline([row])
    assert contest.headline([row]).endswith(" With data in the arena it is faster in 1 of 1.")
    assert re.search(r"3.00 4 MiB\s+gloo\s+0.75\s+0.25$", contest.text([row]), re.MULTILINE)
    assert "arena" not in contest.headline(contest.standing(contest_rows()))


def test_the_picture_has_a_mark_for_data_in_the_arena():
    needs_matplotlib()
    without, with_it = (
        contest.picture(contest.standing([*contest_rows(), *more])) for more in ([], arena_rows())
    )
    # The white inside of a hollow mark, beside that of the drawing and its axes.
    assert with_it.count(b"fill: #ffffff") > without.count(b"fill: #ffffff")


def test_without_a_peer_there_is_no_contest(capsys, tmp_path):
    alone = [row for row in contest_rows() if row["system"] in ("weft", "limit")]
    assert contest.standing(alone) == []
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([*alone, results.missing_row("mpich", "no mpicc of it found")]))
    assert command.main(["all", "--from", str(path)]) == 0
    out = capsys.readouterr().out
    assert "no peer was measured" in out
    assert "missing: collectives: mpich (no mpicc of it found)" in out


def test_earlier_rows_are_shown_as_one_page(tmp_path, capsys):
    needs_matplotlib()
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(json.dumps(contest_rows()))
    second.write_text(json.dumps(marks.mark_rows([], {})))
    page = tmp_path / "page.html"
    arguments = ["all", "--from", str(first), str(second), "--html", str(page)]
    assert command.main([*arguments, "--plots", str(tmp_path)]) == 0
    assert (tmp_path / "contest.svg").read_bytes().startswith(b"<?xml")
    out = capsys.readouterr().out
    assert "faster than the best peer in 1 of 2 cases" in out
    assert re.search(r"allreduce, 2 ranks, near\s+0.50 64 B\s+3.00 4 MiB\s+gloo\s+0.75", out)
    assert "not judged" in out
    text = page.read_text()
    assert 'alt="who is ahead where"' in text


def test_plots_without_matplotlib_are_refused_before_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert command.main(["collectives", "--plots", str(tmp_path)]) == 2
    assert "weft[bench]" in capsys.readouterr().err


def test_the_page_is_self_contained():
    needs_matplotlib()
    blocks = [block(name, 0, 0.1) for name in ("weft", "openmpi", "limit")]
    rows = [*rows_of(blocks), results.missing_row("<mpich>", "&"), *marks.mark_rows(blocks, {})]
    page = htmlpage.render(rows, "a <machine>")
    assert "data:image/svg+xml;base64," in page
    assert "http" not in page
    assert "&lt;machine&gt;" in page
    assert "<mpich>" not in page


def run_bench(*arguments):
    """Run the command in a process of its own; skip where it cannot work."""
    if FAMILIES["limit"].find().missing:
        pytest.skip("no C compiler")
    try:
        find_library()
    except BuildError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [sys.executable, "-m", "weft.cli.bench", "collectives", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_tiny_run_has_the_form_of_a_large_one(tmp_path):
    rows_file, page_file, folder = (tmp_path / name for name in ("rows.json", "page.html", "plots"))
    drawn = ["--html", str(page_file), "--plots", str(folder)]
    drawn = [] if plots.unavailable() else drawn
    text = run_bench(
        *("--systems", "weft,limit", "--ranks", "2", "--sizes", "8,64K"),
        *("--rounds", "1", "--block-ms", "1", "--json", str(rows_file), *drawn),
    )
    rows = json.loads(rows_file.read_text())
    values = [row for row in rows if row.get("value") is not None]
    assert all(row.keys() >= VALUE_KEYS for row in rows if "mark" not in row)
    assert all(row.keys() >= MARK_KEYS for row in rows if "mark" in row)
    assert all(0 < row["low"] <= row["value"] <= row["high"] for row in values)
    assert all(row["met"] is None for row in rows if "mark" in row)
    # Each row is one block; those in which the cores moved are told of.
    assert {row["op"] for row in values} <= set(OPERATIONS)
    told = re.search(r"^(\d+) blocks dropped", text, re.MULTILINE)
    assert len(values) + int(told[1] if told else 0) > len(OPERATIONS)
    assert "mark" in text
    if drawn:
        assert "<img" in page_file.read_text()
        assert (folder / "allreduce.svg").is_file()


def test_a_run_measures_private_buffers_and_those_in_the_arena(tmp_path):
    """Each rank looks its buffers up in the arena, and answers that it has none otherwise."""
    rows_file = tmp_path / "rows.json"
    arguments = (
        *("--systems", "weft", "--ranks", "2", "--sizes", "8,64K", "--rounds", "2"),
        *("--ops", "allgather,cycle,scatter", "--block-ms", "1", "--json", str(rows_file)),
    )
    text = run_bench(*arguments)
    assert "all buffers were in the arena" in text
    found = {(r["op"], r["bytes"]) for r in of_arena(rows_file)}
    assert found <= {("allgather", 65536), ("cycle", 65536), ("scatter", 65536)}
    assert found


def of_arena(rows_file):
    rows = json.loads(rows_file.read_text())
    return [r for r in rows if r.get("system") == "weft-arena" and r.get("value") is not None]


def test_ranks_without_an_arena_are_measured_with_private_buffers(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_ARENA", "0")
    rows_file = tmp_path / "rows.json"
    text = run_bench(
        *("--systems", "weft", "--ranks", "2", "--sizes", "64K", "--rounds", "2"),
        *("--ops", "allgather", "--block-ms", "1", "--json", str(rows_file)),
    )
    assert of_arena(rows_file) == []
    assert "weft-arena" in text
    assert "no buffer was in the arena" in text
    assert any(row.get("system") == "weft" for row in json.loads(rows_file.read_text()))


def test_a_tiny_quick_run_judges_no_mark_that_it_did_not_measure(tmp_path):
    rows_file = tmp_path / "rows.json"
    run_bench(
        *("--quick", "--systems", "weft", "--sizes", "8", "--ops", "allreduce,allgather"),
        *("--rounds", "1", "--block-ms", "1", "--json", str(rows_file)),
    )
    rows = json.loads(rows_file.read_text())
    assert {row["mark"] for row in rows if "mark" in row} >= {"C1", "C3b", "C3c", "C4"}
    assert all(row["met"] is None for row in rows if "mark" in row)


@pytest.mark.parametrize("family", ["openmpi", "mpich", "gloo"])
def test_a_peer_passes_the_checks_of_every_operation(family, tmp_path):
    """Checks come before the timing, and a system that fails one makes the command fail."""
    if (why := FAMILIES[family].find().missing) is not None:
        pytest.skip(f"{family}: {why}")
    run_bench(
        *("--systems", family, "--ranks", "2,3", "--cores", "2", "--sizes", "8,20K"),
        *("--rounds", "1", "--block-ms", "1", "--json", str(tmp_path / "rows.json")),
    )


@pytest.mark.parametrize("op", [op for op in OPERATIONS if op not in ("barrier", "scan")])
def test_a_peer_that_does_nothing_does_not_pass_the_checks(op):
    torch = pytest.importorskip("torch")
    rank = gloo_rank.Rank(torch, None, 0, 2)
    rank._dist = unittest.mock.Mock()
    with pytest.raises(ValueError, match=f"{op} of 64 bytes"):
        rank.check(op, 64, 1)


class CoresSeen(Job):
    """Starts nothing: what its processes would find is in `cores`."""

    def _start(self, program, command, folder, pipes):
        self.cores = os.sched_getaffinity(0)


def test_ranks_that_share_cores_can_see_so_when_they_start(tmp_path):
    """Or weft, which counts cores then, would wait as if each rank had its own."""
    free = os.sched_getaffinity(0)
    core = min(free)
    program = Program(Tools(), pathlib.Path("driver"))
    for ranks, expected in ((2, {core}), (1, free)):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        job = CoresSeen(SYSTEMS[0], program, ranks, [core], folder)
        job.stop()
        assert job.cores == expected
        assert os.sched_getaffinity(0) == free
