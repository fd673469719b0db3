# SPDX-License-Identifier: Apache-2.0
"""What other tools write is read right, also when it is broken off or strange."""

import json
import random
import struct

import pytest
from weft.profile import attribute, elf, ldprofile, operators, perf, trace
from weft.profile.processes import labels, rank_in, short_command
from weft.profile.result import Result
from weft.profile.samples import (
    JIT,
    KERNEL,
    UNKNOWN,
    Frame,
    Sample,
    by_function,
    by_library,
    folded,
    is_library,
    library_name,
    nameless,
    tree,
    within,
)

RECORDER = perf.Recorder("perf", "cpu-clock", "dwarf", 100)
# As perf 6.1 wrote it, shortened.
RECORDED = """\
python 22605/22606 37640.834650:    2004008 cpu-clock:ppp: \n\
\tffffffff815eb815 __handle_mm_fault+0x2b5 ([kernel.kallsyms])
\t         8e45bfa mkl_blas_sgemm_omp_driver_v1 (/v/libtorch_cpu.so)
\t         2df7aff c10::impl::wrap<at::Tensor (at::Tensor const&)>::call (/v/libtorch_cpu.so)
\t         542bbaa torch::autograd::VariableType::(anonymous namespace)::mm (/v/libtorch_cpu.so)
\t          29a80b [unknown] (/usr/lib/libpython3.11.so.1.0)
\t               0 [unknown] ([unknown])

Web Content 15552/15552 38190.360765:    1000000 cpu-clock: \n\
\t    7fa2ad185705 jit_avx512_conv.0 (/tmp/perf-15552.map)
\t    7fa2ad185705 x (/memfd:weft region (deleted))

pt_main 1/1 1.5:    5 cycles:u: \n\
\t    1 f (/lib/a (b)/libc.so.6)
"""


def test_samples_of_perf_have_their_process_time_and_stack():
    first, second, third = perf.parse(RECORDED.splitlines(keepends=True), RECORDER)
    assert (first.pid, first.tid, first.thread) == (22605, 22606, "python")
    assert first.time == pytest.approx(37640.83465)
    assert first.seconds == pytest.approx(2004008e-9)
    assert first.stack == (
        Frame("__handle_mm_fault+0x2b5", KERNEL),
        Frame("mkl_blas_sgemm_omp_driver_v1", "libtorch_cpu.so"),
        Frame("c10::impl::wrap<at::Tensor (at::Tensor const&)>::call", "libtorch_cpu.so"),
        Frame("torch::autograd::VariableType::(anonymous namespace)::mm", "libtorch_cpu.so"),
        Frame(UNKNOWN, "libpython3.11.so.1.0"),
    )
    assert second.thread == "Web Content"
    assert second.stack == (Frame("jit_avx512_conv.0", JIT), Frame("x", "memfd:weft region"))
    assert third.stack == (Frame("f", "libc.so.6"),)
    assert third.seconds == 0.01  # no clock: a hundredth, as there are 100 a second


def test_text_that_is_no_sample_is_left_out():
    text = "# a comment\nLost 3 events\n\t\tffff f (/lib/x.so)\npython 1/2\n\n"
    assert list(perf.parse(text.splitlines(keepends=True), RECORDER)) == []


def test_broken_text_of_perf_never_fails():
    dice = random.Random(1)
    for _ in range(300):
        text = list(RECORDED)
        for _ in range(dice.randrange(1, 30)):
            text[dice.randrange(len(text))] = chr(dice.choice([0, 9, 10, 32, 40, 41, 47, 120]))
        cut = "".join(text)[: dice.randrange(len(text))]
        for sample in perf.parse(cut.splitlines(keepends=True), RECORDER):
            assert sample.stack


def gmon(ticks=(0, 3, 0, 1), arcs=((0, 0x10, 5),), low=0x1000, high=0x1040):
    data = b"gmon" + struct.pack("<I12x", 0x1FFFF)
    data += struct.pack("<IQQIi15sc", 0, low, high, len(ticks), 100, b"seconds", b"s")
    data += struct.pack(f"<{len(ticks)}H", *ticks) + struct.pack("<II", 1, len(arcs))
    return data + b"".join(struct.pack("<QQI", *arc) for arc in arcs)


def test_a_profile_of_the_loader_gives_times_and_calls_by_function():
    profile = ldprofile.parse(gmon())
    assert profile.ticks == [(0x1010, 3), (0x1030, 1)]
    assert profile.arcs == [(0, 0x1010, 5)]
    library = elf.Object(
        "libx.so", "libx.so", False, True, False, (0x1010, 0x1030), ("f", "g"), (0x1020, 0x1031)
    )
    counts = ldprofile.counts(profile, library)
    assert counts.seconds == {"f": 0.03, "g": 0.01}
    assert counts.calls == {"f": 5}


