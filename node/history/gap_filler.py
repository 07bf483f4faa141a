"""Fetches the finished runs that this member lacks, from one other member at a time (the member's bootstrap).

`node.history.feeders` decides which member: the owner of `bootstrap/ME`, then the next in succession. The table of gaps
is the checkpoint: a gap that has been fetched is removed, so the next feeder, or this member after a restart, continues
from there.
"""

import asyncio
import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from node.history.bootstrap_board import BootstrapBoard
from node.history.feeders import feeders, next_feeder
from node.liveness.wall_clock import CLOCK
from node.peer.bootstrap import (
    Bootstrap,
    begin,
    fed_by,
    finished_bootstrap,
    indexes_in,
    summary,
    task_of,
    wait_because,
    with_gaps,
    with_portion,
)
from node.peer.portions import Gap, Portion
from node.peer.protocol import PeerAway
from node.runtime.aligned import sleep_to_grid
from node.state.value import State
from node.storage.quarantine import is_damage

_log = logging.getLogger("rota.history")

ROUND_S: Final = 2.0
"""Seconds between two checks of the gaps."""

ROUND_S_MAX: Final = 60.0
"""The longest pause before the members are asked again, while none of them has the missing runs."""

LOOK_S: Final = 0.2
"""Seconds between two checks whether a feeder that has not answered yet is still up."""

REST: Final = 1.0
REST_S_MAX: Final = 1.0
"""The pause after a portion is `REST` times as long as the portion took, and at most `REST_S_MAX`. So a feeder that is
slow because it is busy is asked less often."""


class GapStore(Protocol):
    """The part of `node.history.store.HistoryStore` that is used here."""

    def gaps(self) -> Sequence[Gap]:
        """Return the gaps, oldest first."""

    def fill(self, gap: Gap, portion: Portion) -> None:
        """Add a portion of a gap. Raises `ValueError` if it is not a portion of that gap."""


class HistorySource(Protocol):
    """The part of `node.peer.client.PeerClient` that is used here."""

    async def history(self, member: str, gap: Gap, /) -> Portion | None:
        """Fetch the first portion of a gap that a member has; None if it has no part of the gap. Raises `PeerAway`."""


class FillingTime(Protocol):
    """Time, as it passes for the filler."""

    def now_us(self) -> int:
        """Return the wall clock, in microseconds since the epoch."""

    def now_s(self) -> float:
        """Return the time on a monotonic clock, in seconds."""

    async def round(self, seconds: float, /) -> None:
        """Wait between two rounds."""

    async def rest(self, seconds: float, /) -> None:
        """Wait between two portions."""


class RealTime:
    """Implements `FillingTime`."""

    now_us = staticmethod(CLOCK.now_us)
    now_s = staticmethod(time.monotonic)
    round = staticmethod(sleep_to_grid)
    rest = staticmethod(asyncio.sleep)


class Tried(NamedTuple):
    """A round after which `gaps` were left, as `feeders` did not have them. The next round is at `next_s`."""

    gaps: tuple[Gap, ...]
    feeders: tuple[str, ...]
    wait_s: float
    next_s: float


def worth_asking(tried: Tried | None, gaps: Sequence[Gap], asked: Sequence[str], now_s: float) -> bool:
    """Whether to ask the members `asked` for these gaps now.

    >>> tried = Tried((Gap(0, 9),), ("a", "b"), 4.0, 104.0)
    >>> [worth_asking(tried, [Gap(0, 9)], who, at_s) for who, at_s in [("ab", 103), ("ab", 104), ("a", 103)]]
    [False, True, True]
    >>> worth_asking(tried, [Gap(0, 9)], "", 999)
    True
    """
    return tried is None or (tuple(gaps), tuple(asked)) != tried[:2] or now_s >= tried.next_s


def tried_again(tried: Tried | None, gaps: Sequence[Gap], asked: Sequence[str], now_s: float) -> Tried:
    """Return the record of a round that left these gaps. The same request is repeated less and less often."""
    same = tried is not None and (tuple(gaps), tuple(asked)) == tried[:2]
    wait_s = min(2 * tried.wait_s, ROUND_S_MAX) if tried is not None and same else ROUND_S
    return Tried(tuple(gaps), tuple(asked), wait_s, now_s + wait_s)


