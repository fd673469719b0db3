# SPDX-License-Identifier: Apache-2.0
"""`python -m weft` is the command `weft`."""

import sys

from weft.cli import main

sys.exit(main())
