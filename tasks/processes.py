"""Recognises the processes of a node and of an attempt, by two environment variables and by /proc/PID/stat.

A process that builds the environment of another one must pass the variables on, because `node.execution.leftovers`
looks for them to find processes that have outlived their supervisor.
"""

import os
import sys
from collections.abc import Collection
from typing import Final

MARK: Final = "NURSERY_OF"
"""The environment variable that names the data folder. It is not called ROTA_*: workers do not inherit those."""

RUN_MARK: Final = "NURSERY_RUN"
"""The environment variable that names the attempt: RUN_ID:TOKEN."""


PARENT: Final = 4
STARTED: Final = 22
"""Field numbers of proc(5): the parent's pid, and the start in clock ticks since boot."""

_WALKS_MAX: Final = 20


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name: field n of proc(5) is at index n - 3. Raises `OSError`."""
    # No pathlib, for speed: this runs for every process of the machine while an attempt waits to be frozen.
    descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        line = os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    # The name, in parentheses, may itself contain spaces and parentheses.
    return line[line.rindex(b")") + 2 :].split()


def is_below(pid: int, roots: Collection[int]) -> bool:
    """Whether a process is in `roots` or a descendant of one. False if it is gone. No root may end during this call."""
    for _ in range(_WALKS_MAX):
        found = _walk_up(pid, roots)
        if found is not None:
            return found
    return False


def _walk_up(pid: int, roots: Collection[int]) -> bool | None:
    """Try `is_below` once. None if a process on the way ended meanwhile: its children have another parent now."""
    at, child_started = pid, sys.maxsize
    while at not in roots:
        try:
            fields = stat_fields(at)
        except OSError:
            return False if at == pid else None
        started, parent = int(fields[STARTED - 3]), int(fields[PARENT - 3])
        if started > child_started:
            return None  # the parent has ended, and another process has its pid now
        if parent == 0:
            return False
        at, child_started = parent, started
    return True
