"""Sends records from a thread of its own, from a bounded queue, so that whoever receives them delays nobody."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

_log = logging.getLogger("rota.tracing")

T_contra = TypeVar("T_contra", contravariant=True)
T = TypeVar("T")

GATHER_S: Final = 0.5
"""How long records are gathered before they are sent together."""


class NotExported(Exception):
    """Records were not accepted. The text says why, and contains no secret."""


class ExportClient(Protocol[T_contra]):
    """Sends records to a receiver. All calls come from one thread."""

    def send(self, records: Sequence[T_contra], /) -> None:
        """Send records, in bounded time. Raises `NotExported`."""


class ExportCount(NamedTuple):
    """How many records were sent and dropped since this process started. `what` names them, such as `spans`."""

    what: str
    sent: int
    dropped: int


class ExportThread(Generic[T]):
    """Sends records of the sort `what` by `client`, `together` at a time; keeps `room` of them at most.

    What does not fit, or is not accepted, is dropped and counted. It is logged when that begins, and when it is over.
    """

    def __init__(
        self,
        what: str,
        client: ExportClient[T],
        *,
        together: int,
        room: int,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._what, self._client, self._together, self._room, self._now_s = what, client, together, room, now_s
        self._queue: deque[T] = deque()
        self._changed = threading.Condition()
        self._ending_s: float | None = None
        self._sent = self._dropped = 0
        self._failing = False
        self._thread = threading.Thread(target=self._run, name=f"export {what}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, records: Sequence[T]) -> None:
        """Queue records. Never waits; what has no room is dropped and counted. Any thread may call it."""
        if not records:
            return
        with self._changed:
            fitting = records[: max(0, self._room - len(self._queue))]
            self._queue.extend(fitting)
            lost = len(records) - len(fitting)
            self._dropped += lost
            self._changed.notify()
        if lost:
            self._fail(f"{self._room} of them wait to be sent, and there is no room for more")

    def close(self, wait_s: float) -> None:
        """Send what is queued, for `wait_s` at most; what is left then is dropped. The thread does not outlive it long:
        it ends with the process.
        """
        with self._changed:
            self._ending_s = self._now_s() + wait_s
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(wait_s)
        with self._changed:
            left = len(self._queue)
            self._dropped += left
            self._queue.clear()
        if left:
            _log.warning("%d %s could not be sent before this node stopped", left, self._what)

    @property
    def count(self) -> ExportCount:
        """How many records were sent and dropped. Any thread may ask."""
        with self._changed:
            return ExportCount(self._what, self._sent, self._dropped)

    def _run(self) -> None:
        while records := self._next():
            try:
                self._client.send(records)
            except NotExported as error:
                self._lose(len(records), str(error))
            except Exception as error:  # noqa: BLE001 - whatever a client raises, the next records may do better
                if not self._failing:
                    _log.exception("%s cannot be made, which is a bug in Rota", self._what)
                self._lose(len(records), type(error).__name__)
            else:
                with self._changed:
                    self._sent += len(records)
                if self._failing:
                    self._failing = False
                    _log.info("%s are sent again", self._what)

    def _next(self) -> list[T]:
        """Wait for records, and gather some. Returns none at the end."""
        with self._changed:
            while not self._queue and self._ending_s is None:
                self._changed.wait()
            until_s = self._now_s() + GATHER_S
            while (
                self._ending_s is None and len(self._queue) < self._together and (left_s := until_s - self._now_s()) > 0
            ):
                self._changed.wait(left_s)
            if self._ending_s is not None and self._now_s() >= self._ending_s:
                return []
            return [self._queue.popleft() for _ in range(min(len(self._queue), self._together))]

    def _lose(self, records: int, why: str) -> None:
        with self._changed:
            self._dropped += records
        self._fail(why)

    def _fail(self, why: str) -> None:
        if not self._failing:
            self._failing = True
            _log.warning("%s are dropped, and counted in /metrics (rota_exports_dropped): %s", self._what, why)
