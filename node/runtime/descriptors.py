"""File descriptors of this process: the limit is raised at start, and shared out.

A node needs descriptors for its attempts, for Raft and the heartbeats, for its files and for what it asks other
members. Clients of the API get a part of what is left over, so that no number of connections can take the rest away.
"""

import resource
from typing import Final

SOFT_MAX: Final = 16_384
"""The soft limit is raised to the hard one, and to this at most: some programs close every descriptor up to it."""

OWN: Final = 192
"""Descriptors that a node needs for itself: Raft, heartbeats, SQLite, logs, connections to other members."""

FOR_RUN: Final = 4
"""Descriptors that one attempt needs: its channel, and three more while it is handed to the nursery."""

CLIENTS_MIN: Final = 16
CLIENTS_MAX: Final = 4_096

FOR_CLIENT: Final = 2
"""A client takes its connection; one in four, at most, also a file or a connection to another member."""


def raise_soft_limit(most: int = SOFT_MAX) -> int:
    """Raise this process's soft limit on descriptors to its hard one, `most` at most. Returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return SOFT_MAX if soft == resource.RLIM_INFINITY else soft


def streams_for(clients: int) -> int:
    """How many answers may be streamed at once to so many clients.

    >>> streams_for(4_096), streams_for(16)
    (256, 4)
    """
    return min(256, clients // 4)


def clients_for(descriptors: int, max_runs: int) -> int:
    """How many clients may be connected at once, where a process may have so many descriptors.

    >>> clients_for(1_024, 8), clients_for(16_384, 8), clients_for(100, 8)
    (400, 4096, 16)
    """
    left = descriptors - OWN - FOR_RUN * max_runs
    return max(CLIENTS_MIN, min(CLIENTS_MAX, left // FOR_CLIENT))