class GapFiller:
    """Fetches the runs that ended in the gaps of this member's history, from one member at a time (the feeder).

    The next member is asked once the present feeder does not answer, is marked down, or has sent all its runs. Until
    then the feeder stays, even if the owner has returned, as a running attempt stays when its task's owner returns.
    """

    def __init__(
        self,
        me: str,
        history: GapStore,
        others: HistorySource,
        state: Callable[[], State],
        board: BootstrapBoard,
        when: FillingTime | None = None,
    ) -> None:
        self._me = me
        self._task = task_of(me)
        self._history = history
        self._others = others
        self._state = state
        self._board = board
        self._when: FillingTime = when or RealTime()
        self._tried: Tried | None = None
        self._logged = ""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self._round(await asyncio.to_thread(self._history.gaps))
            except sqlite3.Error as error:
                if not is_damage(error):  # the history has reported damage itself, and the node ends
                    _log.error("finished runs cannot be fetched: %s; retrying", error)
                if self._board.own is not None and self._board.own.finished_us is None:
                    self._board.publish(wait_because(self._board.own, f"its own history cannot be used: {error}"))
            await self._when.round(ROUND_S)

    async def _round(self, gaps: Sequence[Gap]) -> None:
        """Fetch the runs of these gaps from whichever members have them, if it is time to ask."""
        own = self._board.own
        if not gaps:
            if own is not None and own.finished_us is None:
                self._finish("the rest is too old to be kept")
            return
        asked = self._feeders()
        if not self._state().members or not worth_asking(self._tried, gaps, asked, self._when.now_s()):
            return
        if own is None or own.finished_us is not None:
            self._board.publish(begin(self._me, gaps, self._when.now_us()))
        else:
            self._board.publish(with_gaps(own, gaps))
        left, why = await self._fetch(gaps)
        self._tried = tried_again(self._tried, left, asked, self._when.now_s()) if left else None
        if left:
            self._wait(left, why)
        else:
            self._finish("nothing is missing any more")

    async def _fetch(self, gaps: Sequence[Gap]) -> tuple[list[Gap], str]:
        """Ask one member after another. Returns the gaps that are left, and the reason."""
        left, asked, reasons = list(gaps), set[str](), list[str]()
        while left and (feeder := next_feeder(self._state().seats(), self._me, asked)) is not None:
            asked.add(feeder)
            self._log_feeder(feeder, left, reasons)
            self._board.publish(fed_by(self._bootstrap, feeder))
            left, why = await self._feed(feeder, left)
            reasons.append(why)
        return left, "; ".join(reasons) or "no other member is up"

    async def _feed(self, feeder: str, gaps: Sequence[Gap]) -> tuple[list[Gap], str]:
        """Fetch the runs that one member has. Returns the gaps that are left, and why the member sends no more runs."""
        left: list[Gap] = []
        waiting = deque(gaps)
        while waiting:
            gap = waiting.popleft()
            begun_s = self._when.now_s()
            try:
                portion = await self._ask(feeder, gap)
                if portion is None:
                    left.append(gap)
                    continue
                await asyncio.to_thread(self._history.fill, gap, portion)
            except (PeerAway, ValueError) as error:
                return [*left, gap, *waiting], str(error)
            took_s = self._when.now_s() - begun_s
            self._board.publish(with_portion(self._bootstrap, portion, took_s))
            if gap.after < portion.after:
                left.append(Gap(gap.after, portion.after))
            if portion.through < gap.through:
                waiting.appendleft(Gap(portion.through, gap.through))
            if waiting:
                await self._when.rest(min(REST * took_s, REST_S_MAX))
        return left, f"{feeder} has no more of them"

    async def _ask(self, feeder: str, gap: Gap) -> Portion | None:
        """Ask a member for its first portion of a gap. Raises `PeerAway`, also as soon as the member is marked down."""
        asking = asyncio.ensure_future(self._others.history(feeder, gap))
        try:
            while not (await asyncio.wait({asking}, timeout=LOOK_S))[0]:
                if feeder not in self._feeders():
                    raise PeerAway(feeder, "it is down")
            return asking.result()
        finally:
            asking.cancel()

    def _feeders(self) -> list[str]:
        return feeders(self._state().seats(), self._me)

    @property
    def _bootstrap(self) -> Bootstrap:
        assert self._board.own is not None
        return self._board.own

    def _log_feeder(self, feeder: str, left: Sequence[Gap], reasons: Sequence[str]) -> None:
        if reasons:
            _log.info("%s: %s; %s goes on after index %d", self._task, reasons[-1], feeder, left[0].after)
        elif self._tried is None or self._tried.feeders != tuple(self._feeders()):
            _log.info("%s: fetching %s, from %s", self._task, _described(left), feeder)

    def _wait(self, left: Sequence[Gap], why: str) -> None:
        self._board.publish(wait_because(self._bootstrap, f"{_described(left)}, are missing: {why}"))
        if self._logged != why:
            _log.warning("%s: %s, are missing: %s; asking again later", self._task, _described(left), why)
        self._logged = why

    def _finish(self, why: str) -> None:
        self._board.publish(finished_bootstrap(self._bootstrap, self._when.now_us()))
        self._logged = ""
        _log.info("%s: done, %s: %s", self._task, why, summary(self._bootstrap))


def _described(gaps: Sequence[Gap]) -> str:
    return f"the finished runs of {indexes_in(gaps):,} log indexes, through index {gaps[-1].through}"
