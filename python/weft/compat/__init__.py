# SPDX-License-Identifier: Apache-2.0
"""Old names: the interfaces of libraries that weft stands in for.

`weft.compat.wholememory` has that of WholeMemory's PyTorch module. The separate
distribution in compat/ installs it under its first name.
"""
