"""The leader's side: grants and verdicts."""

import pytest

from node.liveness.detector import Detector, LivenessVerdict
from node.liveness.evidence import Evidence
from node.liveness.message import Beat, HeartbeatAnswer
from node.liveness.view import Peer, View
from node.state.value import Settings
from tests.unit.node.liveness.views import having, peer, view

ELECTED_S = 100.0
WAIT_S = 3.5
"""window_s + lease_s + margin_s."""


@pytest.fixture
def detector() -> Detector:
    """That of `a`, elected at 100 s."""
    made = Detector(Evidence())
    made.observe(view(), ELECTED_S)
    return made


def beat(
    member: str = "b", now_s: float = ELECTED_S, *, echo_s: float | None = None, term: int = 1, incarnation: int = 1
) -> Beat:
    """One whose sender's clock is 90 s behind."""
    return Beat(member, incarnation, term, now_s - 90, echo_s)


def granted(answer: HeartbeatAnswer | None) -> bool:
    assert answer is not None
    return answer.lease_s is not None


def keep_well(detector: Detector, members: str, since_s: float, until_s: float) -> list[LivenessVerdict]:
    """Those heartbeat in time, from `since_s` on, and the leader ticks; gives the verdicts meanwhile."""
    verdicts = []
    now_s = since_s
    while now_s <= until_s:
        for member in members:
            detector.beat(beat(member, now_s, echo_s=now_s - 0.25), now_s)
        verdicts += detector.tick(now_s)
        now_s += 0.25
    return verdicts


def gone(evidence: Evidence, member: str = "c", at_s: float = ELECTED_S + 0.25) -> None:
    """The evidence that its process has ended at that time."""
    evidence.heard(member, 1, 7, at_s)
    evidence.ended(7, at_s)
    for probe_s in (at_s + 0.5, at_s + 0.75):
        assert evidence.probes_due({member: peer()}, probe_s) == [member]
        evidence.probed(member, 1, True, probe_s)


# A lease is granted only while ...


def test_an_answer_repeats_what_it_answers_and_bears_the_leaders_clock(detector: Detector) -> None:
    assert detector.beat(beat(echo_s=99.9), 100.0) == HeartbeatAnswer("a", 1, 1, 1, 10.0, 100.0, 2.0)


def test_a_first_heartbeat_is_answered_without_a_lease(detector: Detector) -> None:
    """Its echo is what the evidence begins with."""
    assert not granted(detector.beat(beat(), 100.0))


def test_the_evidence_is_the_echo_and_never_the_arrival(detector: Detector) -> None:
    """A heartbeat that was under way for two seconds says nothing about now."""
    assert granted(detector.beat(beat(echo_s=100.0), 100.9))
    assert not granted(detector.beat(beat(echo_s=100.0), 101.0))
    assert not granted(detector.beat(beat(echo_s=100.0), 102.0))


def test_an_echo_from_the_future_is_none(detector: Detector) -> None:
    assert not granted(detector.beat(beat(echo_s=100.1), 100.0))


def test_an_echo_of_another_term_is_none(detector: Detector) -> None:
    assert detector.beat(beat(echo_s=100.0, term=2), 100.0) is None
    assert not granted(detector.beat(beat("c"), 100.0))


def test_the_leaders_own_lease_rests_on_the_majoritys_echoes(detector: Detector) -> None:
    """So the leader's own runs stop too when it is cut off."""
    assert not granted(detector.beat(beat("a"), 100.0))
    detector.beat(beat("b", echo_s=100.0), 100.1)
    assert granted(detector.beat(beat("a"), 100.9))
    assert not granted(detector.beat(beat("a"), 101.1))


def test_of_five_two_others_must_echo() -> None:
    detector = Detector(Evidence())
    detector.observe(view(peers={name: peer() for name in "abcde"}), 100.0)
    assert not granted(detector.beat(beat("b", echo_s=100.0), 100.1))
    assert granted(detector.beat(beat("c", echo_s=100.0), 100.1))


def test_a_single_member_is_its_own_majority() -> None:
    detector = Detector(Evidence())
    detector.observe(view(peers={"a": peer()}), 100.0)
    assert granted(detector.beat(beat("a"), 100.0))


def test_the_echoes_of_an_earlier_leadership_are_forgotten(detector: Detector) -> None:
    detector.beat(beat(echo_s=100.0), 100.1)
    detector.observe(view(term=2, leader=None), 100.2)
    detector.observe(view(term=2), 100.3)
    assert not granted(detector.beat(beat("c", term=2), 100.4))


