# SPDX-License-Identifier: Apache-2.0
"""These tests need torch with torch.distributed and gloo, and the shim."""

import pytest


def missing():
    """What is not here, in words; None if all is."""
    try:
        import torch.distributed as dist
    except ModuleNotFoundError:
        return "torch is not installed"
    from weft.torch import build

    if not dist.is_available() or not dist.is_gloo_available():
        return "this torch has no gloo"
    return None if build.find() else f"the shim is not built: {build.COMMAND}"


_missing = missing()
collect_ignore_glob = ["test_*.py"] if _missing else []


def pytest_report_header():
    """Say why the tests of this folder are left out, if they are."""
    return f"tests/torch left out: {_missing}" if _missing else None


@pytest.fixture
def switch(request, tmp_path):
    """A weft-switch, with the options that a test is parametrized with."""
    import switches

    one = switches.Switch(
        switches.make_key(tmp_path / "key"), options=getattr(request, "param", ())
    )
    yield one
    one.kill()
