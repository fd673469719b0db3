# SPDX-License-Identifier: Apache-2.0
"""For all tests.

A test whose ranks are on several hosts, or on pretended ones, has a property `over` in reports:
what its ranks talk over ("ucx", "mpi", or "nodes": shared memory between nodes). Its parameter
`transport` or `mpi` says so, or else its marker; with WT_HOSTS all ranks of all tests are there.

    pytestmark = pytest.mark.over("ucx")

tools/setup/suites.py counts tests by it.
"""

import gpu
import on_hosts
import pytest

gpu.hide()

MPIS = ("openmpi", "mpich")


def pytest_configure(config):
    config.addinivalue_line("markers", "over(transport): what leads between hosts in this test")


def everywhere():
    """What leads between the hosts that all ranks of these tests are spread over."""
    if on_hosts.HOSTS == 1:
        return None
    return "nodes" if on_hosts.PRETENDED else "mpi" if on_hosts.MPI else "ucx"


def over(item):
    given = item.callspec.params if hasattr(item, "callspec") else {}
    if given.get("mpi") in MPIS:
        return "mpi"
    marker = item.get_closest_marker("over")
    return given.get("transport", marker.args[0] if marker else everywhere())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if (transport := over(item)) is not None:
            item.user_properties.append(("over", transport))
