"""Adds and removes members: first in the state, then in Raft.

The member that gets the request makes both changes. If it dies after the first one, the leader makes the second one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol

from node.raft.errors import ChangeRefused, RaftError
from node.replication.proposer import MemberPort
from node.state.entries import Seed
from node.state.members import AddMember, RemoveMember
from node.state.value import Result

_log = logging.getLogger("rota.membership")

PATIENCE_S: Final = 2.0
"""How long the leader waits for the member that changed the state to make the change in Raft too; also the wait between
two tries."""

CHANGE_S: Final = 5.0
PROBE_S: Final = 1.0

Connect = Callable[[str, int], Awaitable[tuple[Any, Any]]]


class RaftMembers(Protocol):
    """The part of `node.raft.adapter.Raft` that is used here."""

    @property
    def members(self) -> frozenset[str]:
        """The members by this node's log."""

    def add_member(self, member: str, address: tuple[str, int], timeout_s: float, /) -> "Future[None]":
        """Add a member. The future may raise `ChangeRefused` and other `RaftError`s."""

    def remove_member(self, member: str, timeout_s: float, /) -> "Future[None]":
        """Remove a member. The future may raise `ChangeRefused` and other `RaftError`s."""

    def hand_over(self) -> None:
        """Hand the leadership to another member."""


