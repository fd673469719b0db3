# SPDX-License-Identifier: Apache-2.0
"""`weft bench collectives`: all collectives against the MPI libraries and gloo."""
