# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine: each in namespaces of its own, on a network of their own.

`Bed` makes them, `missing` says what this machine lacks for it. `python -m weft.bench.bed` runs a
command on them. Benchmarks and tests use this one copy, so it knows nothing of either.

In reading order: `bed` starts hosts and commands, `network` connects them, `host` is the first
process of each, `rsh` asks it to run a command, as launchers do.
"""

from .bed import MOST_HOSTS, Bed, Unavailable, missing

__all__ = ["MOST_HOSTS", "SHARED_CORES", "Bed", "Unavailable", "missing"]

# Hosts made of one machine do not know that they share its cores: weft is told so, where they do,
# and a rank that waits lets others run soon.
SHARED_CORES = {"WEFT_SPIN": "0us", "WEFT_YIELD": "2ms"}
