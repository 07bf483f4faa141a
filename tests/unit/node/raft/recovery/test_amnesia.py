"""Which answers a member that has lost its log needs before it may follow, and vote."""

import pytest

from node.raft.core.prevote import Standing
from node.raft.recovery.amnesia import AmnesiaAnswer, Ballot, LeaderLog, RecoveryProgress, latest_leader, majority_lost

FIVE = frozenset("abcde")


def answer(
    term: int,
    *,
    last: int = 9,
    leads: bool = False,
    remembers: bool = True,
    lost: bool = False,
    of: frozenset[str] = FIVE,
) -> AmnesiaAnswer:
    return AmnesiaAnswer(term, Standing(term, last), leads, of, remembers, lost)


def test_answers_must_intersect_every_majority_with_the_lost_member() -> None:
    two = {"b": answer(3, leads=True), "c": answer(3)}
    assert latest_leader("a", two) is None, "with d and e it may have elected a later leader"
    assert latest_leader("a", {**two, "d": answer(3)}) == LeaderLog(3, "b", 9)


def test_a_leader_of_an_earlier_term_is_ignored() -> None:
    three = {"b": answer(3, leads=True), "c": answer(4), "d": answer(3)}
    assert latest_leader("a", three) is None
    assert latest_leader("a", {**three, "e": answer(4, leads=True, last=12)}) == LeaderLog(4, "e", 12)


def test_an_unsuccessful_candidate_that_is_gone_is_not_waited_for() -> None:
    """It had begun a term in which no member followed it, or was removed and stood for election alone."""
    enough = {"b": answer(3, leads=True), "c": answer(7), "d": answer(3), "e": answer(3)}
    assert latest_leader("a", enough) == LeaderLog(3, "b", 9)
    assert latest_leader("a", {"f": answer(7), **enough}) == LeaderLog(3, "b", 9)


def test_answers_of_members_without_a_log_do_not_count() -> None:
    three = {"b": answer(3, leads=True), "c": answer(3), "d": answer(0, remembers=False)}
    assert latest_leader("a", three) is None
    assert latest_leader("a", {**three, "e": answer(3)}) is not None


def test_the_configuration_is_taken_from_the_leader() -> None:
    """The configuration of a member that has lost its log may be that of a first start, with three."""
    three = frozenset("abc")
    assert latest_leader("a", {"b": answer(3, of=three), "c": answer(4, leads=True)}) is None
    assert latest_leader("a", {"b": answer(4, leads=True, of=three), "c": answer(3, of=three)}) == LeaderLog(4, "b", 9)
    assert latest_leader("f", {"b": answer(4, leads=True), "c": answer(4), "d": answer(4)}) is None, "f is no member"


def test_recovery_is_complete_at_the_leaders_last_index_in_its_term() -> None:
    progress = RecoveryProgress("a", {"b": answer(4, leads=True, last=20), "c": answer(4), "d": answer(4)})
    for matched, complete in [((4, 19), False), ((4, 20), True), ((3, 25), False), ((5, 3), False)]:
        progress.matched = matched
        assert progress.complete(4) is complete, matched
    progress.matched = (4, 20)
    assert not progress.complete(5), "it has heard of a later term since, in which it may have voted"


@pytest.mark.parametrize(("lost", "losers"), [("", ""), ("b", ""), ("bc", "abc"), ("bcd", "abcd")])
def test_a_majority_without_logs_is_detected_and_named(lost: str, losers: str) -> None:
    answers = {member: answer(0, remembers=False, lost=True) for member in lost}
    assert majority_lost("a", FIVE, answers) == frozenset(losers)
    if losers:
        grown = {**answers, "e": answer(4, of=frozenset("abcdefgh"))}
        assert majority_lost("a", FIVE, grown) == frozenset(), "a member with a log knows a larger configuration"


def test_a_vote_from_before_amnesia_does_not_count_with_a_vote_that_knows_of_it() -> None:
    """Michael et al. 2017: otherwise a vote that its voter has forgotten, and may give again, elects a leader."""
    early = Ballot()
    assert early.take(7, "lost", 1, {})
    assert not early.take(7, "knows", 1, {"lost": 2})
    assert early.take(7, "else", 1, {})
    late = Ballot()
    assert late.take(7, "knows", 1, {"lost": 2})
    assert not late.take(7, "lost", 1, {})
    assert late.take(8, "lost", 2, {})
    assert late.take(8, "knows", 1, {"lost": 2})
    assert late.take(8, "knew", 1, {"lost": 1}), "knowing only of an earlier life does not conflict"


def test_a_member_has_one_vote_per_term_and_late_votes_are_ignored() -> None:
    ballot = Ballot()
    assert ballot.take(7, "knows", 1, {"lost": 2})
    assert not ballot.take(7, "knows", 1, {"lost": 2}), "a repeated vote"
    assert not ballot.take(6, "else", 1, {}), "a vote of an earlier term"
    assert not ballot.take(7, "lost", 1, {}), "the lives learned from the earlier vote still count"
    assert ballot.take(8, "knows", 1, {})
