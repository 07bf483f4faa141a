"""Which members may vote, and when a majority would (Ongaro 2014, section 9.6)."""

from node.raft.core.prevote import Poll, Standing, may_vote

EMPTY = Standing(0, 1)


def test_a_candidates_log_must_be_at_least_as_up_to_date_as_the_voters() -> None:
    """Raft, section 5.4.1."""
    mine = Standing(3, 10)
    assert may_vote(True, False, mine, Standing(3, 10))
    assert may_vote(True, False, mine, Standing(4, 2))
    assert not may_vote(True, False, mine, Standing(3, 9))
    assert not may_vote(True, False, mine, Standing(2, 50))


def test_a_member_without_a_log_grants_a_prevote_in_a_first_election_only() -> None:
    assert may_vote(False, True, EMPTY, EMPTY)
    assert not may_vote(False, False, EMPTY, EMPTY), "other members have a log already"
    assert not may_vote(False, True, EMPTY, Standing(1, 5))
    assert not may_vote(False, True, Standing(1, 3), Standing(1, 5))


def test_a_prevote_round_is_won_once_by_a_majority_of_the_members() -> None:
    poll = Poll(7)
    number = poll.begin("n1")
    assert not poll.won(["n1", "n2", "n3"])
    poll.answer(number, "n9")
    assert not poll.won(["n1", "n2", "n3"])
    poll.answer(number, "n3")
    assert poll.won(["n1", "n2", "n3"])
    assert not poll.won(["n1", "n2", "n3"])
    poll.begin("n1")
    poll.answer(number, "n2")
    assert not poll.won(["n1", "n2", "n3"]), "an answer to an earlier round"


def test_a_cluster_of_one_elects_itself() -> None:
    poll = Poll(7)
    poll.begin("n1")
    assert poll.won(["n1"])
