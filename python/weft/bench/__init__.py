# SPDX-License-Identifier: Apache-2.0
"""The benchmark programs behind `weft bench`.

Each measures a claim against the peers found on the machine, in one run, and has a folder: `run`
says what is measured, the table `SYSTEMS` who takes part, `rank` measures in its ranks, `marks` and
`report` tell, and `benchmark` is its row in `table`. Nothing outside the folder but `table` knows
its name, its operations or its systems.

What they share is here, in reading order: `build` compiles drivers, `systems` says what a system is
and finds what it needs, `job` starts ranks and talks to them, `runner` has the rounds (`in_turn`:
those that check a case in its first turn), `results` and `marks` turn blocks into figures,
`report`, `plots` and `htmlpage` show them, over the axis and as the values of a `view`, and
`contest` says who is ahead where. `dense` is
what the benchmarks of dense arithmetic share, `peers` the table of what else is installed.
"""
