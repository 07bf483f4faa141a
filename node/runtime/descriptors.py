"""The limit on file descriptors: raised at start, and divided.

A node needs descriptors for its attempts, Raft, heartbeats, files and requests to other members. Clients of the API get
a part of the rest, so that no number of client connections can exhaust the node's own descriptors.
"""

import resource
from typing import Final

SOFT_MAX: Final = 16_384
"""The soft limit is raised to the hard one, to this at most: some programs close every descriptor up to the limit."""

RESERVED: Final = 192
"""Descriptors that a node needs for itself: Raft, heartbeats, SQLite, logs, connections to other members."""

FOR_RUN: Final = 4
"""Descriptors for one attempt: its channel, and three more while it is handed to the nursery."""

CLIENTS_MIN: Final = 16
CLIENTS_MAX: Final = 4_096

FOR_CLIENT: Final = 2
"""Descriptors for one client: its connection, and a share of the files and connections to members that it uses."""


UNBOUNDED: Final = 2**30
"""The most descriptors that the kernel allows a process anywhere."""


def hard_limit() -> int:
    """How many descriptors this process, and what it starts, may have at most."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNBOUNDED if hard == resource.RLIM_INFINITY else hard


def raise_soft_limit(most: int = SOFT_MAX) -> int:
    """Raise this process's soft limit on descriptors to its hard one, `most` at most. Returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return SOFT_MAX if soft == resource.RLIM_INFINITY else soft


def streams_for(clients: int) -> int:
    """How many responses may be streamed at once to that number of clients.

    >>> streams_for(4_096), streams_for(16)
    (256, 4)
    """
    return min(256, clients // 4)


def clients_for(descriptors: int, max_runs: int) -> int:
    """How many clients may be connected at once in a process with that limit on descriptors.

    >>> clients_for(1_024, 8), clients_for(16_384, 8), clients_for(100, 8)
    (400, 4096, 16)
    """
    left = descriptors - RESERVED - FOR_RUN * max_runs
    return max(CLIENTS_MIN, min(CLIENTS_MAX, left // FOR_CLIENT))
