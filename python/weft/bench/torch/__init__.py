# SPDX-License-Identifier: Apache-2.0
"""`weft bench torch`: weft against gloo through torch.distributed.

`models` has what the ranks train and ask.
"""
