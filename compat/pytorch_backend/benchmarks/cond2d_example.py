# SPDX-License-Identifier: Apache-2.0
"""The other spelling of conv2d_example.py."""

from conv2d_example import main

if __name__ == "__main__":
    main()
