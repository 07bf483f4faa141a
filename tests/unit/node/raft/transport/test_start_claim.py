"""Which of two starts of one member stays (`node.raft.transport.start_claim`)."""

from collections.abc import Iterator
from random import Random

import pytest

from node.raft.transport.start_claim import (
    FRESH_S,
    HEARD_S,
    PATIENCE_S,
    REFUSAL_S,
    STAY_S,
    TIE_S,
    OtherStart,
    StartClaim,
)

SETTLE_S = StartClaim("", 0.0).settle_s
LED = OtherStart("5", "there:1", led=True)
UNLED = OtherStart("5", "there:1", led=False)
SETTLED = OtherStart("5", "there:1", led=False, settled=True)


def test_a_start_is_settled_once_every_reachable_member_admitted_it() -> None:
    claim = StartClaim("1", begun_s=0.0)
    for now_s, let_in, settled in ((0.1, "b", False), (SETTLE_S + 0.2, "", False), (SETTLE_S + 1, "c", True)):
        for by in let_in:
            claim.admitted(by, 1, now_s)
        claim.observe("bcd", "bc", now_s)
        assert claim.settled == settled


def test_a_start_is_settled_after_the_maximum_wait() -> None:
    claim = StartClaim("1", begun_s=0.0)
    claim.observe("b", "b", PATIENCE_S - 0.1)
    assert not claim.settled
    claim.observe("b", "b", PATIENCE_S)
    assert claim.settled


def test_a_start_is_not_settled_while_another_start_is_connected() -> None:
    claim = StartClaim("1", begun_s=0.0)
    claim.admitted("b", 1, 0.0)
    claim.refused("c", UNLED, 9.0)
    claim.observe("bc", "bc", 9.1)
    assert not claim.settled
    claim.observe("bc", "bc", 9.1 + FRESH_S)
    assert claim.settled, "the refusal has expired"


def test_a_start_admitted_by_no_member_any_more_must_settle_again() -> None:
    """While it was away another start may have taken its place, at a member that it has yet to reach."""
    claim = StartClaim("1", begun_s=0.0)
    for by in "bc":
        claim.admitted(by, 1, 0.0)
    claim.observe("bc", "bc", 0.1)
    settled = [claim.settled]
    for by in "bc":
        claim.parted(by, 20.0)
        settled.append(claim.settled)
    assert settled == [True, True, False]
    settled = []
    for reached, now_s in (("", 30.0), ("b", 40.0), ("b", 40.0 + SETTLE_S)):
        for by in reached:
            claim.admitted(by, 1, now_s)
        claim.observe("bc", reached, now_s)
        settled.append(claim.settled)
    assert settled == [False, False, True], (
        "no member could count its vote; the other start may be reached at any moment"
    )


def test_a_start_does_not_wait_for_a_member_whose_port_refuses_connections() -> None:
    """The leader died just when the third member was back: the election was delayed by a second."""
    claim = StartClaim("1", begun_s=0.0)
    claim.admitted("b", 1, 0.0)
    claim.observe("bc", "b", SETTLE_S, {})
    claim.parted("b", 20.0)
    settled = []
    for now_s, refused_s in ((20.1, 20.1), (20.3, 20.1), (20.3 + REFUSAL_S + 0.1, 20.3), (20.9, 20.9)):
        if now_s > 20.2:
            claim.admitted("c", 1, 20.2)
        claim.observe("bc", "c" if now_s > 20.2 else "", now_s, {"b": refused_s})
        settled.append(claim.settled)
    assert settled == [False, False, False, True], (
        "it refused a connection recently, after another member had admitted this start"
    )


def test_a_member_that_refused_and_is_connected_now_is_waited_for() -> None:
    claim = StartClaim("1", begun_s=0.0)
    claim.admitted("b", 1, 0.0)
    claim.observe("bc", "bc", 0.1, {"c": 0.05})
    assert not claim.settled, "a new process answers there, which may have admitted another start"
    claim.observe("bcd", "b", 0.1, {"c": 0.05})
    assert not claim.settled, "the fourth is not known to be dead"


def test_a_start_admitted_by_no_member_is_not_settled_when_all_are_dead() -> None:
    claim = StartClaim("1", begun_s=0.0)
    claim.observe("bc", "b", 0.1, {"c": 0.1})
    claim.observe("bc", "", 0.2, {"b": 0.2, "c": 0.2})
    assert not claim.settled


def lives(rng: Random) -> Iterator[tuple[float, list[StartClaim]]]:
    """Two starts of one member, and two other members that die and come back at any moment, all on one network.

    Each of the two admits the first caller. Calls take their time, and a port refuses them while its member is dead.
    """
    starts = [StartClaim(name, begun_s=0.0) for name in "12"]
    holds: dict[str, str | None] = {"b": None, "c": None}
    reached: dict[str, set[str]] = {"1": set(), "2": set()}
    refused_s: dict[str, dict[str, float]] = {"1": {}, "2": {}}
    dead: set[str] = set()
    for tick in range(1000):
        now_s = tick / 100
        for member in holds:
            if rng.random() < 0.05:
                dead ^= {member}
                holds[member] = None
                for claim in starts:
                    reached[claim.start].discard(member)
                    claim.parted(member, now_s)
        for claim in rng.sample(starts, 2):
            for member, held in holds.items():
                if rng.random() < 0.7 or not claim.asks(member):
                    continue
                if member in dead:
                    refused_s[claim.start][member] = now_s
                    continue
                holder = holds[member] = held or claim.start
                reached[claim.start].add(member)
                if holder == claim.start:
                    claim.admitted(member, 1, now_s)
                else:
                    claim.refused(member, OtherStart(holder, "there:1", led=False), now_s)
            claim.observe("bc", reached[claim.start], now_s, refused_s[claim.start])
        yield now_s, starts


