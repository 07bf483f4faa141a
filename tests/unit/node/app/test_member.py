"""The member's seams to its threads: what must be shown, and what must not come through."""

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from node.app.member import LocalMember
from node.app.projections import view_of
from node.liveness.detector import LivenessVerdict
from node.liveness.heartbeat import boottime_s
from node.liveness.lease import NO_LEASE, LeaseNow
from node.raft.errors import Overloaded
from node.raft.ports import RaftRole
from node.replication.state_machine import StateChange
from node.state.entries import TakeLead
from node.state.value import Settings, State
from tests.unit.node.state.given import NOW_US, cluster

FOUNDED = cluster("a", "b").state


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
    """Section 7: the lease times are settings."""
    did: list[str] = []
    member: Any = SimpleNamespace(
        history=SimpleNamespace(record=lambda *_: did.append("history")),
        _look=lambda: did.append("look"),
        _changes=SimpleNamespace(put=lambda _, rests: did.append("later" if rests else "loop")),
    )
    LocalMember._on_change(member, StateChange(FOUNDED, after, frozenset()))
    assert did == (["history", "look", "loop"] if shown else ["history", "loop"])


def test_a_verdict_that_cannot_be_proposed_now_does_not_end_the_heartbeats(caplog: pytest.LogCaptureFixture) -> None:
    """It comes again every second; what is raised in their thread ends the node."""

    def send(*_: object) -> None:
        raise Overloaded("2000 proposals wait here already")

    member: Any = SimpleNamespace(_verdicts={}, _proposing=SimpleNamespace(send=send))
    with caplog.at_level(logging.WARNING, "rota.member"):
        for _ in range(2):
            LocalMember._on_verdict(member, LivenessVerdict("b", 1, "silent", 3))
    said = [record.getMessage() for record in caplog.records]
    assert said.count("b is taken to be down: silent") == 1


@pytest.mark.parametrize(
    ("left_s", "of_incarnation", "standing", "works"),
    [(60, 2, 2, True), (60, 1, 2, False), (-1, 2, 2, False), (60, 2, None, False), (None, 0, None, False)],
    ids=["live", "of the incarnation before", "lapsed", "marked down", "not joined yet"],
)
def test_work_needs_a_live_lease_of_this_incarnation(
    left_s: float | None, of_incarnation: int, standing: int | None, works: bool
) -> None:
    # The clock is read here and not above: a table's values are made at collection, minutes before in a whole run.
    lease = NO_LEASE if left_s is None else LeaseNow(boottime_s() + left_s, 3, of_incarnation)
    member: Any = SimpleNamespace(_lease=lease, _life=SimpleNamespace(standing=standing))
    view = LocalMember._live_lease(member)
    assert (view is not None) is works
    assert member._stepping is lease


def test_a_leader_may_grant_leases_once_its_own_word_of_this_very_term_is_applied() -> None:
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "a", 3))
    assert view_of("a", 1, history.state, RaftRole(3, "a", True, True, True)).lead_applied
    assert not view_of("a", 1, history.state, RaftRole(4, "a", True, True, True)).lead_applied
    assert not view_of("b", 1, history.state, RaftRole(3, "a", False, True, True)).lead_applied
