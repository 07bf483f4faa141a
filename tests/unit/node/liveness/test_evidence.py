"""When a silent member's process counts as dead before its lease expires."""

import pytest

from node.liveness.evidence import Evidence
from tests.unit.node.liveness.views import having, view

PEERS = view().peers
MARGIN_S = 0.5


@pytest.fixture
def evidence() -> Evidence:
    """Of `c`, heard at 10 s over connection 7, which ended at 10.1 s."""
    made = Evidence()
    made.heard("c", 1, 7, 10.0)
    made.ended(7, 10.1)
    return made


def probe(evidence: Evidence, at_s: float, *, refused: bool = True) -> None:
    assert evidence.probes_due(PEERS, at_s) == ["c"]
    evidence.probed("c", 1, refused, at_s)


def test_the_first_probe_is_after_half_a_second_of_silence(evidence: Evidence) -> None:
    assert evidence.probes_due(PEERS, 10.49) == []
    assert evidence.next_s(PEERS) == 10.5
    assert evidence.probes_due(PEERS, 10.5) == ["c"]
    assert evidence.probes_due(PEERS, 10.6) == []  # one at a time


def test_two_refusals_a_quarter_of_a_second_apart_and_the_end_of_the_connection_are_death(evidence: Evidence) -> None:
    probe(evidence, 10.5)
    assert evidence.dead_at("c", 1, MARGIN_S) is None
    assert evidence.probes_due(PEERS, 10.74) == []
    probe(evidence, 10.75)
    assert evidence.dead_at("c", 1, MARGIN_S) == pytest.approx(10.6)
    assert evidence.next_s(PEERS) is None
    assert evidence.dead_at("c", 2, MARGIN_S) is None
    assert evidence.dead_at("b", 1, MARGIN_S) is None


def test_anything_but_a_refusal_begins_anew(evidence: Evidence) -> None:
    """Not a time-out, not a name that does not resolve, not an answer from something else on that port."""
    probe(evidence, 10.5)
    probe(evidence, 10.75, refused=False)
    probe(evidence, 11.0)
    assert evidence.dead_at("c", 1, MARGIN_S) is None
    probe(evidence, 11.25)
    assert evidence.dead_at("c", 1, MARGIN_S) is not None


def test_without_the_end_of_the_connection_no_port_is_probed() -> None:
    evidence = Evidence()
    evidence.heard("c", 1, 7, 10.0)
    assert evidence.probes_due(PEERS, 20.0) == []


def test_a_connection_closed_on_purpose_says_nothing() -> None:
    evidence = Evidence()
    evidence.heard("c", 1, 7, 10.0)
    evidence.parted(7)
    evidence.ended(7, 10.1)
    assert evidence.probes_due(PEERS, 20.0) == []


def test_another_connection_of_that_incarnation_must_have_ended_too() -> None:
    evidence = Evidence()
    evidence.heard("c", 1, 7, 10.0)
    evidence.heard("c", 1, 8, 10.0)
    evidence.ended(7, 10.1)
    assert evidence.probes_due(PEERS, 20.0) == []
    evidence.ended(8, 20.0)
    assert evidence.probes_due(PEERS, 20.0) == ["c"]


def test_one_that_is_heard_again_is_not_dead(evidence: Evidence) -> None:
    probe(evidence, 10.5)
    evidence.heard("c", 1, 8, 10.6)
    assert evidence.probes_due(PEERS, 20.0) == []
    evidence.ended(8, 20.0)
    probe(evidence, 20.0)
    assert evidence.dead_at("c", 1, MARGIN_S) is None


def test_a_probe_under_way_when_the_member_was_heard_does_not_count(evidence: Evidence) -> None:
    assert evidence.probes_due(PEERS, 10.5) == ["c"]
    evidence.heard("c", 1, 8, 10.55)
    evidence.probed("c", 1, True, 10.6)
    evidence.ended(8, 11.0)
    probe(evidence, 11.1)
    assert evidence.dead_at("c", 1, MARGIN_S) is None


def test_another_incarnation_begins_anew_and_an_older_one_is_not_listened_to(evidence: Evidence) -> None:
    evidence.heard("c", 2, 8, 10.2)
    evidence.heard("c", 1, 9, 10.3)
    evidence.probed("c", 1, True, 10.5)
    assert evidence.probes_due(having("c", 2), 20.0) == []
    evidence.ended(8, 20.0)
    assert evidence.probes_due(having("c", 2), 20.0) == ["c"]


def test_no_probe_of_a_member_that_is_down_removed_or_in_another_incarnation(evidence: Evidence) -> None:
    assert evidence.probes_due(having("c", 1, "down"), 20.0) == []
    assert evidence.probes_due(having("c", 2), 20.0) == []
    assert evidence.probes_due({}, 20.0) == []
