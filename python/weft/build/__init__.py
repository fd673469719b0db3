# SPDX-License-Identifier: Apache-2.0
"""Build OpenBLAS and PyTorch from source into an environment, and take them out again.

`recipe.py` says what a package is made with, `source.py` where its source comes from, `work.py`
keeps what a build has done so far, `run.py` runs its commands. `stage.py` lists what was built,
`install.py` puts that into the environment by a manifest (`manifest.py`), all of it or nothing.
"""

from __future__ import annotations


class Refused(Exception):
    """What was asked for cannot be done here; the text says why and what to do. Nothing changed."""


class Failed(Exception):
    """A step did not work; the text says which. The environment is as it was before."""