class MembershipChanges:
    """Adds and removes members. `wait_index(index, timeout_s)` waits until `index` is applied here, or the timeout."""

    def __init__(
        self,
        member: MemberPort,
        raft: RaftMembers,
        wait_index: Callable[[int, float], Awaitable[bool]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        connect: Connect = asyncio.open_connection,
    ) -> None:
        self._port = member
        self._raft = raft
        self._wait_index = wait_index
        self._sleep = sleep
        self._connect = connect
        self._changed = asyncio.Event()

    async def add(self, seed: Seed, timeout_s: float) -> Result:
        """Add a member to the state, then to Raft. If Raft cannot add it now, the leader does so later.

        In that case it stays in the state, because another client may have asked for the same change and got `ok`.
        """
        before = {*self._port.state().members} - {seed.id}
        if (fault := self._under_way(self._half_made - {seed.id})) is not None:
            return Result("busy", detail=fault)
        if len(before) == 1 and not await self._answers(seed):
            detail = f"{seed.id} does not answer, and without it there would be no majority of the two"
            return Result("busy", detail=f"{detail}. Start it first (with ROTA_JOIN it asks by itself)")
        # A new member counts for the majority at once, and votes once it has caught up (`node.raft.log.membership`).
        if len(before) > 1 and (fault := self._without_majority({*before, seed.id})) is not None:
            return Result("busy", detail=f"{fault}. First start the members that are down, or remove them")
        result = await self._port.propose(AddMember(self._port.now_us(), seed), timeout_s)
        if not result.ok and not (result.code == "exists" and self._awaited(seed)):
            return result
        try:
            await asyncio.wrap_future(self._raft.add_member(seed.id, (seed.host, seed.raft_port), timeout_s))
        except ChangeRefused as error:
            return Result("busy", detail=str(error))
        return Result("ok", result.value)

    async def remove(self, member: str, timeout_s: float) -> Result:
        """Remove a member from the state as soon as it is down, then from Raft."""
        if member == self._port.me:
            return Result("self", detail=f"a member cannot remove itself: ask another one{self._for_example()}")
        # A member that is in the state but not in Raft does not count for a majority yet, so it blocks no removal.
        if (fault := self._under_way(self._half_made & self._raft.members - {member})) is not None:
            return Result("busy", detail=fault)
        if (fault := self._without_majority({*self._port.state().members} - {member})) is not None:
            return Result("busy", detail=fault)
        result = await self._port.propose(RemoveMember(self._port.now_us(), member), timeout_s)
        if not result.ok:
            return result
        if not await self._gone(member, timeout_s):
            return Result("busy", detail=f"{member} is handing over what it runs: ask again, or undrain it to keep it")
        try:
            await asyncio.wrap_future(self._raft.remove_member(member, timeout_s))
        except ChangeRefused as error:
            return Result("busy", detail=str(error))
        return result

    def wake(self) -> None:
        """Check again, because the members or the role have changed."""
        self._changed.set()

    async def run(self) -> None:
        """While this member leads, finish the changes that other members have begun. Run until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._unfinished() or self._leads_though_removed():
                await self._sleep(PATIENCE_S)
                if self._leads_though_removed():
                    self._raft.hand_over()
                await self._finish(self._unfinished())

    @property
    def _half_made(self) -> frozenset[str]:
        """The members that are in the state or in Raft, but not in both."""
        return self._raft.members ^ frozenset(self._port.state().members) if self._raft.members else frozenset()

    def _under_way(self, others: frozenset[str]) -> str | None:
        """Return the reason to refuse a change while `others` are only half added or removed. None: it may begin.

        If two members were removed from the state only, both would still count for Raft's majority after their end.
        """
        return f"the change of {', '.join(sorted(others))} is not finished: ask again in a moment" if others else None

    def _without_majority(self, members: set[str]) -> str | None:
        """Return why a cluster of these `members` would have no quorum, as too many are down. None: it would have one.

        A change that leaves no quorum cannot be undone.
        """
        state = self._port.state()
        takes_part = {name for name, member in state.members.items() if member.status != "down"}
        missing = sorted(members - takes_part)
        if 2 * len(members & takes_part) > len(members):
            return None
        return (
            f"of the {len(members)} members that there would be, {', '.join(missing)} would not take part, and the "
            "others are no majority: the cluster could not decide anything any more"
        )

    async def _answers(self, seed: Seed) -> bool:
        """Whether a process listens at a new member's Raft address."""
        try:
            async with asyncio.timeout(PROBE_S):
                _, writer = await self._connect(seed.host, seed.raft_port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    def _awaited(self, seed: Seed) -> bool:
        """Whether a member has been added as `seed` already, and has not joined yet."""
        member = self._port.state().members.get(seed.id)
        return (
            member is not None
            and member.reason == "new"
            and (member.host, member.raft_port, member.http_port) == (seed.host, seed.raft_port, seed.http_port)
        )

    def _for_example(self) -> str:
        """Return the setting with which `rota` calls another member, in brackets; empty if no other member is up."""
        members = self._port.state().members
        for name, one in sorted(members.items()):
            if name != self._port.me and one.status == "up":
                host = f"[{one.host}]" if ":" in one.host else one.host
                return f" (ROTA_URL=http://{host}:{one.http_port})"
        return ""

    async def _gone(self, member: str, timeout_s: float) -> bool:
        """Wait until `member` is no longer in the state. Returns whether that happened within `timeout_s`."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        while member in self._port.state().members and loop.time() < end_s:
            await self._wait_index(self._port.state().index + 1, end_s - loop.time())
        return member not in self._port.state().members

    def _unfinished(self) -> list[str]:
        """Return the members only in Raft, to be removed, then those only in the state, to be added.

        The list is empty on a follower.
        """
        role, state = self._port.role(), self._port.state()
        leads = role.is_leader and role.ready and state.lead.member == self._port.me and state.lead.term == role.term
        if not leads or not self._raft.members:
            return []
        there, here = self._raft.members, frozenset(state.members)
        return [*sorted(there - here - {self._port.me}), *sorted(here - there)]

    def _leads_though_removed(self) -> bool:
        """Whether this node leads Raft though removed from the state. It cannot grant leases or remove itself."""
        state = self._port.state()
        return self._port.role().is_leader and bool(state.cluster_id) and self._port.me not in state.members

    async def _finish(self, unfinished: list[str]) -> None:
        """Make the change in Raft for the first of these members, because Raft accepts one change at a time."""
        for name in unfinished[:1]:
            member = self._port.state().members.get(name)
            try:
                if member is None:
                    _log.warning("%s is a member of Raft only: removing it there", name)
                    change = self._raft.remove_member(name, CHANGE_S)
                else:
                    _log.warning("%s is not a member of Raft yet: adding it there", name)
                    change = self._raft.add_member(name, (member.host, member.raft_port), CHANGE_S)
                await asyncio.wrap_future(change)
            except RaftError as error:
                _log.info("%s cannot be changed in Raft yet, retrying: %s", name, error)
