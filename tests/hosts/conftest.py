# SPDX-License-Identifier: Apache-2.0
"""Tests on several hosts, which are namespaces of this machine (weft.bench.bed).

    @pytest.mark.bed(hosts=4, rate="1gbit")
    def test_...(bed): ...

Where there can be none, for want of root or of the kernel's help, each is skipped and says why.
"""

import pathlib

import pytest
from weft.bench.bed import Bed, missing

HERE = pathlib.Path(__file__).parent


def pytest_configure(config):
    config.addinivalue_line("markers", "bed(hosts, rate, delay, mtu): what the fixture `bed` makes")


def _wanted(item):
    marker = item.get_closest_marker("bed")
    return marker.kwargs if marker is not None else {}


def pytest_collection_modifyitems(items):
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        if why := missing("delay" in _wanted(item)):
            item.add_marker(pytest.mark.skip(reason=why))
        if item.get_closest_marker("over") is None:
            item.add_marker(pytest.mark.over("bed"))  # no transport of weft's


@pytest.fixture
def bed(request):
    """Hosts for one test; two unless it is marked otherwise."""
    with Bed(**_wanted(request.node)) as made:
        yield made
