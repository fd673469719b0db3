# SPDX-License-Identifier: Apache-2.0
"""`weft bench conv2d`, as the command knows it."""

from ..dense.command import dense
from .cases import PLAN

BENCHMARK = dense(PLAN, "layer")