def test_not_before_the_own_lead_entry_is_applied(detector: Detector) -> None:
    detector.observe(view(lead_applied=False), 100.0)
    assert not granted(detector.beat(beat(echo_s=100.0), 100.1))
    detector.observe(view(), 100.2)
    assert granted(detector.beat(beat(echo_s=100.0), 100.3))


@pytest.mark.parametrize(
    "known", [having("b", 1, "down"), having("b", 2), having("b", 0)], ids=["down", "superseded", "not joined"]
)
def test_only_the_present_incarnation_of_a_member_that_is_not_down(detector: Detector, known: dict[str, Peer]) -> None:
    detector.observe(view(peers=known), 100.0)
    assert not granted(detector.beat(beat(echo_s=100.0), 100.1))
    assert granted(detector.beat(beat("c", echo_s=100.0), 100.1))  # the evidence of the first one counts


def test_draining_keeps_its_lease(detector: Detector) -> None:
    detector.observe(view(peers=having("b", 1, "draining")), 100.0)
    assert granted(detector.beat(beat(echo_s=100.0), 100.1))


def test_a_process_that_is_not_a_member_gets_no_answer(detector: Detector) -> None:
    assert detector.beat(beat("z", echo_s=100.0), 100.0) is None


def test_a_follower_gives_no_answers_and_no_verdicts(detector: Detector) -> None:
    detector.observe(view(leader="b"), 100.0)
    assert detector.beat(beat(echo_s=100.0), 100.0) is None
    assert detector.tick(200.0) == []
    assert Detector(Evidence()).tick(1.0) == []


def test_no_lease_while_a_mark_down_is_under_way(detector: Detector) -> None:
    assert keep_well(detector, "ab", 100.0, 103.5)
    assert not granted(detector.beat(beat("c", echo_s=103.6), 103.7))
    assert granted(detector.beat(beat("b", echo_s=103.6), 103.7))


# Silent


def test_a_silent_member_is_marked_down_after_lease_and_margin(detector: Detector) -> None:
    keep_well(detector, "abc", 100.0, 104.0)
    assert keep_well(detector, "ab", 104.25, 106.25) == []
    assert keep_well(detector, "ab", 106.5, 106.5) == [LivenessVerdict("c", 1, "silent", 1)]


def test_no_verdict_before_the_leases_of_an_older_leader_have_expired(detector: Detector) -> None:
    """window_s + lease_s + margin_s after its own election."""
    assert keep_well(detector, "ab", ELECTED_S, ELECTED_S + WAIT_S - 0.25) == []
    assert keep_well(detector, "ab", ELECTED_S + WAIT_S, ELECTED_S + WAIT_S) == [LivenessVerdict("c", 1, "silent", 1)]


def test_each_election_begins_the_wait_anew(detector: Detector) -> None:
    keep_well(detector, "ab", 100.0, 103.0)
    detector.observe(view(term=2), 103.1)
    detector.observe(view(term=2), 105.0)
    assert detector.next_s(105.0) == pytest.approx(103.1 + WAIT_S)


def test_no_verdict_before_the_own_lead_entry_is_applied(detector: Detector) -> None:
    detector.observe(view(lead_applied=False), 100.0)
    assert keep_well(detector, "ab", 100.0, 110.0) == []
    assert detector.next_s(110.0) is None


def test_a_late_thread_extends_every_deadline_by_the_delay(detector: Detector) -> None:
    """HashiCorp's Lifeguard: it was not there to hear."""
    keep_well(detector, "abc", 100.0, 110.0)
    assert detector.tick(120.0) == []
    assert keep_well(detector, "ab", 120.0, 121.75) == []
    assert keep_well(detector, "ab", 122.0, 122.5) == [LivenessVerdict("c", 1, "silent", 1)]


def test_a_leader_without_a_majority_gives_no_verdicts(detector: Detector) -> None:
    keep_well(detector, "abc", 100.0, 104.0)
    assert keep_well(detector, "a", 104.25, 120.0) == []


def test_an_earlier_incarnations_heartbeats_are_not_the_members(detector: Detector) -> None:
    detector.observe(view(peers=having("c", 2)), 103.0)
    verdicts = []
    for quarter in range(12, 40):
        now_s = 100.0 + quarter / 4
        detector.beat(beat("c", now_s, echo_s=now_s - 0.1, incarnation=1), now_s)
        verdicts += keep_well(detector, "ab", now_s, now_s)
    assert verdicts[0] == LivenessVerdict("c", 2, "silent", 1)


