"""A member's core between its threads: what it shows at once, and what it does not let through."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from node.app.core import Core
from node.app.core_ports import CorePorts, CoreSettings
from node.app.projections import view_of
from node.duty.digests import DigestSummary, DueDigest, RunTally, digest_summary
from node.duty.ownership import Ownership
from node.duty.step import LeaseView
from node.duty.telling import Send
from node.execution.order import Order
from node.liveness.detector import LivenessVerdict
from node.liveness.lease import LeaseNow
from node.liveness.view import View
from node.membership.addresses import Address, Agreed
from node.raft.errors import Overloaded
from node.raft.ports import RaftRole
from node.replication.state_machine import StateChange
from node.state.entries import Proposal
from node.state.members import Join, MarkDown, TakeLead
from node.state.value import Result, Run, Settings, State
from tasks.definition.public_holidays import public_holidays
from tests.unit.node.loop import serving
from tests.unit.node.state.given import NOW_US, cluster, joining
from tests.unit.node.working import Runner

FOUNDED = cluster("a", "b").state
BOOT_S = 1000.0


class Raft:
    """Remembers what is proposed. `full`: it takes no proposal."""

    def __init__(self) -> None:
        self.role = RaftRole(1, "a", True, True, True)
        self.members = frozenset({"a", "b"})
        self.proposed: list[Proposal] = []
        self.full = False

    def propose(self, proposal: Proposal, _timeout_s: float) -> "Future[Result]":
        if self.full:
            raise Overloaded("2000 proposals wait here already")
        self.proposed.append(proposal)
        return Future()

    def add_member(self, member: str, address: Address, timeout_s: float) -> "Future[None]":
        raise NotImplementedError

    def remove_member(self, member: str, timeout_s: float) -> "Future[None]":
        raise NotImplementedError

    def hand_over(self) -> None:
        raise NotImplementedError

    def relocate(self, member: str, address: Address) -> None:
        raise NotImplementedError


class Ports(Runner):
    """All other ports of member `a`: each notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.raft = Raft()
        self.did: list[str] = []
        self.state = FOUNDED
        self.renewed: list[float] = []
        self.shown: list[View] = []
        self.calls: list[Callable[[], None]] = []

    def core(self) -> Core:
        ports = CorePorts(
            raft=self.raft,
            machine=self,
            runner=self,
            heartbeat=self,
            clock=self,
            loop=self,
            placement=self,
            observer=self,
            sender=self,
            rng=Random(1),
            join_of=self._join,
            order_of=self._order,
            public_holidays=lambda *asked: asyncio.to_thread(public_holidays, *asked),
            keep_addresses=self._keep,
            digest=self._digest,
            lacking=self._lacking,
        )
        return Core(CoreSettings("a", 1, 4, ()), ports)

    async def send(self, cluster_id: str, message: Send) -> str:
        raise NotImplementedError

    # the runner, the heartbeats and the clocks

    def renew(self, deadline_s: float) -> None:
        self.renewed.append(deadline_s)

    async def kill_all(self) -> None:
        raise NotImplementedError

    def observe(self, view: View) -> None:
        self.did.append("heartbeats")
        self.shown.append(view)

    def now_us(self) -> int:
        return NOW_US

    def boottime_s(self) -> float:
        return BOOT_S

    # the event loop

    def call(self, call: Callable[..., None], *args: Any) -> None:
        self.did.append("loop")
        self.calls.append(lambda: call(*args))

    def later(self, _wait_s: float, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def guard(self, call: Callable[..., None], *args: Any) -> None:
        call(*args)

    def serve(self, name: str, service: Coroutine[Any, Any, None]) -> None:
        raise NotImplementedError

    def cancel_services(self, *names: str) -> None:
        raise NotImplementedError

    # the placement and the observer

    def follow(self, before: Ownership, state: State, touched: set[str] | None) -> "asyncio.Future[Ownership]":
        raise NotImplementedError

    def applied(self, change: StateChange) -> None:
        self.did.append("observer")

    def delivered(self, changes: list[StateChange]) -> None:
        self.did.append(f"delivered {len(changes)}")

    def placed(self, state: State, ownership: Ownership) -> None:
        raise NotImplementedError

    def joined(self, incarnation: int) -> None:
        self.did.append(f"incarnation {incarnation}")

    def began_after(self, delay_s: float) -> None:
        raise NotImplementedError

    # what the member says of itself

    def _join(self, after: int, at_us: int) -> Join:
        return joining("a", at_us, after=after)

    def _order(self, run: Run, deadline_s: float) -> Order:
        raise NotImplementedError

    async def _keep(self, _agreed: Mapping[str, Agreed]) -> None:
        raise NotImplementedError

    async def _digest(self, state: State, due: DueDigest) -> DigestSummary:
        return digest_summary(state, due, RunTally(state.index, {}), due.nominal_us)

    async def _lacking(self, _task: str) -> tuple[str, ...]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("after", "shown"),
    [
        (replace(FOUNDED, settings=Settings(lease_s=4.0)), True),
        (replace(FOUNDED, lead=replace(FOUNDED.lead, term=7)), True),
        (cluster("a", "b", "c").state, True),
        (replace(FOUNDED, index=FOUNDED.index + 1), False),
    ],
    ids=["settings", "lead", "members", "nothing of theirs"],
)
def test_the_heartbeats_are_shown_what_changes_for_them_before_anything_else(after: State, shown: bool) -> None:
    """The lease times are settings."""
    ports = Ports()
    core = ports.core()
    ports.state = after
    core.on_change(StateChange(FOUNDED, after, frozenset()))
    assert ports.did == (["observer", "heartbeats", "loop"] if shown else ["observer", "loop"])


