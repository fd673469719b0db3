# SPDX-License-Identifier: Apache-2.0
"""Look at a page as a person's browser does, without a screen."""

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_CONSOLE = re.compile(r":CONSOLE[:(]\S*\]\s*(.*)")
_OUTSIDE = re.compile(r"""(?:src|href)\s*=\s*["']?(https?:[^"'\s>]+)""")


@dataclass(frozen=True)
class Page:
    """A page after its scripts have run."""

    dom: str
    console: list[str]  # what it said there: errors, as our pages say nothing
    outside: list[str]  # what it wants from elsewhere

    def count(self, tag):
        """How many elements of this name the page has."""
        return len(re.findall(rf"<{tag}[\s>]", self.dom))


def load(address, *options):
    """Open an address in Chromium; the test is skipped where there is none."""
    browser = next(filter(None, map(shutil.which, _NAMES)), None)
    if browser is None:
        pytest.skip("there is no Chromium to look at the page with")
    with tempfile.TemporaryDirectory(prefix="weft-browser-") as home:
        command = [browser, "--headless=new", "--disable-gpu", f"--user-data-dir={home}"]
        command += ["--no-sandbox"] if os.geteuid() == 0 else []
        nowhere = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        command += [nowhere, "--window-size=1280,1000", "--enable-logging=stderr", "--dump-dom"]
        done = subprocess.run(
            [*command, *options, address],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=180,
            check=True,
            env={**os.environ, "HOME": home},
        )
    return Page(done.stdout, _CONSOLE.findall(done.stderr), _OUTSIDE.findall(done.stdout))


def check(path, fragment=""):
    """The page in a file, which must load without errors and want nothing from elsewhere."""
    return _good(load(path.resolve().as_uri() + (f"#{fragment}" if fragment else "")))


def check_live(address, seconds):
    """A page that a server changes, likewise, after its own clock has gone on for so long."""
    return _good(load(address, f"--virtual-time-budget={round(1000 * seconds)}"))


def _good(page):
    assert page.console == []
    assert page.outside == []
    return page
