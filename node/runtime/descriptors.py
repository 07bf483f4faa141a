"""The limit on file descriptors: raised at start, lowered for attempts, and divided.

A node needs descriptors for its attempts, Raft, heartbeats, files and requests to other members. Clients of the API get
a part of the rest, so that no number of client connections can exhaust the node's own descriptors.
"""

import resource
from pathlib import Path
from typing import Final

SOFT_MAX: Final = 16_384
"""The soft limit of attempts, at most: some programs close every descriptor up to it. They may raise it themselves."""

NODES_OWN: Final = 1_024
"""Descriptors that the node may have more than an attempt; a quarter of the hard limit at most.

The kernel counts the descriptors that are under way in messages of all processes of a user, and refuses to send more to
whoever's own limit is below that. So an attempt that keeps many under way is refused first, and the node never.
"""

RESERVED: Final = 192
"""Descriptors that a node needs for itself: Raft, heartbeats, SQLite, logs, connections to other members."""

FOR_RUN: Final = 4
"""Descriptors for one attempt: its channel, and three more while it is handed to the nursery."""

CLIENTS_MIN: Final = 16
CLIENTS_MAX: Final = 4_096

FOR_CLIENT: Final = 2
"""Descriptors for one client: its connection, and a share of the files and connections to members that it uses."""


_NR_OPEN: Final = Path("/proc/sys/fs/nr_open")
"""The most descriptors that the kernel allows any process. No limit can be set to more."""


def hard_limit() -> int:
    """How many descriptors this process, and what it starts, may have at most."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = int(_NR_OPEN.read_text())
    return most if hard == resource.RLIM_INFINITY else min(hard, most)


def attempts_limit(hard: int) -> int:
    """How many descriptors a process of an attempt may have at most, where the node may have `hard`.

    >>> attempts_limit(1_048_576), attempts_limit(1_024)
    (1047552, 768)
    """
    return hard - min(NODES_OWN, hard // 4)


def raise_soft_limit() -> int:
    """Raise this process's soft limit on descriptors to its hard one. Returns the new limit."""
    hard = hard_limit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def below_own() -> tuple[int, int]:
    """The limits, soft and hard, of a process of an attempt whose supervisor is this process."""
    hard = attempts_limit(hard_limit())
    return min(SOFT_MAX, hard), hard


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
