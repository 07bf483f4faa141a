"""What all requests to one node share."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from hashing.chunked import sorted_in_chunks
from node.http.endpoint import Endpoint
from node.http.events import Hub
from node.http.metrics import Metrics
from node.http.node_port import Node
from node.http.request_limits import RequestLimits
from node.http.streaming import Streams
from node.peer.client import Peers
from node.peer.signing import Receiver
from node.state.value import State


class TaskNames:
    """The names of all tasks in order, sorted once for each epoch: every change of the set of tasks bumps it.

    Sorted in another thread: of 100,000 it takes 50 ms.
    """

    def __init__(self) -> None:
        self._of: tuple[str, int] | None = None
        self._names: list[str] = []

    async def after(self, state: State, name: str | None) -> Iterator[str]:
        """Those after `name`, or all."""
        version = (state.cluster_id, state.epoch)
        names = self._names
        if self._of != version:
            names = await asyncio.to_thread(sorted_in_chunks, state.tasks)
            self._of, self._names = version, names
        return islice(names, 0 if name is None else bisect_right(names, name), None)


@dataclass(frozen=True, slots=True)
class Service:
    """The node, and what its HTTP keeps beside it. `now_us` is the wall clock."""

    node: Node
    peers: Peers
    limits: RequestLimits
    metrics: Metrics
    hub: Hub
    now_us: Callable[[], int]
    receiver: Receiver
    streams: Streams
    endpoints: tuple[Endpoint, ...]
    names: TaskNames = field(default_factory=TaskNames)
