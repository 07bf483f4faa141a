"""Runs background services, and calls from other threads, on a node's event loop. An error in either ends the node."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

_log = logging.getLogger("rota.member")


class Services:
    """The services of the running loop. `failed` gets the first error, and the process then ends."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._services: dict[str, asyncio.Task[None]] = {}
        self.failed: asyncio.Future[Exception] = self._loop.create_future()

    def call(self, call: Callable[..., None], *args: Any) -> None:
        """Call a function on the loop, from any thread. An error that it raises ends the node."""
        try:
            self._loop.call_soon_threadsafe(self.guard, call, *args)
        except RuntimeError:
            _log.debug("the loop is closed: the process is ending")

    def later(self, wait_s: float, call: Callable[[], None]) -> None:
        """Call a function after `wait_s` seconds, from the loop. An error that it raises ends the node."""
        self._loop.call_later(wait_s, self.guard, call)

    def guard(self, call: Callable[..., None], *args: Any) -> None:
        """Call a function now, from the loop. An error that it raises ends the node."""
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - any error ends the node, with its reason
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """End the node with this error, unless another one came first."""
        if not self.failed.done():
            self.failed.set_result(error)

    def serve(self, name: str, service: Coroutine[Any, Any, None]) -> None:
        """Start a service, which runs until `end` or `cancel_services`."""
        self._services[name] = task = self._loop.create_task(service)
        task.add_done_callback(self._served)

    def cancel_services(self, *names: str) -> None:
        """Cancel these services, without waiting for them."""
        for name in names:
            self._services[name].cancel()

    async def end(self) -> None:
        """Cancel all services, and wait until they have ended."""
        self.cancel_services(*self._services)
        await asyncio.gather(*self._services.values(), return_exceptions=True)

    def _served(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.fail(error)