@pytest.mark.parametrize("seed", range(30))
def test_two_starts_that_reach_the_same_members_are_never_both_settled(seed: int) -> None:
    settled = 0
    for now_s, starts in lives(Random(seed)):
        assert not all(claim.settled for claim in starts), f"both starts are settled after {now_s} s"
        settled += any(claim.settled for claim in starts)
    assert settled > 50, "one of them is settled part of the time"


def test_a_start_votes_only_in_terms_later_than_those_of_the_admitting_members() -> None:
    claim = StartClaim("1", begun_s=0.0)
    for by, term in (("b", 7), ("c", 6)):
        claim.admitted(by, term, 0.0)
    assert claim.fence == 7


def test_a_start_without_a_leader_ends_if_the_other_start_has_one() -> None:
    claim = StartClaim("1", begun_s=0.0)
    claim.admitted("c", 1, 0.0)
    claim.refused("b", LED, 9.0)
    assert (claim.lost_to(True, 9.0), claim.ends) == (None, False)
    assert (claim.lost_to(False, 9.1), claim.ends) == (None, True), "the other members have not been told yet"
    assert claim.lost_to(True, 9.1 + HEARD_S) == LED, "the decision is final"


@pytest.mark.parametrize("let_in", ["", "c"])
def test_of_two_starts_without_a_leader_one_stays(let_in: str) -> None:
    ends = {}
    for mine, its in (("1", "5"), ("5", "1")):
        claim = StartClaim(mine, begun_s=0.0)
        for by in let_in:
            claim.admitted(by, 1, 0.0)
        claim.refused("b", OtherStart(its, "there:1", led=False), 0.1)
        claim.lost_to(False, TIE_S)
        assert not claim.ends, "it decides only after all members had time to answer"
        claim.lost_to(False, 0.1 + TIE_S)
        ends[mine] = claim.lost_to(False, 0.1 + TIE_S + HEARD_S) is not None
    assert ends == {"1": False, "5": True}


def test_an_unsettled_start_ends_in_favour_of_a_settled_one() -> None:
    claim = StartClaim("1", begun_s=0.0)
    claim.refused("b", SETTLED, 0.0)
    claim.lost_to(False, TIE_S)
    assert claim.lost_to(False, TIE_S + HEARD_S) == SETTLED


def test_an_admission_cancels_the_same_members_refusal() -> None:
    claim = StartClaim("9", begun_s=0.0)
    claim.refused("b", LED, 0.0)
    claim.admitted("b", 1, 0.0)
    assert claim.lost_to(False, TIE_S) is None
    claim.parted("b", TIE_S)
    assert claim.asks("b")


def test_a_start_that_reported_a_leader_stays_during_a_short_loss_of_it() -> None:
    """The other start had ended because of that answer: both ended, and a cluster of three waited."""
    claim = StartClaim("9", begun_s=0.0)
    claim.refused("b", UNLED, 0.0)
    assert claim.answer(True, 1.0) == (True, False)
    for now_s in (TIE_S, FRESH_S):
        assert (claim.lost_to(False, now_s), claim.ends) == (None, False)
    claim.refused("b", UNLED, 1.0 + STAY_S - TIE_S)
    claim.lost_to(False, 1.0 + STAY_S)
    assert claim.ends, "the other start is still running"
    assert claim.answer(True, 1.0 + STAY_S) is None, "a start that is ending blocks no other"


def test_a_settled_start_that_knows_of_a_led_start_does_not_renew_its_promise_to_stay() -> None:
    """The member that had admitted it kept asking, so both starts stayed for ever."""
    claim = StartClaim("1", begun_s=0.0)
    claim.admitted("c", 1, 0.0)
    claim.observe("c", "c", 0.0)
    assert claim.answer(False, 0.0) == (False, True)
    for tenth in range(int(10 * (STAY_S + HEARD_S)) + 1):
        claim.refused("b", LED, tenth / 10)
        lost = claim.lost_to(False, tenth / 10)
        if not claim.ends:
            assert claim.answer(False, tenth / 10) == (False, False)
    assert lost == LED


@pytest.mark.parametrize("seed", range(60))
def test_two_starts_never_both_end_under_any_message_timing(seed: int) -> None:
    """Leaders come and go at both, and an answer of one reaches the other up to a second later."""
    rng = Random(seed)
    claims = {name: StartClaim(name, begun_s=0.0) for name in rng.sample("12", 2)}
    led = dict.fromkeys(claims, False)
    underway: list[tuple[float, str, OtherStart]] = []
    for tick in range(600):
        now_s = tick / 10
        for name, claim in claims.items():
            other = "2" if name == "1" else "1"
            led[name] = led[name] ^ (rng.random() < 0.05)
            if rng.random() < 0.02:
                claim.settled = True
            if rng.random() < 0.1 and (said := claim.answer(led[name], now_s)) is not None:
                underway.append((now_s + rng.random(), other, OtherStart(name, "there:1", *said)))
            for said_s, to, what in list(underway):
                if to == name and said_s <= now_s:
                    underway.remove((said_s, to, what))
                    claim.refused(rng.choice("bc"), what, now_s)
            claim.lost_to(led[name], now_s)
        assert not all(claim.ends for claim in claims.values())
