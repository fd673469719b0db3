# SPDX-License-Identifier: Apache-2.0
"""Installing by a manifest: an error or a crash at any moment, and manifests that lie."""

import contextlib
import errno
import json
import os
import pathlib
import random
import shutil

import pytest
import small_trees
from weft.build import Failed, Refused, install, installed, manifest, stage

CALLS = ("replace", "symlink", "rename", "mkdir", "unlink", "rmdir")


@pytest.fixture
def box(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return small_trees.Box(tmp_path)


def staged(folder, files):
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("-> "):
            target.symlink_to(content[3:])
        else:
            target.write_text(content)
    return folder


def fill(box, files, version, force=False):
    """Install these files as one version."""
    folder = staged(box.root / "stage", files)
    put(box, folder, version, force)
    shutil.rmtree(folder)


def put(box, folder, version, force=False):
    new = manifest.Manifest("openblas", version, "installing", stage.entries(folder))
    with install.locked(box.env):
        install.repair(box.env, "openblas")
        install.install(box.env, folder, new, force)


FIRST = {"lib/a.so.1": "first", "lib/a.so": "-> a.so.1", "include/deep/a.h": "h", "bin/tool": "t"}
SECOND = {"lib/a.so.2": "second", "lib/a.so": "-> a.so.2", "include/a.h": "new", "etc/x/y": "z"}


def counted(monkeypatch, at, end):
    """From now on the call number `at` to the file system ends by `end()`."""
    seen = [0]

    def patched(real):
        def call(*args, **kwargs):
            seen[0] += 1
            if seen[0] == at:
                end()
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, patched(getattr(os, name)))
    return seen


def no_space():
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("before", ["nothing", "a file of others", "the version before"])
def test_an_error_at_any_moment_leaves_what_was_there(box, before):
    folder = staged(box.root / "second", SECOND)
    for at in range(1, 200):
        listing = earlier(box, before)
        with pytest.MonkeyPatch.context() as patch:
            seen = counted(patch, at, no_space)
            with contextlib.suppress(Failed, OSError):
                put(box, folder, "2", force=True)
        if seen[0] < at:
            break
        install.repair(box.env, "openblas")
        check_one(box, before, listing)
    assert at > 10


@pytest.mark.parametrize("before", ["nothing", "a file of others", "the version before"])
def test_a_crash_at_any_moment_is_repaired_at_the_next_start(box, before):
    folder = staged(box.root / "second", SECOND)
    for at in range(1, 200):
        listing = earlier(box, before)
        child = os.fork()
        if child == 0:
            counted(pytest.MonkeyPatch(), at, lambda: os._exit(9))
            put(box, folder, "2", force=True)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            break
        install.repair(box.env, "openblas")
        check_one(box, before, listing)
    assert at > 10


@pytest.mark.parametrize("at", range(1, 30))
def test_a_crash_while_removing_is_finished_at_the_next_start(box, at):
    (box.env / "include").mkdir()
    (box.env / "include" / "a.h").write_text("theirs")
    listing = box.listing()
    fill(box, SECOND, "2", force=True)
    child = os.fork()
    if child == 0:
        counted(pytest.MonkeyPatch(), at, lambda: os._exit(9))
        install.uninstall(box.env, "openblas")
        os._exit(0)
    os.waitpid(child, 0)
    install.repair(box.env, "openblas")
    if manifest.load(box.env, "openblas") is not None:  # killed before it began
        install.uninstall(box.env, "openblas")
    assert box.listing() == listing


def earlier(box, before):
    """An environment as it is before; what is in it."""
    shutil.rmtree(box.env)
    (box.env / "lib").mkdir(parents=True)
    if before == "a file of others":
        (box.env / "include").mkdir()
        (box.env / "include" / "a.h").write_text("theirs")
    if before == "the version before":
        fill(box, FIRST, "1")
    return box.listing()


def version(box):
    found = manifest.load(box.env, "openblas")
    assert found.state == "installed"
    return found.version


def check_one(box, before, listing):
    """All is as it was, or the second version is there, whole, and nothing else."""
    if manifest.load(box.env, "openblas") is None or version(box) == "1":
        assert box.listing() == listing
        return
    assert version(box) == "2"
    for path, content in SECOND.items():
        expected = os.readlink if content.startswith("-> ") else pathlib.Path.read_text
        assert expected(box.env / path) == content.removeprefix("-> ")
    install.uninstall(box.env, "openblas")
    assert ("include/a.h" in box.listing()) == (before == "a file of others")
    assert "bin/tool" not in box.listing()


def test_only_one_installs_into_an_environment_at_a_time(box):
    with (
        install.locked(box.env),
        pytest.raises(Refused, match="another weft build installs"),
        install.locked(box.env),
    ):
        pass


