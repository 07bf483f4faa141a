"""A node that runs out of file descriptors."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def starved(pid: int) -> Iterator[None]:
    """Limit a process to one more descriptor than it has."""
    held = {int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir()}
    lowest = next(number for number in range(len(held) + 1) if number not in held)
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest + 1, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
