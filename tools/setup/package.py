#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Install the Python package weft into the environment that runs this file.

scikit-build-core does it where it is installed. Elsewhere CMake installs the
same files, and this script adds the metadata and the command `weft`.
"""

import contextlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "package"
SITE = pathlib.Path(sysconfig.get_path("purelib"))


def run(*command):
    result = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if result.returncode != 0:
        sys.exit(f"{result.stdout}\nsetup: failed: {' '.join(map(str, command))}")


def with_pip():
    options = ["--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps"]
    run(sys.executable, "-m", "pip", "install", *options, ".")


@contextlib.contextmanager
def shims_kept():
    """Keep the shims over an installation: they are good while their sources are the same."""
    folder = SITE / "weft" / "torch"
    with tempfile.TemporaryDirectory() as aside:
        for shim in folder.glob("_shim_*.so"):
            shutil.copy2(shim, aside)
        yield
        for shim in pathlib.Path(aside).iterdir():
            if folder.is_dir() and not (folder / shim.name).exists():
                shutil.copy2(shim, folder)


def with_cmake():
    # Not shared with scikit-build-core, which configures differently.
    build = BUILD.with_name("package-cmake")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    settings = ["-DWEFT_PYTHON=ON", "-DWEFT_TESTS=OFF", "-DWEFT_BENCH=OFF"]
    settings += [f"-DPython_EXECUTABLE={sys.executable}"]
    run("cmake", "-S", ROOT, "-B", build, *generator, *settings)
    run("cmake", "--build", build, "--parallel", str(os.cpu_count() or 1))
    shutil.rmtree(SITE / "weft", ignore_errors=True)
    run("cmake", "--install", build, "--strip", "--component", "python", "--prefix", SITE)
    write_metadata()


def write_metadata():
    """What an installer would note down: name, version, the command, the files."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    scripts = project["scripts"]
    header = (ROOT / "include" / "weft" / "api.h").read_text()
    version = ".".join(re.findall(r"#define WEFT_VERSION_\w+ (\d+)", header))
    for old in SITE.glob("weft-*.dist-info"):
        shutil.rmtree(old)
    info = SITE / f"weft-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: weft\nVersion: {version}\n")
    groups = {"console_scripts": scripts, **project.get("entry-points", {})}
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    commands = [write_command(name, *target.split(":")) for name, target in scripts.items()]
    files = [*(SITE / "weft").rglob("*"), *info.iterdir(), info / "RECORD", *commands]
    lines = (f"{os.path.relpath(path, SITE)},,\n" for path in files if not path.is_dir())
    (info / "RECORD").write_text("".join(lines))


def write_command(name, module, function):
    script = pathlib.Path(sysconfig.get_path("scripts"), name)
    script.write_text(
        f"#!{sys.executable}\nimport sys\n\nfrom {module} import {function}\n\n"
        f"sys.exit({function}())\n"
    )
    script.chmod(0o755)
    return script


def main():
    if all(importlib.util.find_spec(name) for name in ("scikit_build_core", "pip")):
        with shims_kept():
            with_pip()
    else:
        print("setup: scikit-build-core is not here; CMake installs the package itself")
        with shims_kept():
            with_cmake()


if __name__ == "__main__":
    main()
