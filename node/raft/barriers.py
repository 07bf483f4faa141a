"""Barriers: a no-op of one's own, committed and applied here, so that what is read next is no older than the call."""

import os
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count

from node.raft.proposals import verdict


@dataclass(slots=True, eq=False)
class _Barrier:
    deadline_s: float
    future: "Future[None]" = field(default_factory=Future)
    sent: bool = False


class Barriers:
    """All that wait share one no-op at a time. Not thread-safe; decides only, and is told the time."""

    def __init__(self, resend_s: float) -> None:
        self._resend_s = resend_s
        self._prefix = os.urandom(8)
        self._numbers = count()
        self._waiting: list[_Barrier] = []
        self._under_way: list[_Barrier] = []
        self._mark = b""
        self._sent_s = 0.0

    def add(self, deadline_s: float) -> "Future[None]":
        """Wait for a barrier from now on."""
        barrier = _Barrier(deadline_s)
        barrier.future.set_running_or_notify_cancel()
        self._waiting.append(barrier)
        return barrier.future

    def take(self, now_s: float) -> bytes | None:
        """The no-op to propose now, if any: the bytes that `applied` is told."""
        if self._under_way or not self._waiting:
            return None
        self._under_way, self._waiting = self._waiting, []
        for barrier in self._under_way:
            barrier.sent = True
        self._mark = self._prefix + next(self._numbers).to_bytes(8, "big")
        self._sent_s = now_s
        return self._mark

    def applied(self, mark: bytes) -> "list[Future[None]]":
        """A no-op, anybody's, was applied here. Returns what is fulfilled by it."""
        if mark != self._mark:
            return []
        reached, self._under_way = self._under_way, []
        return [barrier.future for barrier in reached]

    def send_again(self, now_s: float, all_of_them: bool) -> None:
        """Let the next no-op count for those whose own was sent long ago, or before the leader changed."""
        if all_of_them or now_s - self._sent_s > self._resend_s:
            self._waiting = self._under_way + self._waiting
            self._under_way = []

    def expire(self, now_s: float) -> "list[tuple[Future[None], Exception]]":
        """Those whose deadline has passed."""
        over = [each for each in self._under_way + self._waiting if each.deadline_s <= now_s]
        if over:
            self._under_way = [each for each in self._under_way if each.deadline_s > now_s]
            self._waiting = [each for each in self._waiting if each.deadline_s > now_s]
        return [(each.future, verdict(each.sent)) for each in over]

    def give_up(self) -> "list[Future[None]]":
        """All of them; none is left."""
        left = [each.future for each in self._under_way + self._waiting]
        self._under_way, self._waiting = [], []
        return left
