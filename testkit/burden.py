"""What the cluster has to bear in a phase, and whether it was there all the time."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

Look = Callable[[], None]
"""Called now and then, and at the end. Raises `BurdenGone` if the burden is not there any more."""


class BurdenGone(Exception):
    """What was to weigh on the cluster does not; says what became of it."""


@contextmanager
def nothing() -> Iterator[Look]:
    """No burden."""
    yield lambda: None


@contextmanager
def meanwhile(what: str, work: Callable[[Event], None]) -> Iterator[Look]:
    """A thread that works until its event is set. If it ends before, the look raises; so does the end, if it failed."""
    over = Event()
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work, over)

        def look() -> None:
            if working.done():
                error = working.exception()
                raise BurdenGone(f"{what} no more: {error or 'it has ended'}") from error

        try:
            yield look
        finally:
            over.set()
        if (error := working.exception()) is not None:
            raise BurdenGone(f"{what} no more: {error}") from error
