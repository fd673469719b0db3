# SPDX-License-Identifier: Apache-2.0
"""`weft bench hosts`: jobs on several hosts, which are namespaces of this machine.

`run` takes turns on networks with and without limits, `job` starts ranks there, `limit` asks iperf3
how much a cable carries, and `parts` measures what weft alone has: starting, and rows of other
hosts.
"""
