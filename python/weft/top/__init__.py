# SPDX-License-Identifier: Apache-2.0
"""A running job seen from outside: find it (find), look at it (sample), print it (page, screen).

Nothing here runs in the job or writes to it. Its board is memory that a process of the same user
may map for reading; docs/design/0018-top.md says why it is done this way.
"""


class Refused(Exception):
    """There is no such job, or it is none that this user may look at."""
