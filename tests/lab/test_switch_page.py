# SPDX-License-Identifier: Apache-2.0
"""The page of weft-switch, in a browser: it needs nothing from elsewhere and says no error."""

import pathlib

import browser

PAGE = pathlib.Path(__file__).parents[2] / "tools" / "weft-switch" / "page.html"


def test_the_page_stands_alone():
    page = browser.load(PAGE)
    assert page.outside == []
    assert page.count("h1") == 1


def test_the_page_says_when_there_is_no_switch():
    """Opened from a file it has nobody to ask."""
    page = browser.load(PAGE)
    assert '<p id="lost">' in page.dom  # no longer hidden
