# SPDX-License-Identifier: Apache-2.0
"""`weft profile` on small programs in C: tables, files, exit statuses, and what cannot work."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from weft.profile import ProfileError, elf, ldprofile, perf

SPEND = """
static double spend(double x)
{
    double s = 0;
    for (int i = 0; i < 3000; i++) s += x * i / (s + 1);
    return s;
}
"""
# It calls something itself: the loader profiles no others.
LIBRARY = (
    "#include <math.h>\n"
    + SPEND
    + """
double lab_work(double x) { return spend(x) + fmod(x, 3.0); }
double lab_light(double x) { return x + 1; }
"""
)
ALONE = SPEND + "double lab_work(double x) { return spend(x); }\n"
PROGRAM = """
double lab_work(double);
int main(void)
{
    double s = 0;
    for (int i = 0; i < 15000; i++) s += lab_work(i);
    return s > 0 ? 3 : 0;
}
"""


def compiled(folder, name, source, *options):
    file = folder / f"{name}.c"
    file.write_text(source)
    out = folder / name
    command = ["cc", "-O1", "-o", out, file, *options]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return out


def shared(folder, source, *options):
    name = "-Wl,-soname,liblab.so.1"
    library = compiled(folder, "liblab.so.1", source, "-fPIC", "-shared", name, *options, "-lm")
    shutil.copy(library, folder / "liblab.so")
    return library


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A folder with a library that takes time and a program that calls it."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("lab")
    shared(folder, LIBRARY)
    compiled(folder, "program", PROGRAM, f"-L{folder}", "-llab", f"-Wl,-rpath,{folder}")
    return folder


def weft_profile(*words, cwd, **environment):
    env = {**os.environ, **{k: str(v) for k, v in environment.items()}}
    command = [sys.executable, "-m", "weft", "profile", *map(str, words)]
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False
    )


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def one_line(done):
    """It said what was wrong in one line, and nothing else."""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("weft profile: ")
    return lines[0]


@pytest.fixture(scope="module")
def recorder():
    try:
        return perf.find()
    except ProfileError as error:
        pytest.skip(str(error))


def test_perf_finds_the_library_and_the_function_and_keeps_the_status(lab, tmp_path, recorder):
    done = weft_profile("--out", "out", "--json", "--", lab / "program", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert found["status"] == 3
    assert found["libraries"][0]["library"] == "liblab.so.1"
    assert found["functions"][0]["function"] in ("spend", "lab_work")
    assert found["functions"][0]["self"] > found["seconds"] / 2
    assert files(tmp_path) == ["out", "out/profile.html", "out/profile.json", "out/trace.json"]
    trace = json.loads((tmp_path / "out/trace.json").read_text())
    assert any(event["name"] == "lab_work" for event in trace["traceEvents"])
    assert found == json.loads((tmp_path / "out/profile.json").read_text())


def test_perf_leaves_nothing_elsewhere(lab, tmp_path, recorder):
    home = tmp_path / "home"
    home.mkdir()
    words = ["--tool", "perf", "--out", tmp_path / "out", "--", lab / "program"]
    done = weft_profile(*words, cwd=tmp_path, HOME=home, TMPDIR=home)
    assert done.returncode == 3, done.stderr
    assert files(home) == []


def test_one_library_can_be_asked_for(lab, tmp_path, recorder):
    done = weft_profile("--tool", "perf", "--lib", "lab", "--", lab / "program", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    head = done.stdout.split("function")[0]
    assert "liblab.so.1" in head
    assert "kernel" not in head
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("weft-profile-")


def test_a_library_in_which_no_time_was_spent_is_told_of(lab, tmp_path, recorder):
    done = weft_profile("--lib", "nosuch", "--out", "out", "--", lab / "program", cwd=tmp_path)
    assert done.returncode == 3
    assert "no time was spent in nosuch" in one_line(done)
    assert "liblab.so.1" in done.stderr
    assert files(tmp_path) == []


def test_nothing_is_recorded_before_the_delay_has_passed(lab, tmp_path, recorder):
    words = ["--out", "out", "--tool", "perf", "--delay", "100000"]
    done = weft_profile(*words, "--", lab / "program", cwd=tmp_path)
    assert done.returncode == 3
    assert "not one sample was taken" in one_line(done)
    assert files(tmp_path) == []


def test_recording_goes_on_and_off_by_time_and_size(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(perf.time, "monotonic", lambda: now[0])
    data = tmp_path / "perf.data"

    def told(control, seconds):
        now[0] += seconds
        control.look()
        try:
            return os.read(control._pipe, 100).decode()
        except BlockingIOError:
            return ""

    control = perf.Control(tmp_path, data, delay=5, seconds=3)
    assert [told(control, s) for s in (1, 5, 1, 2, 1)] == ["", "enable\n", "", "disable\n", ""]
    assert "as asked for" in control.ended
    control.close()
    monkeypatch.setattr(perf, "LIMIT", 10)
    control = perf.Control(tmp_path, data, delay=0, seconds=None)
    assert told(control, 9) == ""
    data.write_bytes(bytes(11))
    assert told(control, 1) == "disable\n"
    assert "the first 10 s were recorded" in control.ended
    control.close()
    assert files(tmp_path) == ["perf.data"]


def test_a_killed_program_gives_128_and_the_signal(tmp_path, recorder):
    kill = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; kill -SEGV $$"
    done = weft_profile("--out", "out", "--", "sh", "-c", kill, cwd=tmp_path)
    assert done.returncode == 128 + signal.SIGSEGV
    assert "ended with status 139" in done.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--", "no-such-program"], "there is no program no-such-program"),
        ([], "no program to run"),
        (["--out", "/dev/null/x", "--", "true"], "is not a folder"),
        (["--tool", "sprof", "--", "true"], "sprof needs a library"),
        (["--tool", "sprof", "--lib", "nosuch", "--", "true"], "there is no library nosuch"),
        (["--tool", "torch", "--lib", "m", "--", "true"], "operators belong to no library"),
    ],
)
def test_bad_input_is_one_line_and_status_2(words, text, tmp_path):
    done = weft_profile(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert text in one_line(done)
    assert files(tmp_path) == []


def fake_perf(folder, text):
    """A perf that refuses everything with this text."""
    tool = folder / "bin" / "perf"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 255\n")
    tool.chmod(0o755)
    return f"{tool.parent}:/usr/bin:/bin"


def test_where_perf_is_not_permitted_the_remedy_is_told(tmp_path):
    path = fake_perf(tmp_path, "Error: Access to performance monitoring is limited, Permission")
    done = weft_profile("--tool", "perf", "--", "true", cwd=tmp_path, PATH=path)
    assert done.returncode == 2
    line = one_line(done)
    assert "perf is not permitted here" in line
    assert "perf_event_paranoid" in line or "--cap-add PERFMON" in line
    assert files(tmp_path) == ["bin", "bin/perf"]


def test_without_perf_one_library_is_still_profiled(lab, tmp_path):
    path = fake_perf(tmp_path, "Error: Operation not permitted")
    done = weft_profile(
        "--lib", lab / "liblab.so.1", "--out", "out", "--", lab / "program", cwd=tmp_path, PATH=path
    )
    assert done.returncode == 3, done.stderr
    assert "lab_work" in done.stdout
    assert "perf is not permitted here" in done.stdout


def test_without_perf_it_is_told_which_package_has_it(tmp_path):
    tool = shutil.which("true")
    done = weft_profile("--tool", "perf", "--", tool, cwd=tmp_path, PATH=str(tmp_path))
    assert done.returncode == 2
    assert "there is no perf here: apt-get install linux-perf" in one_line(done)


def test_the_loader_counts_time_and_calls(lab, tmp_path):
    words = ["--tool", "sprof", "--json", "--out", "out", "--lib", lab / "liblab.so.1"]
    done = weft_profile(*words, "--", lab / "program", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert found["library"] == "liblab.so.1"
    assert found["calls"] == {"lab_work": 15000}
    assert found["functions"][0]["function"] in ("spend", "lab_work")
    assert "out/profile.html" in files(tmp_path)


def test_the_library_may_be_named_as_for_the_loader(lab, tmp_path):
    done = weft_profile(
        *("--tool", "sprof", "--json", "--out", "out", "--", lab / "program"),
        cwd=tmp_path,
        LD_PROFILE="liblab.so",
        LD_PROFILE_PATH=lab,
    )
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["calls"] == {"lab_work": 15000}


def test_calls_by_pointer_have_times_but_no_counts(lab, tmp_path):
    call = (
        f"import ctypes; f = ctypes.CDLL('{lab}/liblab.so.1').lab_work; "
        "f.restype = ctypes.c_double; f.argtypes = [ctypes.c_double]\n"
        "for i in range(15000): f(1.0)"
    )
    words = ["--tool", "sprof", "--out", "out", "--lib", lab / "liblab.so.1"]
    done = weft_profile(*words, "--", sys.executable, "-c", call, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "called through pointers only" in done.stdout


def test_a_library_that_the_program_does_not_load_is_told_of(lab, tmp_path):
    words = ["--tool", "sprof", "--out", "out", "--lib", lab / "liblab.so.1"]
    done = weft_profile(*words, "--", "true", cwd=tmp_path)
    assert done.returncode == 1
    assert "the program did not load liblab.so.1" in one_line(done)
    assert files(tmp_path) == []


def test_a_library_without_a_linkage_table_is_told_of(tmp_path):
    library = shared(tmp_path, ALONE)
    program = compiled(
        tmp_path, "program", PROGRAM, f"-L{tmp_path}", "-llab", f"-Wl,-rpath,{tmp_path}"
    )
    done = weft_profile("--tool", "sprof", "--lib", library, "--", program, cwd=tmp_path)
    assert done.returncode == 3
    assert "no DT_JMPREL" in one_line(done)


def test_a_library_bound_at_load_time_is_counted_or_it_is_told(tmp_path):
    library = shared(tmp_path, LIBRARY, "-Wl,-z,now")
    program = compiled(
        tmp_path, "program", PROGRAM, f"-L{tmp_path}", "-llab", f"-Wl,-rpath,{tmp_path}"
    )
    words = ["--tool", "sprof", "--json", "--lib", library, "--", program]
    done = weft_profile(*words, cwd=tmp_path, LD_BIND_NOW=1)
    assert done.returncode == 3
    if done.stdout:
        assert json.loads(done.stdout)["calls"] == {"lab_work": 15000}
    else:
        assert "bound at load time (LD_BIND_NOW is set)" in one_line(done)


@pytest.mark.parametrize(("option", "now"), [("lazy", False), ("now", True)])
def test_a_library_that_is_bound_at_load_time_is_recognised(option, now, tmp_path):
    found = elf.read(str(shared(tmp_path, LIBRARY, f"-Wl,-z,{option}")))
    assert found.soname == "liblab.so.1"
    assert found.bound_at_load is now
    assert found.lazy_calls
    why = ldprofile.why_nothing(found, {}, True)
    assert ("-z,lazy" in why) is now
    assert "unset LD_BIND_NOW" in ldprofile.why_nothing(found, {"LD_BIND_NOW": "1"}, True)


def test_a_stripped_library_is_told_of(lab, tmp_path):
    if shutil.which("strip") is None:
        pytest.skip("there is no strip")
    shutil.copy(lab / "liblab.so.1", tmp_path)
    shutil.copy(lab / "liblab.so", tmp_path)
    library = tmp_path / "liblab.so.1"
    subprocess.run(["strip", library], check=True)
    words = ["--tool", "sprof", "--out", "out", "--lib", library]
    done = weft_profile(*words, "--", lab / "program", cwd=tmp_path, LD_LIBRARY_PATH=tmp_path)
    assert "liblab.so.1 is stripped" in done.stdout, done.stderr


def test_help_has_examples(tmp_path):
    done = weft_profile("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "examples:" in done.stdout
