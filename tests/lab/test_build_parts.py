# SPDX-License-Identifier: Apache-2.0
"""Parts of `weft build` by themselves: progress, package sources, step lists."""

import os
import pty
import subprocess
import sys
import termios

import pytest
from weft.build import Refused, apt, openblas, progress, pytorch, recipe


def test_progress_is_read_from_ninja_and_from_make(capsys):
    seen = progress.Progress("compiling", quiet=True)
    seen.feed("[12/345] Building CXX object a.cpp.o\n")
    assert (seen.done, seen.total) == (12, 345)
    seen = progress.Progress("compiling", total=2, quiet=True)
    for line in ("cc -O2 -c a.c -o a.o\n", "ar -ru lib.a a.o\n", "gcc -o b.o -I. -c b.S\n"):
        seen.feed(line)
    assert seen.done == 2
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("tqdm", [True, False])
def test_a_terminal_gets_a_bar_and_without_tqdm_lines(tqdm):
    if tqdm:
        pytest.importorskip("tqdm")
    hide = "" if tqdm else "import sys; sys.modules['tqdm'] = None\n"
    code = f"""{hide}
from weft.build import progress
progress.EVERY = 0
seen = progress.Progress("compiling", total=4)
for number in range(4):
    seen.feed("cc -c a.c -o a.o")
seen.close()
"""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True)
    text = os.read(ours, 100_000).decode()
    os.close(theirs)
    os.close(ours)
    assert ("%|" in text) == tqdm
    assert ("compiling: 4 of 4 files" in text) == (not tqdm)


DEB822 = """\
Types: deb
# a comment
URIs: http://deb.example.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

Types: deb-src
URIs: http://src.example.org/debian
Suites: bookworm
Components: main
"""


@pytest.fixture
def etc(tmp_path, monkeypatch):
    monkeypatch.setattr(apt, "LISTS", tmp_path)
    monkeypatch.setattr(apt, "LIST", tmp_path / "sources")
    return tmp_path


def test_package_sources_are_read_in_both_formats(etc):
    (etc / "debian.sources").write_text(DEB822)
    (etc / "sources").write_text(
        "# deb http://no.example.org sid main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://one.example.org/debian sid main contrib\n"
    )
    text = apt.sources(None)
    assert text.count("Types: deb-src\n") == 2
    assert "Suites: bookworm bookworm-updates\n" in text
    assert "Signed-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n" in text
    assert "URIs: http://one.example.org/debian\nSuites: sid\nComponents: main contrib\n" in text
    assert "Signed-By: /k.gpg\n" in text
    assert "src.example.org" not in text and "no.example.org" not in text


def test_another_release_is_asked_for_at_the_same_archive(etc):
    (etc / "debian.sources").write_text(DEB822)
    text = apt.sources("trixie")
    assert text.count("Types:") == 1 and "Suites: trixie\n" in text
    assert "http://deb.example.org/debian" in text


def test_a_system_without_package_sources_is_refused(etc):
    with pytest.raises(Refused, match="--source"):
        apt.sources(None)


def test_the_options_are_those_of_the_package():
    assert openblas.options({"USE_THREAD": "0"})["USE_OPENMP"] == "0"
    assert openblas.options({})["USE_OPENMP"] == "1"
    assert pytorch.options({"USE_MKLDNN": "1"})["USE_MKLDNN"] == "1"
    assert pytorch.options({})["BLAS"] == "OpenBLAS"


def test_options_are_names_with_values():
    assert recipe.pairs(["A=1", "B=x=y"]) == {"A": "1", "B": "x=y"}
    for text in ("A", "=1", "1A=2", "A B=1", ""):
        with pytest.raises(Refused, match="NAME=VALUE"):
            recipe.pairs([text])
