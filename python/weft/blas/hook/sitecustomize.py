# SPDX-License-Identifier: Apache-2.0
"""What Python runs at its start when `weft blas run` put this folder on PYTHONPATH.

Nothing is imported for a program that does without PyTorch: the work is done right after
`import torch`. A sitecustomize of the user's is run as if this one were not here.
"""

import importlib
import importlib.util
import os
import sys
import typing

HERE = os.path.dirname(os.path.abspath(__file__))


class _Torch:
    """A finder that gives `torch` a loader with one more step, once."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(cls)
        spec = importlib.util.find_spec(name)
        loader: typing.Any = spec and spec.loader
        if loader is not None:
            load = loader.exec_module

            def exec_module(module):
                load(module)
                _loaded(module)

            loader.exec_module = exec_module
        return spec


def _loaded(torch):
    if os.environ.get("WEFTBLAS_ONEDNN") == "0":
        torch.backends.mkldnn.enabled = False
    if "WEFTBLAS_KERNELS" in os.environ:
        # By its file, as weft need not be installed for the program's Python.
        file = os.path.join(os.path.dirname(HERE), "kernels.py")
        spec: typing.Any = importlib.util.spec_from_file_location("weft_blas_kernels", file)
        kernels = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = kernels
        spec.loader.exec_module(kernels)
        kernels.install(os.environ["WEFTBLAS_KERNELS"])


def _run_the_next():
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != HERE]
    this = sys.modules.pop(__name__)
    try:
        importlib.import_module(__name__)
    except ImportError:
        sys.modules[__name__] = this


sys.meta_path.insert(0, _Torch)
_run_the_next()
