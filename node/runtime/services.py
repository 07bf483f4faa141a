"""What runs on a node's event loop: calls from other threads, and services. An error of theirs ends the node."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

_log = logging.getLogger("rota.member")


class OnLoop:
    """Of the running loop. `failed` is set to what went wrong first, and is for whoever serves the node to look at."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._services: dict[str, asyncio.Task[None]] = {}
        self.failed: asyncio.Future[Exception] = self._loop.create_future()

    def call(self, call: Callable[..., None], *args: Any) -> None:
        """Have something called on the loop; from any thread. What it raises ends the node: it is not to be lost."""
        try:
            self._loop.call_soon_threadsafe(self.guard, call, *args)
        except RuntimeError:
            _log.debug("the loop is closed: the process is about to end")

    def later(self, wait_s: float, call: Callable[[], None]) -> None:
        """The same from the loop itself, after a while."""
        self._loop.call_later(wait_s, self.guard, call)

    def guard(self, call: Callable[..., None], *args: Any) -> None:
        """The same from the loop itself, at once."""
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """The node cannot go on."""
        if not self.failed.done():
            self.failed.set_result(error)

    def serve(self, name: str, service: Coroutine[Any, Any, None]) -> None:
        """Run a service until `end`, or until it is called off."""
        self._services[name] = task = self._loop.create_task(service)
        task.add_done_callback(self._served)

    def call_off(self, *names: str) -> None:
        """End these services, without waiting for them."""
        for name in names:
            self._services[name].cancel()

    async def end(self) -> None:
        """End all services."""
        self.call_off(*self._services)
        await asyncio.gather(*self._services.values(), return_exceptions=True)

    def _served(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.fail(error)
