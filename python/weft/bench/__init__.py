# SPDX-License-Identifier: Apache-2.0
"""The benchmark programs behind `weft bench`.

Each measures a claim against the peers found on the machine, in one run. In reading order:
`operations` says what is measured and `systems` who takes part, `build` compiles the drivers, `job`
starts them and talks to them, `collectives` runs the rounds, `results` and `marks` turn blocks into
figures, `report`, `plots` and `htmlpage` show them.
"""
