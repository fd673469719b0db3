# SPDX-License-Identifier: Apache-2.0
"""`weft bench mpi`: communication with gradients, against mpi4py and gloo."""