def test_a_broken_profile_of_the_loader_is_an_error():
    whole = gmon()
    for n in range(len(whole)):
        with pytest.raises(ValueError):
            ldprofile.parse(whole[:n])
    for bad in (
        b"mong" + whole[4:],
        whole[:4] + b"\1\0\0\0" + whole[8:],
        gmon(low=9, high=9),
        whole[:40] + b"\xff\xff\xff\xff" + whole[44:],  # buckets
        whole[:-24] + b"\xff\xff\xff\xff" + whole[-20:],  # calls
    ):
        with pytest.raises(ValueError):
            ldprofile.parse(bad)


def test_a_file_that_is_no_library_is_an_error(tmp_path):
    path = tmp_path / "libx.so"
    for content in (
        b"",
        b"\x7fELF",
        b"/* GNU ld script */ " * 9,
        b"\x7fELF\x02\x01" + b"\xff" * 99,
    ):
        path.write_bytes(content)
        with pytest.raises(elf.NotElf):
            elf.read(str(path))


def test_names_of_libraries():
    assert library_name("[kernel.kallsyms]") == KERNEL
    assert library_name("/tmp/perf-12.map") == JIT
    assert library_name("/usr/lib/libm.so.6") == "libm.so.6"
    assert library_name("[unknown]") == UNKNOWN
    for wanted in ("libm.so.6", "libm.so", "libm", "m", "/some/where/libm.so.6"):
        assert is_library("libm.so.6", wanted)
    for wanted in ("mm", "lib", "libm.so.5", "c"):
        assert not is_library("libm.so.6", wanted)


def sample(*functions, time=0.0, pid=1, tid=1):
    return Sample(pid, tid, time, 1.0, tuple(Frame(*name.split("@")) for name in functions))


def test_recursion_is_counted_once_in_the_total():
    samples = [sample("f@a", "g@b", "f@a"), sample("g@b", "f@a")]
    functions = by_function(samples)
    assert functions[Frame("f", "a")].own == 1
    assert functions[Frame("f", "a")].total == 2
    libraries = by_library(samples)
    assert (libraries["b"].own, libraries["b"].total) == (1, 2)


def test_one_library_is_shown_from_the_first_call_into_it():
    kept = within([sample("k@[kernel]", "f@liba.so", "m@main"), sample("m@main")], "a")
    assert [s.stack for s in kept] == [(Frame("k", "[kernel]"), Frame("f", "liba.so"))]


def test_a_library_without_names_is_noticed():
    samples = [sample("[unknown]@liba.so"), sample("[unknown]@liba.so"), sample("f@liba.so")]
    assert list(nameless(samples)) == [("liba.so", 2.0, 3.0)]
    assert list(nameless([sample("f@liba.so"), sample("[unknown]@[jit]")])) == []


def test_long_runs_of_the_interpreter_are_folded():
    python = [Frame(name, "libpython3.11.so.1.0") for name in "abcd"]
    other = Frame("mm", "libtorch_cpu.so")
    assert folded([*python, other, python[0]]) == [
        Frame("Python", python[0].library),
        python[3],
        other,
        python[0],
    ]


def test_each_process_has_its_own_branch():
    root = tree([sample("f@a"), sample("f@a", pid=2)], {1: "rank 0", 2: "rank 1"})
    assert [node.frame.function for node in root.children.values()] == ["rank 0", "rank 1"]
    assert root.total == 2


def event(name, ts, dur, tid=1, cat="cpu_op", **args):
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur,
        "args": args,
    }  # fmt: skip


def test_an_operator_has_no_time_of_those_inside_it():
    found = operators.operators(
        [event("outer", 0, 100), event("inner", 10, 30), event("inner", 50, 20)]
    )
    times = {op.name: (round(op.own * 1e6), round(op.total * 1e6), op.calls) for op in found}
    assert times == {"outer": (50, 100, 1), "inner": (50, 50, 2)}


def test_an_operation_that_goes_on_takes_no_time_from_the_operator_that_began_it():
    found = operators.operators([event("outer", 0, 10), event("weft:all_reduce", 5, 100)])
    assert {op.name: round(op.own * 1e6) for op in found} == {"outer": 10, "weft:all_reduce": 100}