def test_compiled_modules_go_with_their_sources(box):
    before = box.listing()
    fill(box, {"lib/python3/torch/__init__.py": "x = 1\n"}, "1")
    cache = box.env / "lib/python3/torch/__pycache__"
    cache.mkdir()
    (cache / "__init__.cpython-311.pyc").write_bytes(b"x")
    install.uninstall(box.env, "openblas")
    assert box.listing() == before


def test_environments_are_listed_while_something_is_installed_there(box):
    assert installed.prefixes() == []
    fill(box, FIRST, "1")
    assert installed.prefixes() == [box.env]
    install.uninstall(box.env, "openblas")
    assert installed.prefixes() == []


def edited(box, change):
    """Install, change the manifest's content, and give what uninstall says."""
    fill(box, FIRST, "1")
    file = manifest.path_of(box.env, "openblas")
    data = json.loads(file.read_text())
    data = change(data) or data
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    listing = box.listing()
    with pytest.raises(Refused) as refused:
        install.uninstall(box.env, "openblas")
    assert box.listing() == listing
    return str(refused.value)


@pytest.mark.parametrize("where", ["entries", "folders", "aside"])
@pytest.mark.parametrize(
    "path", ["../victim", "/victim", "lib/../../victim", "", ".", "a//b", "\0"]
)
def test_a_path_out_of_the_environment_is_refused(box, where, path):
    victim = box.root / "victim"
    victim.write_text("precious")
    path = path.replace("/victim", str(victim)) if path == "/victim" else path

    def change(data):
        digest = stage.digest(victim)
        entry = {"path": path, "sha256": digest, "mode": 0o644, "target": None}
        data[where].append(entry if where == "entries" else path)

    assert "is not a manifest of weft build" in edited(box, change)
    assert victim.read_text() == "precious"


def test_a_folder_that_became_a_link_elsewhere_is_not_followed(box):
    fill(box, FIRST, "1")
    elsewhere = box.root / "elsewhere"
    shutil.move(box.env / "include", elsewhere)
    (box.env / "include").symlink_to(elsewhere)
    with pytest.raises(Refused, match="out of"):
        install.uninstall(box.env, "openblas")
    assert (elsewhere / "deep" / "a.h").read_text() == "h"
    assert (box.env / "lib" / "a.so.1").exists()


def test_nothing_is_installed_through_a_link_out_of_the_environment(box):
    elsewhere = box.root / "elsewhere"
    elsewhere.mkdir()
    (box.env / "include").symlink_to(elsewhere)
    with pytest.raises(Refused, match="out of"):
        fill(box, FIRST, "1")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '"x"', "1e999", '{"weft": 2}', '{"weft": 1}', "[" * 100_000]
)
def test_a_manifest_that_is_none_is_refused(box, text):
    assert "nothing was touched" in edited(box, lambda data: text or " ")


def test_a_random_change_of_a_manifest_removes_nothing_outside(box):
    """Whatever it says then: what is not in the environment stays."""
    choose = random.Random(int(os.environ.get("WT_SEED", "1")))
    victim = box.root / "victim"
    victim.mkdir()
    (victim / "file").write_text("precious")
    outside = [None, 1, -1, [], {}, "", "..", "../victim/file", str(victim / "file"), "x" * 300]
    for _ in range(200):
        fill(box, FIRST, "1")
        file = manifest.path_of(box.env, "openblas")
        data = json.loads(file.read_text())
        places = [(data, key) for key in data]
        places += [(entry, key) for entry in data["entries"] for key in entry]
        places += [(data["folders"], 0), (data["entries"], 0)]
        owner, key = choose.choice(places)
        owner[key] = choose.choice(outside)
        file.write_text(json.dumps(data))
        try:
            install.repair(box.env, "openblas")
            install.uninstall(box.env, "openblas", force=choose.random() < 0.5)
        except Refused:
            pass
        assert (victim / "file").read_text() == "precious"
        shutil.rmtree(box.env)
        box.env.mkdir()


def test_notes_on_steps_that_make_no_sense_count_for_nothing(box, monkeypatch):
    from weft.build import work

    monkeypatch.setenv("XDG_CACHE_HOME", str(box.root / "cache"))
    place = work.Work("openblas", "x")
    place.folder.mkdir(parents=True)
    for text in ("", "{", "{}", "[1]", "null", '"copy"', "[" * 100_000, "\xff"):
        (place.folder / work.CHAIN).write_text(text, encoding="latin-1")
        assert place.done() == [], text
    place.note("copy")
    assert place.done() == ["copy"]