def test_changes_that_wait_for_the_loop_are_delivered_together_and_wake_who_waits_for_the_last() -> None:
    async def scenario() -> None:
        ports = Ports()
        core = ports.core()
        first = replace(FOUNDED, index=FOUNDED.index + 1)
        second = replace(FOUNDED, index=FOUNDED.index + 2)
        waiting = asyncio.ensure_future(core.wait_index(second.index, 5))
        await asyncio.sleep(0)
        for before, after in ((FOUNDED, first), (first, second)):
            ports.state = after
            core.on_change(StateChange(before, after, frozenset()))
        [deliver] = ports.calls
        deliver()
        assert await waiting
        assert ports.did[-1] == "delivered 2"

    serving(scenario())


def test_a_verdict_that_cannot_be_proposed_now_does_not_end_the_heartbeats(caplog: pytest.LogCaptureFixture) -> None:
    """It comes again every second; what is raised in their thread ends the node."""
    ports = Ports()
    core, verdict = ports.core(), LivenessVerdict("b", 1, "silent", 3)
    ports.raft.full = True
    with caplog.at_level(logging.WARNING, "rota.member"):
        for _ in range(2):
            core.on_verdict(verdict)
    said = [record.getMessage() for record in caplog.records]
    assert said.count("b is taken to be down: silent") == 1
    ports.raft.full = False
    core.on_verdict(verdict)
    assert [proposal.entry for proposal in ports.raft.proposed] == [MarkDown(NOW_US, "b", 1, "silent", 3)]


@pytest.mark.parametrize(
    ("left_s", "of_incarnation", "works"),
    [(60, 1, True), (60, 2, False), (-1, 1, False), (None, 0, False)],
    ids=["live", "of another incarnation", "lapsed", "none yet"],
)
def test_work_needs_a_live_lease_of_this_incarnation(left_s: float | None, of_incarnation: int, works: bool) -> None:
    ports = Ports()
    core = ports.core()
    core.membership.joining.incarnation = 1
    if left_s is not None:
        core.on_lease(LeaseNow(BOOT_S + left_s, 3, of_incarnation))
        assert ports.renewed == [BOOT_S + left_s]
    assert core.live_lease() == (LeaseView(1, 3) if works else None)


def test_a_member_that_was_marked_down_has_no_lease_for_its_old_incarnation() -> None:
    ports = Ports()
    core = ports.core()
    core.membership.joining.incarnation = 1
    core.on_lease(LeaseNow(BOOT_S + 60, 3, 1))
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "b", 2))
    history.must(MarkDown(NOW_US, "a", 1, "silent", 2))
    ports.state = history.state
    assert core.live_lease() is None


def test_a_leader_may_grant_leases_once_its_own_word_of_this_very_term_is_applied() -> None:
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "a", 3))
    assert view_of("a", 1, history.state, RaftRole(3, "a", True, True, True)).lead_applied
    assert not view_of("a", 1, history.state, RaftRole(4, "a", True, True, True)).lead_applied
    assert not view_of("b", 1, history.state, RaftRole(3, "a", False, True, True)).lead_applied
