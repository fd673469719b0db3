#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make .venv in the project's root and put what the project uses into it.

The python that runs this file becomes the environment's. If it already has a
torch that is new enough, its packages are made visible in .venv instead of
being installed again. Without a network it goes on with what is there and says
what is missing.
"""

import importlib.metadata
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
TORCH_OLDEST = (2, 11)
TORCH_WANTED = "torch==2.13.0"
# Beside the system's UCX, to test hosts with different ones. Not among the packages of .venv,
# where libweft_ucx.so would prefer it everywhere.
OTHER_UCX = "libucx-cu12==1.22.*"
OTHER_UCX_FOLDER = VENV / "ucx"
OTHER_UCX_LIBRARY = OTHER_UCX_FOLDER / "libucx" / "lib" / "libucp.so.0"


def say(text):
    print(f"setup: {text}", flush=True)


def has_torch():
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return False
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2]) >= TORCH_OLDEST


def make_venv():
    """Create .venv, with pip where Python brings one."""
    if PYTHON.exists():
        return
    say(f"making .venv with Python {sys.version.split()[0]}")
    command = [sys.executable, "-m", "venv", str(VENV)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        subprocess.run([*command, "--clear", "--without-pip"], check=True)
    if has_torch():
        show_packages_of_this_python()


def show_packages_of_this_python():
    """Let .venv see what this python has installed.

    --system-site-packages would show those of the base installation only, and
    not those of a virtual environment that this python belongs to.
    """
    folders = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    lines = [f"import site; site.addsitedir({folder!r})\n" for folder in folders]
    query = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([PYTHON, "-c", query], capture_output=True, text=True, check=True)
    pathlib.Path(site.stdout.strip(), "outer_packages.pth").write_text("".join(lines))
    say("using the torch that is installed")


def missing(requirements):
    """Those of `requirements` that .venv does not have."""
    query = (
        "import importlib.metadata as m, sys\n"
        "print(*{(d.metadata['Name'] or '').lower().replace('_', '-')"
        " for d in m.distributions()})"
    )
    found = subprocess.run([PYTHON, "-c", query], capture_output=True, text=True, check=True)
    names = set(found.stdout.split())
    return [r for r in requirements if re.split(r"[<>=!~ \[]", r)[0].lower() not in names]


class Pip:
    """Installs packages until it turns out that there is no way to get any."""

    def __init__(self):
        probe = subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True, check=False)
        self._works = probe.returncode == 0
        self._proven = False
        if not self._works:
            say("there is no pip here")

    def install(self, *requirements, how=()):
        """Install together, with these options of pip; return whether that went well."""
        if not requirements or not self._works:
            return not requirements
        say(f"installing {' '.join(requirements)}")
        options = ["--quiet", "--disable-pip-version-check", "--retries=1", "--timeout=20", *how]
        command = [PYTHON, "-m", "pip", "install", *options, *requirements]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            self._proven = True
            return True
        lines = result.stderr.strip().splitlines() or ["pip said nothing"]
        say(f"that did not work: {lines[-1]}")
        # Before the first success the likely reason is that there is no
        # network, and trying the next one would only take more time.
        self._works = self._proven
        return False


def main():
    make_venv()
    with open(ROOT / "pyproject.toml", "rb") as file:
        groups = tomllib.load(file)["project"]["optional-dependencies"]
    pip = Pip()
    pip.install(*missing(groups["dev"]))
    pip.install(*missing([TORCH_WANTED]))
    for requirement in missing(groups["dev-extra"]):
        pip.install(requirement)
    if not OTHER_UCX_LIBRARY.exists():
        pip.install(OTHER_UCX, how=["--no-deps", "--upgrade", f"--target={OTHER_UCX_FOLDER}"])
    left = missing([*groups["dev"], TORCH_WANTED, *groups["dev-extra"]])
    if not OTHER_UCX_LIBRARY.exists():
        left.append(OTHER_UCX)
    if left:
        say(f"not in .venv, so what uses them is skipped: {' '.join(left)}")


if __name__ == "__main__":
    main()
