# SPDX-License-Identifier: Apache-2.0
"""`weft build` on source trees that are built in a moment: what it leaves, whatever happens."""

import ctypes
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys

import pytest
import small_trees
import waiting

pytestmark = pytest.mark.skipif(
    not (shutil.which("make") and shutil.which("cc")), reason="no make or no C compiler"
)


@pytest.fixture
def box(tmp_path):
    return small_trees.Box(tmp_path)


@pytest.fixture
def tree(tmp_path):
    return small_trees.openblas(tmp_path / "OpenBLAS")


def test_what_was_built_is_installed_and_uninstall_restores_the_list_of_files(box, tree):
    before = box.listing()
    done = box.run("openblas", "--source", tree)
    assert done.returncode == 0, done.stderr
    assert ctypes.CDLL(box.env / "lib" / "libopenblas.so").sgemm_
    assert os.readlink(box.env / "lib" / "libopenblas.so.0") == "libopenblas_small-r1.2.so"
    gone = box.run("uninstall", "openblas")
    assert gone.returncode == 0, gone.stderr
    assert box.listing() == before
    assert not list((box.root / "cache" / "weft" / "build").iterdir())


def test_the_source_tree_is_only_read(box, tree):
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*")}
    assert box.run("openblas", "--source", tree).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*")} == before


def test_json_says_what_was_done(box, tree):
    done = box.run("openblas", "--source", tree, "--json")
    read = json.loads(done.stdout)
    assert (read["package"], read["version"], read["files"]) == ("openblas", "1.2", 5)
    assert pathlib.Path(read["log"]).is_file()
    gone = json.loads(box.run("uninstall", "openblas", "--json").stdout)
    assert (gone["files"], gone["kept"]) == (5, [])


def test_a_dry_run_shows_commands_that_do_it_and_writes_nothing(box, tree):
    before = box.listing()
    done = box.run("openblas", "--source", tree, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert box.listing() == before and not (box.root / "cache").exists()
    subprocess.run(["sh", "-ec", done.stdout], check=True, capture_output=True, env=box.variables)
    assert ctypes.CDLL(box.env / "lib" / "libopenblas.so").sgemm_
    lines = json.loads(box.run("openblas", "--source", tree, "--dry-run", "--json").stdout)
    assert any("make" in line for line in lines["commands"])


def test_the_second_time_nothing_is_compiled(box, tree):
    count = {"COUNT": box.root / "count"}
    assert box.run("openblas", "--source", tree, variables=count).returncode == 0
    again = box.run("openblas", "--source", tree, "--json", variables=count)
    assert json.loads(again.stdout)["steps"] == []
    assert len((box.root / "count").read_text().split()) == 3


def test_other_options_and_a_changed_source_start_anew(box, tree):
    count = {"COUNT": box.root / "count"}
    assert box.run("openblas", "--source", tree, variables=count).returncode == 0
    other = box.run("openblas", "--source", tree, "--option", "NUM_THREADS=2", variables=count)
    assert other.returncode == 0, other.stderr
    (tree / "three.c").write_text("void cblas_sgemm(void) {}\nint more;\n")
    changed = box.run("openblas", "--source", tree, variables=count)
    assert changed.returncode == 0, changed.stderr
    assert len((box.root / "count").read_text().split()) == 9
    assert ctypes.CDLL(box.env / "lib" / "libopenblas.so").more


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_build_goes_on_where_it_stopped(box, tree, number):
    slow, count = box.root / "slow", box.root / "count"
    slow.touch()
    before = box.listing()
    variables = {"SLOW": slow, "COUNT": count}
    child = box.start("openblas", "--source", tree, "--jobs", 1, variables=variables)
    waiting.until((box.root / "slow.there").exists, "make waits")
    child.send_signal(number)
    if number == signal.SIGKILL:  # the compiler lives on, and is waited for
        child.communicate(timeout=60)
        assert "at work" in small_trees.said(box.run("openblas", "--source", tree), 2)
        end_children(box.root)
    else:
        _, err = child.communicate(timeout=60)
        assert child.returncode == 128 + number
        assert "stopped; the same command goes on from here" in err
    assert box.listing() == before
    slow.unlink()
    done = box.run("openblas", "--source", tree, variables=variables)
    assert done.returncode == 0, done.stderr
    assert sorted(count.read_text().split()) == ["one.o", "three.o", "two.o"]


def end_children(folder):
    """End what still works below a folder."""

    def mine():
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(process / "cwd").startswith(str(folder)):
                    found.append(int(process.name))
            except OSError:
                continue
        return found

    for pid in mine():
        os.kill(pid, signal.SIGKILL)
    waiting.until(lambda: not mine(), "they end")


def test_two_builds_at_once_are_one_build_and_one_clear_line(box, tree):
    slow = box.root / "slow"
    slow.touch()
    first = box.start("openblas", "--source", tree, variables={"SLOW": slow})
    waiting.until((box.root / "slow.there").exists, "make waits")
    assert "another weft build is at work in" in small_trees.said(
        box.run("openblas", "--source", tree), 2
    )
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)


