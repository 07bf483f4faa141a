"""The limit on file descriptors: raised at start, lower for attempts, and shared between the node and its clients.

A node needs descriptors for its attempts, Raft, heartbeats, files and requests to other members. Clients of the API get
a part of the rest, so that no number of client connections can exhaust the node's own descriptors.
"""

import resource
from pathlib import Path
from typing import Final

SOFT_MAX: Final = 16_384
"""The highest soft limit for attempts: some programs close all descriptors up to it. An attempt may raise it itself."""

NODES_OWN: Final = 1_024
"""The number of descriptors that the node may have more than an attempt; at most a quarter of the hard limit.

The kernel counts the descriptors under way in messages, for all processes of a user together. A process whose own
limit is below this count may send no more. So an attempt that keeps many descriptors under way is refused, but never
the node.
"""

RESERVED: Final = 192
"""The descriptors that a node needs itself: for Raft, heartbeats, SQLite, logs, connections to other members."""

FOR_RUN: Final = 4
"""The descriptors for one attempt: its channel, and three more while it is handed to the nursery."""

CLIENTS_MIN: Final = 16
CLIENTS_MAX: Final = 4_096

FOR_CLIENT: Final = 2
"""The descriptors for one client: its connection, and a share of the files and connections to members that it uses."""


_NR_OPEN: Final = Path("/proc/sys/fs/nr_open")
"""The maximum number of descriptors that the kernel allows any process. No limit can be set to more."""


def hard_limit() -> int:
    """Return the maximum number of descriptors that this process, and each process that it starts, may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = int(_NR_OPEN.read_text())
    return most if hard == resource.RLIM_INFINITY else min(hard, most)


def attempts_limit(hard: int) -> int:
    """Return the maximum number of descriptors that a process of an attempt may have, if the node may have `hard`.

    >>> attempts_limit(1_048_576), attempts_limit(1_024)
    (1047552, 768)
    """
    return hard - min(NODES_OWN, hard // 4)


def raise_soft_limit() -> int:
    """Raise this process's soft limit on descriptors to its hard limit. Returns the new soft limit."""
    hard = hard_limit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def below_own() -> tuple[int, int]:
    """Return the soft and the hard limit for the processes of an attempt, computed in its supervisor."""
    hard = attempts_limit(hard_limit())
    return min(SOFT_MAX, hard), hard


def streams_for(clients: int) -> int:
    """Return the maximum number of responses that may be streamed at once, for this number of clients.

    >>> streams_for(4_096), streams_for(16)
    (256, 4)
    """
    return min(256, clients // 4)


def clients_for(descriptors: int, max_runs: int) -> int:
    """Return the maximum number of clients that may be connected at once, for this limit on descriptors.

    >>> clients_for(1_024, 8), clients_for(16_384, 8), clients_for(100, 8)
    (400, 4096, 16)
    """
    left = descriptors - RESERVED - FOR_RUN * max_runs
    return max(CLIENTS_MIN, min(CLIENTS_MAX, left // FOR_CLIENT))
