"""Runs calls that may hang (a DNS look-up, a file on a network share), each in a thread of its own.

The event loop's own threads are few, and serve the page and the API, so an unreachable name server must not use them
up. Also, a call that hangs does not keep the node from ending.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

_T = TypeVar("_T")

THREADS_MAX: Final = 200
"""The maximum number of calls at a time. It allows two calls for each channel, one of which hangs."""

_free = threading.BoundedSemaphore(THREADS_MAX)


async def in_side_thread(call: Callable[[], _T], timeout_s: float) -> _T:
    """Return the result of `call`, or raise its error.

    Raises `TimeoutError` after `timeout_s`, or if too many calls hang. After a timeout the call goes on until it ends
    by itself.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_T] = loop.create_future()
    free = _free
    if not free.acquire(blocking=False):
        raise TimeoutError

    def tell(settle: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(lambda: None if outcome.done() else settle())

    def work() -> None:
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - the waiting caller raises it
            failure = error
            tell(lambda: outcome.set_exception(failure))
        else:
            tell(lambda: outcome.set_result(result))
        finally:
            free.release()

    try:
        threading.Thread(target=work, name="side thread", daemon=True).start()
    except RuntimeError:  # no thread can be started
        free.release()
        raise TimeoutError from None
    async with asyncio.timeout(timeout_s):
        return await outcome
