"""Barriers: a no-op of this member, committed and applied here, so that a read after it is no older than the call.

PySyncObj has no read index.
"""

import os
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count

from node.raft.core.proposals import timeout_error


@dataclass(slots=True, eq=False)
class _Barrier:
    deadline_s: float
    future: "Future[None]" = field(default_factory=Future)
    sent: bool = False


class Barriers:
    """The barriers that callers wait for. They share one no-op at a time. Not safe for threads; told the time."""

    def __init__(self, resend_s: float) -> None:
        self._resend_s = resend_s
        self._prefix = os.urandom(8)
        self._numbers = count()
        self._waiting: list[_Barrier] = []
        self._under_way: list[_Barrier] = []
        self._mark = b""
        self._sent_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    def add(self, deadline_s: float) -> "Future[None]":
        """A new barrier; the future is fulfilled once its no-op is applied."""
        barrier = _Barrier(deadline_s)
        barrier.future.set_running_or_notify_cancel()
        self._waiting.append(barrier)
        return barrier.future

    def take(self, now_s: float) -> bytes | None:
        """The no-op to propose now, if any: the bytes that `applied` gets."""
        if self._under_way or not self._waiting:
            return None
        self._under_way, self._waiting = self._waiting, []
        for barrier in self._under_way:
            barrier.sent = True
        self._mark = self._prefix + next(self._numbers).to_bytes(8, "big")
        self._sent_s = now_s
        return self._mark

    def applied(self, mark: bytes) -> "list[Future[None]]":
        """A no-op of any member was applied here. Returns the futures that it fulfils."""
        if mark != self._mark:
            return []
        reached, self._under_way = self._under_way, []
        return [barrier.future for barrier in reached]

    def send_again(self, now_s: float, all_of_them: bool) -> None:
        """Propose another no-op where the last one was sent long ago, or, with `all_of_them`, whenever it was sent."""
        if all_of_them or now_s - self._sent_s > self._resend_s:
            self._waiting = self._under_way + self._waiting
            self._under_way = []

    def expire(self, now_s: float) -> "list[tuple[Future[None], Exception]]":
        """The barriers whose deadline has passed, each with its error."""
        over = [each for each in self._under_way + self._waiting if each.deadline_s <= now_s]
        if over:
            self._under_way = [each for each in self._under_way if each.deadline_s > now_s]
            self._waiting = [each for each in self._waiting if each.deadline_s > now_s]
        return [(each.future, timeout_error(each.sent)) for each in over]

    def give_up(self) -> "list[Future[None]]":
        """Remove and return all barriers."""
        left = [each.future for each in self._under_way + self._waiting]
        self._under_way, self._waiting = [], []
        return left
