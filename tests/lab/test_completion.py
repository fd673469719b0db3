# SPDX-License-Identifier: Apache-2.0
"""`weft completion`, in the shells themselves where they are installed."""

import argparse
import shutil
import subprocess

import pytest
from weft.cli import COMMANDS, common, completion


@pytest.fixture(scope="module")
def known():
    return list(completion.commands())


def shell(name, *arguments):
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.split()


@pytest.fixture
def script(known, tmp_path):
    def write(name):
        file = tmp_path / name
        file.write_text(completion.SHELLS[name](known))
        return file

    return write


def in_bash(file, *words):
    """What bash offers for the last of the words."""
    text = (
        f"source {file}; complete -p weft | grep -q -- '-F _weft weft' || exit 3; "
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weft; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return shell("bash", "--norc", "-c", text, "bash", *words)


def test_every_command_has_a_parser_that_can_be_asked(known):
    assert {one.path[1] for one in known if len(one.path) == 2} == set(COMMANDS)
    assert all("--help" in one.options for one in known)


def test_every_command_has_help_with_examples_that_begin_with_its_name():
    import importlib

    for name in COMMANDS:
        main = importlib.import_module(f"weft.cli.{name}").main
        made = common.parser_of(main, f"weft {name}")
        assert made.epilog.startswith("examples:\n"), name
        assert f"weft {name}" in made.epilog


def test_bash_completes_commands_options_and_their_values(script, tmp_path):
    file = script("bash")
    assert in_bash(file, "weft", "doc") == ["doctor"]
    assert set(in_bash(file, "weft", "")) >= set(COMMANDS)
    assert in_bash(file, "weft", "bench", "conv") == ["conv2d"]
    assert in_bash(file, "weft", "bench", "gemm", "--qu") == ["--quick"]
    assert in_bash(file, "weft", "doctor", "--s") == ["--settings"]
    assert in_bash(file, "weft", "completion", "z") == ["zsh"]
    assert in_bash(file, "weft", "bench", "gemm", "--rounds", "") == []
    (tmp_path / "rows of old.json").write_text("")
    found = in_bash(file, "weft", "bench", "gemm", "--compare", f"{tmp_path}/ro")
    assert " ".join(found) == f"{tmp_path}/rows of old.json"


def pretended(name):
    """A command with subcommands, one of which runs programs."""

    def main(argv):
        outer = common.parser("weft x", "")
        outer.add_argument("action", choices=["run"])
        outer.add_argument("arguments", nargs=argparse.REMAINDER)
        given = outer.parse_args(argv)
        inner = common.parser(f"weft x {given.action}", "")
        inner.usage = "weft x run [options] -- PROGRAM"
        inner.add_argument("--tool", choices=["perf", "sprof"], help="it's one: of; two")
        inner.parse_args(given.arguments)
        raise AssertionError("it went on")

    return main


def test_what_runs_programs_completes_them_after_two_dashes(monkeypatch, tmp_path):
    module = argparse.Namespace(main=pretended("x"))
    monkeypatch.setattr(completion.importlib, "import_module", lambda name: module)
    found = list(completion._below("x"))
    assert [one.path for one in found] == [("weft", "x"), ("weft", "x", "run")]
    file = tmp_path / "bash"
    file.write_text(completion.bash(found))
    assert in_bash(file, "weft", "x", "run", "--tool", "p") == ["perf"]
    assert "--" in in_bash(file, "weft", "x", "run", "--")
    assert "bash" in in_bash(file, "weft", "x", "run", "--", "bas")
    assert in_bash(file, "weft", "x", "run", "--", "bash", f"{tmp_path}/ba") == [str(file)]


def test_a_command_without_that_parser_only_prints_its_help(capsys):
    assert common.parser_of(pretended("x"), "weft y") is None
    assert capsys.readouterr().out == ""


def in_zsh(file, *words):
    stubs = (
        "compdef() { : }; _describe() { print -l -- ${known%%:*} }; compadd() { print -l -- $@ }; "
        "_files() { print FILES }; _command_names() { print COMMANDS }; "
    )
    text = f'{stubs} source {file}; words=("$@"); CURRENT=$#; _weft'
    return shell("zsh", "-fc", text, "zsh", *words)


def test_zsh_completes_the_same(script):
    file = script("zsh")
    assert set(in_zsh(file, "weft", "")) >= set(COMMANDS)
    assert "--settings" in in_zsh(file, "weft", "doctor", "")
    assert in_zsh(file, "weft", "bench", "gemm", "--html", "") == ["FILES"]


def test_fish_completes_the_same(script):
    file = script("fish")

    def offered(line):
        return shell("fish", "--no-config", "-c", f"source {file}; complete -C {line!r}")

    assert offered("weft doc")[0] == "doctor"
    assert offered("weft bench conv") == ["conv2d"]
    assert offered("weft bench gemm --qu")[0] == "--quick"
    assert offered("weft completion z") == ["zsh"]
