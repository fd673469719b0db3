# SPDX-License-Identifier: Apache-2.0
"""What the subcommands share."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from weft.cli import common


def test_what_is_before_and_after_two_dashes_is_told_apart():
    assert common.split_program(["--lib", "x", "--", "a", "--", "b"]) == (
        ["--lib", "x"],
        ["a", "--", "b"],
    )
    assert common.split_program(["--json"]) == (["--json"], [])
    assert common.split_program(["--"]) == ([], [])


def test_help_ends_with_examples_that_are_not_filled():
    examples = [("weft x --quick", "in a minute"), ("weft x", "")]
    text = common.parser("weft x", "What it\n does.", examples).format_help()
    assert "What it does." in text
    assert text.endswith("examples:\n  weft x --quick  in a minute\n  weft x\n")


def test_an_error_is_one_line_and_status_2(capsys):
    assert common.fail("weft x", "this\n  is wrong") == 2
    assert capsys.readouterr().err == "weft x: this is wrong\n"


def test_a_table_has_columns_of_words_to_the_left_and_numbers_to_the_right():
    lines = common.table(["name", "of", "n"], [["a", "bc", "10"], ["abcde", "b", "1"]], left=2)
    assert lines.splitlines() == [
        "name   of   n",
        "-----  --  --",
        "a      bc  10",
        "abcde  b    1",
    ]


def test_json_is_what_programs_read(capsys):
    common.print_json({"a": [1]})
    assert json.loads(capsys.readouterr().out) == {"a": [1]}


def test_a_script_that_is_not_executable_is_run_by_this_python(tmp_path):
    script = tmp_path / "a.py"
    script.write_text("")
    assert common.find_program([str(script), "x"]) == [sys.executable, str(script), "x"]
    script.write_text(f"#!{sys.executable}\n")
    script.chmod(0o755)
    assert common.find_program([str(script), "x"]) == [str(script), "x"]


@pytest.mark.parametrize("name", ["no-such-program", "/no/such", "/etc", "/etc/passwd", ""])
def test_what_is_no_program_is_told_in_one_line(name):
    with pytest.raises(common.NoProgram) as error:
        common.find_program([name] if name else [])
    assert len(str(error.value).splitlines()) == 1


def test_a_file_that_the_kernel_does_not_run_is_no_program(tmp_path):
    script = tmp_path / "a"
    script.write_bytes(b"\x7fELF")
    script.chmod(0o755)
    with pytest.raises(common.NoProgram, match="Exec format"):
        common.run_program([str(script)])


def python(text):
    return [sys.executable, "-c", text]


def test_the_status_of_a_program_is_kept():
    assert common.run_program(python("")) == 0
    assert common.run_program(python("raise SystemExit(7)")) == 7
    assert common.run_program(["/bin/sh", "-c", "kill -KILL $$"]) == 128 + signal.SIGKILL


def test_a_program_gets_its_environment_and_no_blocked_signals():
    text = (
        "import os, signal, sys\n"
        "sys.exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])) or int(os.environ['N']))"
    )
    assert common.run_program(python(text), {**os.environ, "N": "5"}) == 5
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_and_the_program_ends_in_its_own_way(number):
    program = (
        "import signal, sys\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    ours = f"from weft.cli import common\nraise SystemExit(common.run_program({python(program)!r}))"
    with subprocess.Popen(python(ours), stdout=subprocess.PIPE, text=True) as outer:
        assert outer.stdout.readline() == "ready\n"
        outer.send_signal(number)
        assert outer.wait(30) == 9


def test_a_file_that_cannot_be_written_is_told_beforehand(tmp_path):
    assert common.unwritable(tmp_path / "new.json") is None
    assert common.unwritable(tmp_path) == f"{tmp_path}: it is a folder"
    missing = tmp_path / "no" / "x.json"
    assert common.unwritable(missing) == f"{missing}: there is no such folder"
    there = pathlib.Path("/proc/version")
    if os.geteuid() != 0:  # root may write to it as far as the kernel tells
        assert common.unwritable(there) == f"{there}: it may not be written"


def test_a_reader_that_has_seen_enough_is_no_error():
    weft = f"{sys.executable} -m weft"
    done = subprocess.run(
        ["bash", "-c", f"{weft} completion bash | head -1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1] in ("0", str(128 + signal.SIGPIPE))


@pytest.mark.parametrize("words", ["completion bash", "blas list --json"])
def test_output_that_finds_the_disk_full_is_one_line(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "weft", *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == "weft: standard output: No space left on device\n"
    assert done.returncode == 1