def test_a_failed_step_shows_the_end_of_its_log(box, tree):
    (tree / "two.c").write_text("this is not C\n")
    before = box.listing()
    done = box.run("openblas", "--source", tree)
    assert done.returncode == 1
    assert "compiling OpenBLAS failed (exit status 2); the log is" in done.stderr
    assert "two.c:1" in done.stderr and "Traceback" not in done.stderr
    assert box.listing() == before


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("openblas", "--source", "/nowhere"), "/nowhere is not a folder"),
        (("openblas", "--source", "/"), "is not a source tree of openblas"),
        (("pytorch", "--source", "TREE"), "is not a source tree of pytorch"),
        (("openblas", "--source", "TREE", "--option", "COLOUR=red"), "no option COLOUR"),
        (("openblas", "--source", "TREE", "--option", "INTERFACE64=1"), "ILP64"),
        (("openblas", "--source", "TREE", "--option", "TARGET"), "write NAME=VALUE"),
        (("openblas", "--source", "TREE", "--option", "TARGET=$(rm)"), "no such value"),
        (("openblas", "--source", "TREE", "--prefix", "/nowhere"), "/nowhere (--prefix) is not"),
        (("openblas", "--source", "TREE", "--prefix", "/usr"), "belongs to the system"),
        (("openblas", "--source", "TREE", "--prefix", "TREE"), "inside the source tree"),
        (("openblas", "--source", "TREE", "--release", "sid"), "two sources"),
        (("uninstall", "openblas"), "is not installed in"),
    ],
)
def test_bad_input_is_one_clear_line(box, tree, words, text):
    before = box.listing()
    line = small_trees.said(box.run(*(tree if word == "TREE" else word for word in words)), 2)
    assert text in line
    assert box.listing() == before and not (box.root / "cache").exists()


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        (("cc", "gcc"), "there is no make: apt-get install make"),
        (("make",), "there is no compiler (cc, gcc): apt-get install gcc"),
    ],
)
def test_a_missing_tool_is_named_with_its_package(box, tree, tools, text):
    only = box.root / "bin"
    only.mkdir()
    for tool in (*tools, "sh"):
        (only / tool).symlink_to(shutil.which(tool) or "/bin/false")
    done = box.run("openblas", "--source", tree, variables={"PATH": only})
    assert text in small_trees.said(done, 2)


def test_without_apt_the_source_tree_is_asked_for(box):
    done = box.run("openblas", variables={"PATH": box.root})
    assert "there is no apt-get here; or name a source tree" in small_trees.said(done, 2)


def test_without_a_fortran_compiler_it_says_what_is_left_out(box, tree):
    done = box.run("openblas", "--source", tree, "--dry-run", variables={"FC": "no-such-fortran"})
    assert "NOFORTRAN=1" in done.stdout and "no Fortran compiler" in done.stdout


def test_an_option_that_is_off_does_not_reach_make(box, tree):
    off = box.run("openblas", "--source", tree, "--dry-run", "--option", "NO_CBLAS=0")
    assert "NO_CBLAS" not in off.stdout
    on = box.run("openblas", "--source", tree, "--dry-run", "--option", "NO_CBLAS=1")
    assert "NO_CBLAS=1" in on.stdout


def test_the_active_environment_is_used_and_without_one_it_is_refused(box, tree):
    def dry(**variables):
        command = box.command("openblas", "--source", tree, "--dry-run")
        env = box.variables | variables
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    assert f"PREFIX={box.env}" in dry(VIRTUAL_ENV=str(box.env)).stdout
    assert f"PREFIX={box.env}" in dry(CONDA_PREFIX=str(box.env)).stdout
    if sys.prefix != sys.base_prefix:
        assert f"PREFIX={sys.prefix}" in dry().stdout
    assert "(VIRTUAL_ENV) is not a folder" in small_trees.said(dry(VIRTUAL_ENV="/nowhere"), 2)


