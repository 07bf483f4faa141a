"""Which of two starts of one member stays (`node.raft.claim`)."""

from node.raft.claim import FRESH_S, HEARD_S, PATIENCE_S, SETTLE_S, TIE_S, Claim, Namesake

LED = Namesake("5", "there:1", led=True)
UNLED = Namesake("5", "there:1", led=False)


def test_it_is_settled_once_all_that_can_be_reached_have_let_it_in() -> None:
    claim = Claim("1", begun_s=0.0)
    for now_s, let_in, settled in ((0.1, "b", False), (SETTLE_S, "", False), (SETTLE_S + 1, "c", True)):
        for by in let_in:
            claim.let_in(by)
        claim.look("bcd", "bc", now_s)
        assert claim.settled == settled


def test_it_waits_for_nobody_for_ever() -> None:
    claim = Claim("1", begun_s=0.0)
    claim.look("b", "b", PATIENCE_S - 0.1)
    assert not claim.settled
    claim.look("b", "b", PATIENCE_S)
    assert claim.settled


def test_it_is_not_settled_while_another_start_is_there() -> None:
    claim = Claim("1", begun_s=0.0)
    claim.let_in("b")
    claim.refused("c", UNLED, 9.0)
    claim.look("bc", "bc", 9.1)
    assert not claim.settled
    claim.look("bc", "bc", 9.1 + FRESH_S)
    assert claim.settled, "whoever refused it is not heard any more"


def test_a_start_ends_where_the_other_one_hears_a_leader_and_it_does_not() -> None:
    claim = Claim("1", begun_s=0.0)
    claim.let_in("c")
    claim.refused("b", LED, 9.0)
    assert claim.lost_to(False, 9.0) is None, "the others have yet to hear of it"
    assert claim.lost_to(False, 9.0 + HEARD_S) == LED
    assert claim.lost_to(True, 9.0 + HEARD_S) is None


def test_of_two_that_hear_no_leader_one_stays() -> None:
    ends = {}
    for mine, its in (("1", "5"), ("5", "1")):
        claim = Claim(mine, begun_s=0.0)
        claim.let_in("c")
        claim.refused("b", Namesake(its, "there:1", led=False), 0.1)
        assert claim.lost_to(False, TIE_S) is None, "all are to have answered"
        ends[mine] = claim.lost_to(False, 0.1 + TIE_S) is not None
    assert ends == {"1": False, "5": True}


def test_a_start_that_nobody_has_let_in_ends_whatever_its_id() -> None:
    claim = Claim("1", begun_s=0.0)
    claim.refused("b", UNLED, 0.0)
    assert claim.lost_to(False, TIE_S) == UNLED


def test_a_member_that_lets_it_in_after_all_has_refused_nothing() -> None:
    claim = Claim("9", begun_s=0.0)
    claim.refused("b", LED, 0.0)
    claim.let_in("b")
    assert claim.lost_to(False, TIE_S) is None
    claim.parted("b")
    assert claim.asks("b")
