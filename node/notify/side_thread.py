"""Calls that may hang (a look-up of a name, a file on a share), each in a thread of its own.

The event loop's own threads are few, and serve the page and the API: a name server that does not answer must not take
them. A call that hangs does not keep the node from ending, either.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

_T = TypeVar("_T")

THREADS_MAX: Final = 200
"""Calls at a time: for each channel one that hangs, and one more."""

_free = threading.BoundedSemaphore(THREADS_MAX)


async def in_side_thread(call: Callable[[], _T], timeout_s: float) -> _T:
    """The result of `call`, or its error. Raises `TimeoutError` after `timeout_s` seconds, or if too many calls hang.

    A call that is not waited for any more goes on until it ends by itself.
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
        except Exception as error:  # noqa: BLE001 - it is raised where the call is waited for
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
