# SPDX-License-Identifier: Apache-2.0
"""Which libweft the package uses."""

import os
import pathlib
import shutil
import subprocess
import sys

import weft

MAPPED = """
import weft
weft.init("alone")
print({line.split()[-1] for line in open("/proc/self/maps") if "libweft.so" in line})
"""


def test_the_package_uses_its_own_library_whatever_the_loader_is_told(tmp_path):
    own = pathlib.Path(weft.__file__).with_name("libweft.so.0")
    shutil.copy(own, tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", MAPPED],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == str({str(own)})
