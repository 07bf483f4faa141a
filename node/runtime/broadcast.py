"""One producer and many consumers on one event loop."""

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")


class Broadcast(Generic[T]):
    """Passes every value to all present listeners, in order."""

    def __init__(self) -> None:
        # The queue of a listener that was dropped, even before it began to read, is collected with it.
        self._queues: WeakSet[asyncio.Queue[T | None]] = WeakSet()
        self._closed = False

    def send(self, value: T) -> None:
        """Pass a value to all listeners."""
        for queue in self._queues:
            queue.put_nowait(value)

    def close(self) -> None:
        """End the iteration of every listener."""
        self._closed = True
        for queue in self._queues:
            queue.put_nowait(None)

    def listen(self) -> AsyncIterator[T]:
        """The values that are sent from this call on, until `close`."""
        queue: asyncio.Queue[T | None] = asyncio.Queue()
        if self._closed:
            queue.put_nowait(None)
        self._queues.add(queue)

        async def values() -> AsyncIterator[T]:
            try:
                while (value := await queue.get()) is not None:
                    yield value
            finally:
                self._queues.discard(queue)

        return values()
