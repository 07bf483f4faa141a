"""The names of all tasks in order, for pages of `GET /v1/tasks`."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice

from hashing.chunked import sorted_in_chunks
from node.state.value import State


class TaskNames:
    """Task names, sorted once for each epoch: every change of the set of tasks increments the epoch.

    They are sorted in another thread: sorting 100,000 takes 50 ms.
    """

    def __init__(self) -> None:
        self._version: tuple[str, int] | None = None
        self._names: list[str] = []

    async def after(self, state: State, name: str | None) -> Iterator[str]:
        """The names greater than `name`, or all of them (None)."""
        version = (state.cluster_id, state.epoch)
        names = self._names
        if self._version != version:
            names = await asyncio.to_thread(sorted_in_chunks, state.tasks)
            self._version, self._names = version, names
        return islice(names, 0 if name is None else bisect_right(names, name), None)
