#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The collectives benchmark, from a source tree: the same as `weft bench collectives`."""

import sys

from weft.cli.bench import main

if __name__ == "__main__":
    sys.exit(main(["collectives", *sys.argv[1:]]))
