"""Members come and go: in the state and in Raft, in the end in both, whatever happens in between.

Who lets a member in or out does both. Should it die after the first half, the leader does the second.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol

from node.control.controller import Propose
from node.liveness.wall_clock import now_us
from node.raft.errors import ChangeRefused, RaftError
from node.raft.ports import RaftRole
from node.state.entries import AddMember, RemoveMember, Seed
from node.state.value import Result, State

_log = logging.getLogger("rota.membership")

PATIENCE_S: Final = 2.0
"""How long the leader leaves the second half to who made the first; and between two tries."""

CHANGE_S: Final = 5.0
KNOCK_S: Final = 1.0

Connect = Callable[[str, int], Awaitable[tuple[Any, Any]]]


class RaftMembers(Protocol):
    """What is needed of `node.raft.adapter.Raft`. `members`: who is one by the log."""

    members: frozenset[str]

    def add_member(self, member: str, address: tuple[str, int], timeout_s: float) -> "Future[None]":
        """Make somebody a member."""

    def remove_member(self, member: str, timeout_s: float) -> "Future[None]":
        """Make somebody no member."""

    def hand_over(self) -> None:
        """Let another member lead."""


class Membership:
    """Lets members in and out. `wait_index(index, timeout_s)` returns once that is applied here, or in time."""

    def __init__(
        self,
        me: str,
        raft: RaftMembers,
        state: Callable[[], State],
        role: Callable[[], RaftRole],
        propose: Propose,
        wait_index: Callable[[int, float], Awaitable[bool]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        connect: Connect = asyncio.open_connection,
    ) -> None:
        self._me = me
        self._raft = raft
        self._state = state
        self._role = role
        self._propose = propose
        self._wait_index = wait_index
        self._sleep = sleep
        self._connect = connect
        self._changed = asyncio.Event()

    async def add(self, seed: Seed, timeout_s: float) -> Result:
        """Let a new member in: into the state, then into Raft. If Raft cannot take it now, the leader sees to it later.

        To take it out of the state again could undo what somebody else who asked was told is done.
        """
        before = {*self._state().members} - {seed.id}
        if (fault := self._under_way(self._half_made - {seed.id})) is not None:
            return Result("busy", detail=fault)
        if len(before) == 1 and not await self._answers(seed):
            detail = f"{seed.id} does not answer, and without it there would be no majority of the two"
            return Result("busy", detail=f"{detail}. Start it first (with ROTA_JOIN it asks by itself)")
        # It counts for the majority at once, and has no vote before it has caught up (`node.raft.membership`).
        if len(before) > 1 and (fault := self._without_majority({*before, seed.id})) is not None:
            return Result("busy", detail=f"{fault}. Bring back who is down, or remove it, first")
        result = await self._propose(AddMember(now_us(), seed), timeout_s)
        if not result.ok and not (result.code == "exists" and self._awaited(seed)):
            return result
        try:
            await asyncio.wrap_future(self._raft.add_member(seed.id, (seed.host, seed.raft_port), timeout_s))
        except ChangeRefused as error:
            return Result("busy", detail=str(error))
        return Result("ok", result.value)

    async def remove(self, member: str, timeout_s: float) -> Result:
        """Let a member go: out of the state once it is down, then out of Raft."""
        if member == self._me:
            return Result("self", detail=f"a member cannot remove itself: ask another one{self._for_example()}")
        # Who is let in by half counts for no majority yet, and may not come to before this one has gone.
        if (fault := self._under_way(self._half_made & self._raft.members - {member})) is not None:
            return Result("busy", detail=fault)
        if (fault := self._without_majority({*self._state().members} - {member})) is not None:
            return Result("busy", detail=fault)
        result = await self._propose(RemoveMember(now_us(), member), timeout_s)
        if not result.ok:
            return result
        if not await self._gone(member, timeout_s):
            return Result("busy", detail=f"{member} is handing over what it runs: ask again, or undrain it to keep it")
        try:
            await asyncio.wrap_future(self._raft.remove_member(member, timeout_s))
        except ChangeRefused as error:
            return Result("busy", detail=str(error))
        return result

    def stir(self) -> None:
        """The members or the role have changed."""
        self._changed.set()

    async def run(self) -> None:
        """While this member leads, finish what others have begun. Serve until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._unfinished() or self._leads_in_vain():
                await self._sleep(PATIENCE_S)
                if self._leads_in_vain():
                    self._raft.hand_over()
                await self._finish(self._unfinished())

    @property
    def _half_made(self) -> frozenset[str]:
        """The members of the state that are none of Raft's yet, or the other way round."""
        return self._raft.members ^ frozenset(self._state().members) if self._raft.members else frozenset()

    def _under_way(self, others: frozenset[str]) -> str | None:
        """Why nothing may be changed now: the changes of others are in one of the two only. None: it may.

        Of two that were removed from the state alone, both still count for Raft's majority, and are about to end.
        """
        return f"the change of {', '.join(sorted(others))} is not finished: ask again in a moment" if others else None

    def _without_majority(self, members: set[str]) -> str | None:
        """Why a cluster of these `members` could decide nothing; None if it could: those that are not down take part.

        From a change that leaves no majority there is no way back.
        """
        state = self._state()
        takes_part = {name for name, member in state.members.items() if member.status != "down"}
        missing = sorted(members - takes_part)
        if 2 * len(members & takes_part) > len(members):
            return None
        return (
            f"of the {len(members)} members that there would be, {', '.join(missing)} would take no part, and the "
            "others are no majority: nothing could be decided any more"
        )

    async def _answers(self, seed: Seed) -> bool:
        """Whether somebody listens where a new member's Raft should be."""
        try:
            async with asyncio.timeout(KNOCK_S):
                _, writer = await self._connect(seed.host, seed.raft_port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    def _awaited(self, seed: Seed) -> bool:
        """Whether a member has been let in as `seed` already, and has not joined yet."""
        member = self._state().members.get(seed.id)
        return (
            member is not None
            and member.reason == "new"
            and (member.host, member.raft_port, member.http_port) == (seed.host, seed.raft_port, seed.http_port)
        )

    def _for_example(self) -> str:
        """The address of another member's API, as `rota` takes it; empty where there is none that is up."""
        members = self._state().members
        for name, one in sorted(members.items()):
            if name != self._me and one.status == "up":
                host = f"[{one.host}]" if ":" in one.host else one.host
                return f" (ROTA_URL=http://{host}:{one.http_port})"
        return ""

    async def _gone(self, member: str, timeout_s: float) -> bool:
        """Wait until somebody is no member any more."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        while member in self._state().members and loop.time() < end_s:
            await self._wait_index(self._state().index + 1, end_s - loop.time())
        return member not in self._state().members

    def _unfinished(self) -> list[str]:
        """Who is a member in one of the two only; those to go first. Nobody, unless this member leads."""
        role, state = self._role(), self._state()
        leads = role.is_leader and role.ready and state.lead.member == self._me and state.lead.term == role.term
        if not leads or not self._raft.members:
            return []
        there, here = self._raft.members, frozenset(state.members)
        return [*sorted(there - here - {self._me}), *sorted(here - there)]

    def _leads_in_vain(self) -> bool:
        """Whether this member leads, and is none any more: it grants no lease, and nobody else may remove it."""
        state = self._state()
        return self._role().is_leader and bool(state.cluster_id) and self._me not in state.members

    async def _finish(self, unfinished: list[str]) -> None:
        """One change: Raft makes one at a time."""
        for name in unfinished[:1]:
            member = self._state().members.get(name)
            try:
                if member is None:
                    _log.warning("%s is a member for Raft only: removing it there", name)
                    change = self._raft.remove_member(name, CHANGE_S)
                else:
                    _log.warning("%s is no member for Raft yet: adding it there", name)
                    change = self._raft.add_member(name, (member.host, member.raft_port), CHANGE_S)
                await asyncio.wrap_future(change)
            except RaftError as error:
                _log.info("%s: %s", name, error)