def test_operations_of_weft_are_summed_up_with_bytes_and_ranks():
    events = [event("weft:all_reduce", 0, 9, bytes=64, rank=0)]
    events.append(event("weft:all_reduce", 0, 9, tid=2, bytes=64, rank=1))
    (found,) = operators.operators(events)
    assert (found.bytes, found.ranks, found.is_weft) == (128, {0, 1}, True)


def test_a_call_of_weft_mpi_is_one_event_with_bytes_and_rank(tmp_path):
    seen = {"Input type": ["float", "Scalar"], "Input Dims": [[10, 100], []]}
    layers = [event("weft::allreduce", ts, 100 - 2 * ts, **seen) for ts in (0, 10, 200)]
    layers[2]["dur"] = 50
    trace_of_torch = {"traceEvents": layers, "baseTimeNanoseconds": 10**9}
    (tmp_path / "torch-1.json").write_text(json.dumps(trace_of_torch))
    about = {"argv": ["a.py"], "environment": {"RANK": "3"}, "calls": []}
    (tmp_path / "process-1.json").write_text(json.dumps(about))
    found = operators.read(tmp_path)
    assert [(e["ts"], e["args"]["bytes"], e["args"]["rank"]) for e in found.events] == [
        (1000000, 4000, 3),
        (1000200, 4000, 3),
    ]
    assert found.notes == []


def test_a_sample_lies_in_the_operators_that_are_open():
    events = [event("conv2d", 0, 100), event("mm", 20, 30), event("later", 200, 10)]
    times = [10e-6, 30e-6, 90e-6, 150e-6]
    kernel = [sample("k@libtorch_cpu.so", time=t) for t in times]
    names = [s.operators for s in attribute.attribute(kernel, events, 0.0)]
    assert names == [("conv2d",), ("conv2d", "mm"), ("conv2d",), ()]


def test_a_worker_thread_belongs_to_the_operator_of_its_process():
    worker = sample("k@libgomp.so.1", time=10e-6, tid=5)
    (found,) = attribute.attribute([worker], [event("mm", 0, 100)], 0.0)
    assert found.operators == ("mm",)
    assert attribute.rooted(found)[0] == Frame("mm", "operator")
    two = [event("mm", 0, 100), event("mm", 0, 100, tid=2)]
    assert attribute.attribute([worker], two, 0.0)[0].operators == ()


def test_what_a_process_wrote_in_part_is_noted(tmp_path):
    (tmp_path / "torch-12.json").write_text('{"traceEvents": [')
    (tmp_path / "process-12.json").write_text("[]")
    (tmp_path / "error-13.txt").write_text("RuntimeError: no\n")
    found = operators.read(tmp_path)
    assert found.events == []
    assert len(found.notes) == 3
    assert any("13" in note and "RuntimeError: no" in note for note in found.notes)


def test_the_trace_joins_successive_samples_of_a_call():
    samples = [sample("f@a", "main@p", time=float(t)) for t in (1, 2, 3)]
    samples.append(sample("g@a", "main@p", time=4.0))
    made = trace.render(Result(["p"], ["perf"], samples=samples, labels={1: "rank 0"}))
    slices = {e["name"]: (e["ts"], e["dur"]) for e in made["traceEvents"] if e["ph"] == "X"}
    assert slices == {"main": (0, 4e6), "f": (0, 3e6), "g": (3e6, 1e6)}
    names = [e["args"]["name"] for e in made["traceEvents"] if e["name"] == "process_name"]
    assert names == ["rank 0"]
    json.dumps(made)


def test_a_thread_that_slept_is_not_shown_as_busy():
    samples = [sample("f@a", time=1.0), sample("f@a", time=100.0)]
    made = trace.render(Result(["p"], ["perf"], samples=samples))
    assert [e["dur"] for e in made["traceEvents"] if e["ph"] == "X"] == [1e6, 1e6]


def test_processes_are_called_by_their_rank():
    assert rank_in({"RANK": "3", "PMI_RANK": "1"}) == 3
    assert rank_in({"RANK": "x"}) is None
    assert short_command(["/v/bin/python3", "-u", "/a/train.py", "x"]) == "python3 train.py"
    assert short_command(["python", "-W", "ignore", "a.py"]) == "python a.py"
    assert short_command(["python", "-c", "print(1)\nprint(2)"]) == "python -c"
    assert short_command(["/bin/sh", "-c", "true"]) == "sh"
    assert short_command(["/v/bin/python", "-m", "torch.distributed.run"]) == (
        "python -m torch.distributed.run"
    )
    named = labels({8, 9, 7}, {9: 0, 8: 1}, {9: "python a.py"})
    assert list(named.values()) == ["rank 0 (python a.py)", "rank 1", "process 7"]