def test_an_environment_that_cannot_be_written_is_refused(box, tree):
    folder = box.root / "closed"
    folder.mkdir(mode=0o555)
    if os.geteuid() == 0:  # whom modes do not stop
        mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", folder]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            pytest.skip("no read-only folder can be made here")
    try:
        done = box.run("openblas", "--source", tree, "--prefix", folder)
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", folder], check=True)
    assert "(--prefix) cannot be written" in small_trees.said(done, 2)


def test_a_full_disk_leaves_the_environment_as_it_was(box, tree):
    with open(tree / "big", "wb") as big:
        big.truncate(3_000_000)
    in_the_way = box.env / "lib" / "zz-big"
    in_the_way.touch()
    # All is built; then only the installation runs with little room.
    assert "zz-big" in small_trees.said(box.run("openblas", "--source", tree), 2)
    in_the_way.unlink()
    before = box.listing()

    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))

    done = box.run("openblas", "--source", tree, preexec_fn=little_room)
    line = small_trees.said(done, 1)
    assert "File too large; what was copied has been removed again" in line
    assert box.listing() == before
    assert box.run("openblas", "--source", tree).returncode == 0


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no small file system can be made here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_no_room_for_the_build_is_told_before_it_begins(box, tree, small_disk):
    done = box.run("openblas", "--source", tree, variables={"XDG_CACHE_HOME": small_disk})
    assert "no room for the build" in small_trees.said(done, 1)
    assert list(small_disk.iterdir()) == []


def test_an_environment_without_room_stays_as_it_was(box, tree, small_disk):
    with open(tree / "big", "wb") as big:
        big.write(os.urandom(5_000_000))
    done = box.run("openblas", "--source", tree, "--prefix", small_disk)
    assert "has room for" in small_trees.said(done, 1)
    assert list(small_disk.iterdir()) == []


@pytest.mark.parametrize("name", ["with space", "semi;colon", "dollar$"])
def test_a_path_that_make_cannot_read_is_refused(box, tree, name):
    folder = box.root / name
    folder.mkdir()
    done = box.run("openblas", "--source", tree, "--prefix", folder)
    assert "makefiles cannot do" in small_trees.said(done, 2)
    done = box.run("openblas", "--source", tree, variables={"XDG_CACHE_HOME": folder})
    assert "XDG_CACHE_HOME" in small_trees.said(done, 2)


def test_files_of_others_are_refused_and_with_force_come_back(box, tree):
    (box.env / "include").mkdir()
    (box.env / "include" / "cblas.h").write_text("somebody's")
    before = box.listing()
    line = small_trees.said(box.run("openblas", "--source", tree), 2)
    assert "include/cblas.h" in line and "--force" in line
    assert box.listing() == before
    forced = box.run("openblas", "--source", tree, "--force")
    assert forced.returncode == 0, forced.stderr
    assert (box.env / "include" / "cblas.h").read_text() != "somebody's"
    assert box.run("uninstall", "openblas").returncode == 0
    assert box.listing() == before


def test_a_changed_file_is_named_and_kept_and_with_force_removed(box, tree):
    before = box.listing()
    assert box.run("openblas", "--source", tree).returncode == 0
    (box.env / "include" / "cblas.h").write_text("edited")
    gone = box.run("uninstall", "openblas")
    assert "include/cblas.h was changed and is kept" in small_trees.said(gone, 1)
    assert set(box.listing()) - set(before) == {"include", "include/cblas.h"}
    shutil.rmtree(box.env / "include")
    assert box.run("openblas", "--source", tree).returncode == 0
    (box.env / "include" / "cblas.h").write_text("edited")
    assert box.run("uninstall", "openblas", "--force").returncode == 0
    assert box.listing() == before


def test_a_version_replaces_the_one_before_without_leftovers(box, tree):
    before = box.listing()
    assert box.run("openblas", "--source", tree).returncode == 0
    makefile = (tree / "Makefile").read_text()
    (tree / "Makefile").write_text(makefile.replace("small-r1.2", "small-r1.3"))
    assert box.run("openblas", "--source", tree).returncode == 0
    assert "lib/libopenblas_small-r1.2.so" not in box.listing()
    assert not [name for name in box.listing() if ".old" in name]
    assert box.run("uninstall", "openblas").returncode == 0
    assert box.listing() == before
