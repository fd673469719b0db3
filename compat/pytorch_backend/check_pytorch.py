# SPDX-License-Identifier: Apache-2.0
"""Print the build configuration of the installed PyTorch. `weft doctor` says more: which BLAS it
really calls, found in the libraries that are loaded."""

import sys

try:
    import torch
except ImportError as error:
    sys.exit(f"check_pytorch.py: there is no PyTorch here ({error}); pip install torch")

print(f"PyTorch {torch.__version__} in {torch.__path__[0]}")
print(torch.__config__.show())
print(torch.__config__.parallel_info())
