"""The member's side of the lease."""

import pytest

from node.liveness.lease import Lease, LeaseNow
from node.liveness.message import Beat, HeartbeatAnswer
from node.liveness.view import View
from tests.unit.node.liveness.views import having, view


def answer(
    sent_s: float, lease_s: float | None = 2.0, *, term: int = 1, incarnation: int = 1, now_s: float = 500.0
) -> HeartbeatAnswer:
    return HeartbeatAnswer("a", 1, incarnation, term, sent_s, now_s, lease_s)


@pytest.fixture
def lease() -> Lease:
    """That of `b`, which knows that `a` leads in term 1."""
    made = Lease()
    made.observe(view("b"), 10.0)
    return made


def test_nothing_is_sent_without_a_leader() -> None:
    lease = Lease()
    assert lease.beat(10.0) is None
    lease.observe(view("b", leader=None), 10.0)
    assert lease.beat(10.0) is None


def test_a_heartbeat_bears_the_own_clock_and_the_leaders_as_it_stood_in_the_last_answer(lease: Lease) -> None:
    """Section 7: `(term, sent, echo)`."""
    assert lease.beat(10.0) == Beat("b", 1, 1, 10.0, None)
    lease.answered(answer(10.0, now_s=500.0), 10.1)
    lease.answered(answer(10.0, now_s=499.0), 10.2)  # overtaken on the way
    assert lease.beat(10.25) == Beat("b", 1, 1, 10.25, 500.0)


def test_the_echo_is_of_this_term_only(lease: Lease) -> None:
    lease.answered(answer(10.0), 10.1)
    lease.observe(view("b", term=2, leader="c"), 10.2)
    lease.answered(answer(10.0, now_s=501.0), 10.3)
    assert lease.beat(10.3) == Beat("b", 1, 2, 10.3, None)


def test_an_answer_of_a_term_that_was_left_gives_no_lease(lease: Lease) -> None:
    """Its leader may have been unseated by this member's own vote."""
    lease.observe(view("b", term=2, leader=None), 10.05)
    assert lease.answered(answer(10.0), 10.1) is None


def test_a_lease_counts_from_when_the_heartbeat_was_sent(lease: Lease) -> None:
    assert lease.answered(answer(10.0), 11.5) == LeaseNow(12.0, 1, 1)
    assert lease.now.live(11.99)
    assert not lease.now.live(12.0)


def test_an_answer_that_comes_too_late_is_no_lease(lease: Lease) -> None:
    assert lease.answered(answer(10.0), 12.0) is None


def test_a_refused_lease_is_not_sent_on_and_the_one_there_is_runs_out(lease: Lease) -> None:
    lease.answered(answer(10.0), 10.1)
    assert lease.answered(answer(10.25, None), 10.3) is None
    assert lease.now == LeaseNow(12.0, 1, 1)


def test_an_earlier_deadline_does_not_shorten_a_lease(lease: Lease) -> None:
    lease.answered(answer(10.25), 10.3)
    assert lease.answered(answer(10.0), 10.4) is None


def test_a_period_lasts_as_long_as_the_lease_is_renewed_in_time(lease: Lease) -> None:
    """Section 6: a claim that was proposed before the lapse is not started after it."""
    assert lease.answered(answer(10.0), 10.1) == LeaseNow(12.0, 1, 1)
    assert lease.answered(answer(11.0), 11.9) == LeaseNow(13.0, 1, 1)
    assert lease.answered(answer(13.1), 13.2) == LeaseNow(15.1, 2, 1)


def test_a_new_term_does_not_end_a_lease(lease: Lease) -> None:
    """An election costs at most a pause."""
    lease.answered(answer(10.0), 10.1)
    assert lease.observe(view("b", term=2, leader=None), 10.5) is None
    assert lease.observe(view("b", term=2, leader="c"), 10.7) is None
    assert lease.answered(answer(10.7, term=2), 10.8) == LeaseNow(12.7, 1, 1)


@pytest.mark.parametrize(
    "learnt",
    [
        view("b", peers=having("b", 1, "down")),
        view("b", peers=having("b", 2)),
        view("b", peers={}),
        view("b", incarnation=2, peers=having("b", 2)),
    ],
    ids=["marked down", "superseded", "removed", "joined again"],
)
def test_it_is_dropped_at_once_when_this_incarnation_is_over(lease: Lease, learnt: View) -> None:
    lease.answered(answer(10.0), 10.1)
    assert lease.observe(learnt, 10.5) == LeaseNow(10.5, 1, 1)
    assert not lease.now.live(10.5)
    assert lease.observe(learnt, 10.6) is None
    assert lease.answered(answer(10.25), 10.7) is None


def test_a_new_incarnation_begins_a_new_period(lease: Lease) -> None:
    lease.answered(answer(10.0), 10.1)
    lease.observe(view("b", incarnation=2, peers=having("b", 2)), 10.5)
    assert lease.answered(answer(10.5, incarnation=2), 10.6) == LeaseNow(12.5, 2, 2)


def test_a_member_that_has_not_joined_gets_no_lease_but_its_echo_counts(lease: Lease) -> None:
    """A member that is down still votes, so it is still part of the evidence."""
    lease.observe(view("b", incarnation=0), 10.1)
    assert lease.answered(answer(10.2, incarnation=0), 10.3) is None
    assert lease.beat(10.4) == Beat("b", 0, 1, 10.4, 500.0)


def test_draining_keeps_the_lease(lease: Lease) -> None:
    """What runs goes on while the lease lasts."""
    lease.observe(view("b", peers=having("b", 1, "draining")), 10.0)
    assert lease.answered(answer(10.0), 10.1) == LeaseNow(12.0, 1, 1)
