# SPDX-License-Identifier: Apache-2.0
"""`weft bench store`: the parameter store, against flat arrays without locks and against itself."""
