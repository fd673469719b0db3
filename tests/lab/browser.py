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


def load(path, fragment=""):
    """Open a file in Chromium; the test is skipped where there is none."""
    browser = next(filter(None, map(shutil.which, _NAMES)), None)
    if browser is None:
        pytest.skip("there is no Chromium to look at the page with")
    with tempfile.TemporaryDirectory(prefix="weft-browser-") as home:
        command = [browser, "--headless=new", "--disable-gpu", f"--user-data-dir={home}"]
        command += ["--no-sandbox"] if os.geteuid() == 0 else []
        command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1280,1000"]
        command += ["--enable-logging=stderr", "--dump-dom"]
        address = path.resolve().as_uri() + (f"#{fragment}" if fragment else "")
        done = subprocess.run(
            [*command, address],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=180,
            check=True,
            env={**os.environ, "HOME": home},
        )
    return Page(done.stdout, _CONSOLE.findall(done.stderr), _OUTSIDE.findall(done.stdout))


def check(path, fragment=""):
    """The page, which must load without errors and want nothing from elsewhere."""
    page = load(path, fragment)
    assert page.console == []
    assert page.outside == []
    return page