def test_a_new_incarnation_is_watched_from_its_join_on(detector: Detector) -> None:
    keep_well(detector, "ab", 100.0, 103.5)
    detector.observe(view(peers=having("c", 1, "down")), 103.6)
    assert keep_well(detector, "ab", 103.75, 110.0) == []
    detector.observe(view(peers=having("c", 2)), 110.0)
    assert keep_well(detector, "ab", 110.0, 112.25) == []
    assert keep_well(detector, "ab", 112.5, 112.5) == [LivenessVerdict("c", 2, "silent", 1)]


def test_a_verdict_is_given_again_each_second_until_the_state_shows_it(detector: Detector) -> None:
    assert len(keep_well(detector, "ab", 100.0, 106.5)) == 4
    detector.observe(view(peers=having("c", 1, "down")), 106.6)
    assert keep_well(detector, "ab", 106.75, 110.0) == []


def test_a_removed_member_is_forgotten(detector: Detector) -> None:
    left: View = view(peers={name: peer() for name in "ab"})
    detector.observe(left, 100.0)
    assert keep_well(detector, "ab", 100.0, 110.0) == []


# Gone


@pytest.fixture
def evidence() -> Evidence:
    return Evidence()


def test_gone_is_at_once_and_needs_neither_silence_nor_the_wait_of_an_election(evidence: Evidence) -> None:
    gone(evidence)
    detector = Detector(evidence)
    detector.observe(view(), 101.0)
    assert detector.tick(101.0) == [LivenessVerdict("c", 1, "gone", 1)]


def test_gone_leaves_the_workers_margin_s_to_end(evidence: Evidence) -> None:
    gone(evidence)
    detector = Detector(evidence)
    detector.observe(view(settings=Settings(margin_s=2.0)), 101.0)
    assert detector.tick(101.0) == []
    assert detector.next_s(101.0) == pytest.approx(102.25)
    assert detector.tick(102.25) == [LivenessVerdict("c", 1, "gone", 1)]


def test_gone_needs_the_lead_entry(evidence: Evidence) -> None:
    gone(evidence)
    detector = Detector(evidence)
    detector.observe(view(lead_applied=False), 101.0)
    assert detector.tick(101.0) == []


def test_refusal_is_death_switches_gone_off(evidence: Evidence) -> None:
    gone(evidence)
    detector = Detector(evidence)
    detector.observe(view(settings=Settings(refusal_is_death=False)), 101.0)
    assert keep_well(detector, "ab", 101.0, 104.25) == []
    assert keep_well(detector, "ab", 104.5, 104.5) == [LivenessVerdict("c", 1, "silent", 1)]


def test_gone_is_said_of_that_incarnation_only(evidence: Evidence) -> None:
    gone(evidence)
    detector = Detector(evidence)
    detector.observe(view(peers=having("c", 2)), 101.0)
    assert detector.tick(101.0) == []


# Settings


def test_longer_waits_hold_for_verdicts_at_once_and_for_leases_when_all_know_of_them(detector: Detector) -> None:
    """A change takes effect after the longer of the old and new timeouts."""
    keep_well(detector, "abc", 100.0, 110.0)
    detector.observe(view(settings=Settings(lease_s=10.0)), 110.0)
    answer = detector.beat(beat(echo_s=110.0), 110.1)
    assert answer is not None and answer.lease_s == 2.0
    assert keep_well(detector, "ab", 110.25, 120.25) == []
    assert keep_well(detector, "ab", 120.5, 120.5) == [LivenessVerdict("c", 1, "silent", 1)]
    keep_well(detector, "ab", 120.75, 122.0)
    answer = detector.beat(beat(echo_s=122.0), 122.1)
    assert answer is not None and answer.lease_s == 10.0


def test_shorter_waits_hold_for_leases_at_once_and_for_verdicts_when_the_old_leases_are_over() -> None:
    detector = Detector(Evidence())
    detector.observe(view(settings=Settings(lease_s=10.0)), 100.0)
    keep_well(detector, "abc", 100.0, 120.0)
    detector.observe(view(), 120.0)
    answer = detector.beat(beat(echo_s=120.0), 120.1)
    assert answer is not None and answer.lease_s == 2.0
    assert keep_well(detector, "ab", 120.25, 130.25) == []
    assert keep_well(detector, "ab", 130.5, 130.5) == [LivenessVerdict("c", 1, "silent", 1)]
