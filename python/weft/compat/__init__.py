# SPDX-License-Identifier: Apache-2.0
"""Old names: the interfaces of libraries that weft stands in for, a module each.

The separate distribution in compat/ installs them under their first names.
"""
