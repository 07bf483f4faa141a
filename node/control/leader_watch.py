"""Proposes what only the leader decides: deadlines that pass (`node.duty.deadlines`), and joins (`node.duty.joins`)."""

import asyncio
import logging
from typing import Final, Protocol

from node.duty.deadlines import DeadlineJudge
from node.duty.joins import JoinKeeper
from node.raft.errors import RaftError
from node.raft.ports import RaftRole
from node.replication.proposer import Proposing
from node.replication.state_machine import StateChange
from node.state.codec import BadEntry
from node.state.entries import Entry
from node.state.value import State

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


class LeaderWatch:
    """Judges the deadlines and joins of all tasks, as soon as an entry is committed by which this member leads."""

    def __init__(self, member: LeaderWatchPort) -> None:
        self._member = member
        self._state = State()
        self._judges: tuple[DeadlineJudge, JoinKeeper] | None = None
        self._term = 0
        self._undecided: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._proposing: set[asyncio.Task[None]] = set()

    def observe(self, change: StateChange) -> None:
        """Use the state after `change` from now on."""
        self._state = change.after
        if self._judges is not None:
            deadlines, joins = self._judges
            deadlines.observe(change.after, change.touched)
            joins.observe(change.after)
        if self._judges is not None or change.after.lead != change.before.lead:
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
            self._judges, self._term = (DeadlineJudge(self._state), JoinKeeper(self._state)), role.term
        now_us = self._member.now_us()
        deadlines, joins = self._judges
        breaches, breach_us = deadlines.step(now_us)
        entries, join_us = joins.step(now_us)
        self._log_undecided(deadlines)
        for entry in (*breaches, *entries):
            task = asyncio.get_running_loop().create_task(self._propose(entry))
            self._proposing.add(task)
            task.add_done_callback(self._proposing.discard)
        wake_us = min((one for one in (breach_us, join_us) if one is not None), default=None)
        if wake_us is None:
            return None
        return max(STEP_MIN_S, min(STEP_MAX_S, (wake_us - now_us) / 1e6))

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
