# SPDX-License-Identifier: Apache-2.0
"""The benchmark programs behind `weft bench`.

Each measures a claim against the peers found on the machine, in one run. In reading order:
`operations` says what is measured and `systems` who takes part, `build` compiles the drivers, `job`
starts them and talks to them, `collectives` runs the rounds, `results` and `marks` turn blocks into
figures, `report`, `plots` and `htmlpage` show them.

`weft bench torch` has the same parts under names with `torch_`: `torch_run` says what and who,
`torch_rank` is a rank, `torch_models` what it trains and asks, `torch_marks` and `torch_report` the
figures. `in_turn` has what its rounds and those of `weft bench mpi` share.

`weft bench gather` compares gathers of rows: `gather` says what and who, `gather_rank` measures,
through the C calls of `gather_calls`; `gather_marks` and `gather_report` tell, and `gather_gpu` is
the part for GPUs: its cases, optimizers, timing and marks are in files of their own.
"""
