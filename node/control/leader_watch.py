"""Proposes what only the leader decides: deadlines that pass (`node.duty.deadlines`), joins (`node.duty.joins`),
which occurrence of a backfill is next (`node.duty.backfills`), and the days of public holidays (`node.duty.calendars`).
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from node.duty.backfills import BackfillKeeper
from node.duty.calendars import CalendarKeeper, WantedDays
from node.duty.deadlines import DeadlineJudge
from node.duty.joins import JoinKeeper
from node.raft.errors import RaftError
from node.raft.ports import RaftRole
from node.replication.proposer import Proposing
from node.replication.state_machine import StateChange
from node.state.calendars import SetCalendar
from node.state.codec import BadEntry
from node.state.entries import Entry
from node.state.value import State
from tasks.definition.public_holidays import UnknownRegion

_log = logging.getLogger("rota.leader")

PROPOSE_S: Final = 2.0
"""How long one proposal may take. If it fails, it is proposed again after a while."""

STEP_MIN_S: Final = 0.001
STEP_MAX_S: Final = 10.0
"""The longest time between two steps, as in `node.control.controller`."""


class LeaderWatchPort(Proposing, Protocol):
    """The part of a member that the watch needs. Its methods are called on the event loop."""

    @property
    def me(self) -> str:
        """The member's id."""

    def role(self) -> RaftRole:
        """Return the member's role in Raft."""

    async def public_holidays(self, region: str, first: int, last: int) -> tuple[int, ...]:
        """Return the public holidays of a region from one day to another. Raises `UnknownRegion`."""


class LeaderWatch:
    """Judges deadlines and joins and advances backfills, once an entry is committed by which this member leads."""

    def __init__(self, member: LeaderWatchPort) -> None:
        self._member = member
        self._state = State()
        self._judges: tuple[DeadlineJudge, JoinKeeper, BackfillKeeper, CalendarKeeper] | None = None
        self._term = 0
        self._undecided: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._proposing: set[asyncio.Task[None]] = set()

    def observe(self, change: StateChange) -> None:
        """Use the state after `change` from now on."""
        before, after = change.before, change.after
        self._state = after
        concerned = after.lead is not before.lead
        if self._judges is not None:
            deadlines, joins, backfills, _ = self._judges
            concerned |= deadlines.observe(after, change.touched)
            concerned |= joins.observe(after)
            concerned |= backfills.observe(after)
            concerned |= after.calendars is not before.calendars
        if concerned:
            self._changed.set()

    def wake(self) -> None:
        """Step at once, because the role in Raft has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                self._changed.clear()
                wait_s = self._step()
                try:
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        finally:
            for task in self._proposing:
                task.cancel()

    def _step(self) -> float | None:
        """Do one step. Returns the seconds until the next step; None: the next step waits for a change."""
        role, lead, me = self._member.role(), self._state.lead, self._member.me
        if not role.is_leader or (lead.member, lead.term) != (me, role.term):
            self._judges = None
            return None
        if self._judges is None or self._term != role.term:
            state = self._state
            self._judges = DeadlineJudge(state), JoinKeeper(state), BackfillKeeper(me, state), CalendarKeeper()
            self._term = role.term
        now_us = self._member.now_us()
        deadlines, joins, backfills, calendars = self._judges
        breaches, breach_us = deadlines.step(now_us)
        entries, join_us = joins.step(now_us)
        next_ones, backfill_us = backfills.step(now_us)
        wanted, calendars_us = calendars.step(self._state, now_us) if self._state.calendars else ([], None)
        self._log_undecided(deadlines)
        for entry in (*breaches, *entries, *next_ones):
            self._begin(self._propose(entry))
        for days in wanted:
            self._begin(self._extend(days))
        looks_us = (breach_us, join_us, backfill_us, calendars_us)
        wake_us = min((one for one in looks_us if one is not None), default=None)
        if wake_us is None:
            return None
        return max(STEP_MIN_S, min(STEP_MAX_S, (wake_us - now_us) / 1e6))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._proposing.add(task)
        task.add_done_callback(self._proposing.discard)

    async def _extend(self, wanted: WantedDays) -> None:
        try:
            days = await self._member.public_holidays(wanted.region, wanted.first, wanted.last)
        except UnknownRegion as error:
            _log.warning("The calendar %s cannot be extended, retrying in an hour: %s", wanted.calendar, error)
            return
        await self._propose(SetCalendar(self._member.now_us(), wanted.calendar, days, wanted.last))

    async def _propose(self, entry: Entry) -> None:
        try:
            await self._member.propose(entry, PROPOSE_S)
        except (RaftError, BadEntry) as error:
            _log.debug("%s is not committed yet, retrying: %s", entry, error)

    def _log_undecided(self, judge: DeadlineJudge) -> None:
        for task, error in judge.undecided.items():
            if task not in self._undecided:
                _log.error("%s: its deadlines cannot be judged, which is a bug in Rota", task, exc_info=error)
        self._undecided = frozenset(judge.undecided)
