# SPDX-License-Identifier: Apache-2.0
"""`weft bench switch`: aggregation in the network, on hosts that are namespaces of this machine.

`run` says who takes part on which network, `daemon` starts switches there and reads their counters,
`capacity` finds out what the machine's cores can move, and how fast links may be for that.
"""
