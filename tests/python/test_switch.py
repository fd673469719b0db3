# SPDX-License-Identifier: Apache-2.0
"""The command weft-switch, as the package installs it."""

import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import urllib.request

import pytest
from weft._switch import PROGRAM

SOURCE = pathlib.Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from weft._switch import main; main()"]

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="weft-switch is not in the package")


def run(*arguments):
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_it_tells_its_version_and_its_options():
    assert re.fullmatch(r"weft-switch \d+\.\d+\.\d+\n", run("--version").stdout)
    for option in ("--key", "--port", "--http", "--inject"):
        assert option in run("--help").stdout


def test_the_manual_has_the_options_of_the_help():
    manual = (SOURCE / "tools" / "weft-switch" / "weft-switch.1").read_text().replace("\\-", "-")
    options = re.findall(r"^  (--[\w-]+)", run("--help").stdout, re.MULTILINE)
    assert len(options) > 10
    for option in options:
        assert re.search(rf"^\.B\w* {option}\b", manual, re.MULTILINE), option


def test_wrong_options_are_refused_by_name():
    result = run("--key", "x", "--shards", "99")
    assert result.returncode == 2
    assert "--shards cannot be '99'" in result.stderr
    assert run().returncode == 2


def test_a_key_is_made_once_and_for_its_owner_only(tmp_path):
    path = tmp_path / "key"
    assert run("key", str(path)).returncode == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = run("key", str(path))
    assert again.returncode == 1
    assert str(path) in again.stderr


def test_a_switch_without_a_good_key_says_so(tmp_path):
    path = tmp_path / "key"
    assert "open the key file" in run("--key", str(path)).stderr
    path.write_text("a key\n")
    path.chmod(0o600)
    assert "is no key of a switch" in run("--key", str(path)).stderr
    path.chmod(0o644)
    assert "must have mode 600" in run("--key", str(path)).stderr


def test_it_serves_its_page_and_stops_when_told(tmp_path):
    path = tmp_path / "key"
    run("key", str(path))
    arguments = ["--key", str(path), "--host", "127.0.0.1", "--port", "0", "--http", "127.0.0.1:0"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as switch:
        try:
            line = switch.stdout.readline()
            url = re.search(r"http://\S+", line).group()
            with urllib.request.urlopen(url, timeout=10) as page:
                assert b"weft-switch" in page.read()
            with urllib.request.urlopen(url + "metrics", timeout=10) as page:
                assert b"weft_switch_jobs 0" in page.read()
        finally:
            os.kill(switch.pid, signal.SIGTERM)
        assert switch.wait(timeout=10) == 0


SETUP = SOURCE / "compat" / "pytorch_plugin" / "setup.py"


def setup_says(*arguments, **variables):
    return subprocess.run(
        [sys.executable, SETUP, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_plugins_setup_answers_its_build_variables():
    plain = setup_says("install", "--dry-run")
    first, second, last = plain.stdout.splitlines()
    assert first.endswith(f"-m pip install {SETUP.parents[2]}")
    assert second.endswith(f"-m pip install --no-deps {SETUP.parents[1]}")
    assert last.endswith("-m weft.torch.build")
    assert plain.stderr == ""
    told = setup_says(
        *("install", "--dry-run", "--prefix", "/p"),
        **{"DEBUG": "1", "BUILDDIR": "/b", "DPDK": "1", "MLX5": "1", "MLX4": "0", "RDMA": "1"},
        **{"SWITCHML_HOME": "/s", "GRPC_HOME": "/g", "DPDK_HOME": "/d"},
    )
    options = "--config-settings=cmake.build-type=Debug --config-settings=build-dir=/b"
    assert f"--prefix /p {options} {SETUP.parents[2]}" in told.stdout
    named = re.findall(r"setup.py: (\w+) is ignored: ", told.stderr)
    assert named == ["DPDK", "MLX5", "RDMA", "SWITCHML_HOME", "GRPC_HOME", "DPDK_HOME"]
    assert setup_says("bdist").returncode == 2
