"""Which nodes found a cluster: all of a list, and none that has heard of one (node/raft/founding.py)."""

from dataclasses import replace

import pytest

from node.raft.founding import FRESH_S, SILENT_S, ClusterElsewhere, Founding, FoundingWait
from node.raft.statement import Binding, KnownCluster, read_binding, read_known_cluster, read_statement

NOW_S = 1_000.0
THREE = frozenset("abc")


def made(me: str, listed: frozenset[str] = THREE, life: int = 1, **known: object) -> Founding:
    return Founding(me, life, listed, NOW_S, **known)  # type: ignore[arg-type]


def talk(*founders: Founding, now_s: float = NOW_S) -> None:
    """Each hears each of the others once, and decides."""
    for one in founders:
        for other in founders:
            if one is not other:
                one.hear(other.statement(), now_s)
    for one in founders:
        while (promise := one.promise(now_s)) is not None:
            one.keep(promise)


def test_all_of_the_list_found_and_vote_once_all_are_bound() -> None:
    a, b, c = founders = [made(name) for name in "abc"]
    talk(a, b, c)
    assert len({one.founding for one in founders}) == 1
    assert a.founding
    assert not any(one.complete for one in founders), "none of them knows yet that the others are bound"
    talk(a, b, c)
    assert all(one.complete for one in founders)


def test_alone_on_its_list_it_founds_at_once() -> None:
    alone = made("a", frozenset("a"))
    talk(alone)
    assert alone.complete


def test_a_majority_founds_nothing_and_says_who_is_silent() -> None:
    a, b = made("a"), made("b")
    for _ in range(3):
        talk(a, b)
    assert a.founding == b.founding == ""
    assert a.outlook(NOW_S) == FoundingWait(silent=("c",))
    said = "waiting to found a cluster: c has not answered (not started, out of reach, or another secret)"
    assert str(a.outlook(NOW_S)) == said
    assert a.outlook(NOW_S + FRESH_S + 1) == FoundingWait(silent=("b", "c")), "an answer does not count for ever"


def test_lists_that_differ_found_nothing_and_what_differs_is_said() -> None:
    a, b, c = made("a"), made("b"), made("c", frozenset("abd"))
    for _ in range(3):
        talk(a, b, c)
    assert a.founding == ""
    assert a.outlook(NOW_S) == FoundingWait(differing=(("c", ("c",), ("d",)),))
    said = "the list of members that c has (ROTA_MEMBERS) differs from the one here: it lacks c and it names d besides"
    assert said in str(a.outlook(NOW_S))


def test_a_list_that_differs_and_is_not_told_yet_is_no_list_that_others_are_left_out_of() -> None:
    """A node that has just started sends the digest of its list first, and the list in its next message."""
    a, c = made("a"), made("c", frozenset("abd"))
    a.hear(replace(c.statement(), members=(), without=()), NOW_S)
    said = str(a.outlook(NOW_S))
    assert "c has another list of members (ROTA_MEMBERS), and has not told yet which" in said
    assert "by hand" not in said


def test_who_is_on_the_list_of_others_only_does_not_keep_those_of_the_list_from_founding() -> None:
    a, b, c, d = made("a"), made("b"), made("c"), made("d", frozenset("abcd"))
    talk(a, b, c, d)
    talk(a, b, c, d)
    assert a.complete
    assert d.founding == ""


def test_told_of_a_cluster_by_anybody_it_never_founds_one() -> None:
    a, b, c = made("a"), made("b"), made("c")
    a.hear(made("d").statement("X", "de"), NOW_S)
    assert a.promise(NOW_S) == KnownCluster("X", "d"), "it is kept before anything follows from it"
    talk(a, b, c)
    talk(a, b, c)
    assert (a.known, b.known, c.known) == (KnownCluster("X", "d"),) * 3, "who is told tells the others"
    assert not any(one.founding for one in (a, b, c))
    assert a.outlook(NOW_S) == ClusterElsewhere("X", "d")
    again = made("a", known=read_known_cluster(KnownCluster("X", "d").note()))
    talk(again, made("b"), made("c"))
    assert again.founding == ""


def test_a_member_that_belongs_to_a_cluster_says_whether_it_knows_this_one() -> None:
    a = made("a", frozenset("abcd"))
    a.hear(made("b").statement("X", "bc"), NOW_S)
    assert a.outlook(NOW_S) == ClusterElsewhere("X", "b", ("b",), knows_me=False)
    assert "have it let in (rota join)" in str(a.outlook(NOW_S))
    a.hear(made("c").statement("X", "abc"), NOW_S)
    assert a.outlook(NOW_S) == ClusterElsewhere("X", "b", ("b", "c"), knows_me=True)
    assert "waits for its leader" in str(a.outlook(NOW_S))


def test_told_that_it_is_of_a_cluster_itself_it_knows_that_it_has_lost_it() -> None:
    a, c = made("a"), made("c")
    a.hear(c.statement("X", "abc"), NOW_S)
    b = made("b", known=KnownCluster("X", "a"))
    a.hear(b.statement(), NOW_S)
    b.hear(a.statement(), NOW_S)
    assert a.outlook(NOW_S) == ClusterElsewhere("X", "c", ("c",), knows_me=True)
    assert b.outlook(NOW_S) == ClusterElsewhere("X", "a"), "neither of the two has said that it is of it"


def test_a_list_that_is_shortened_meanwhile_makes_no_second_cluster() -> None:
    """c, d and e are bound to a founding of five; a and b, started with a list of two, are not, and found theirs."""
    five = frozenset("abcde")
    a, b, c, d, e = (made(name, five) for name in "abcde")
    for one in (c, d, e):
        for other in (a, b, c, d, e):
            one.hear(other.statement(), NOW_S)
    talk(c, d, e)
    talk(c, d, e)
    assert c.founding == d.founding == e.founding != ""
    assert not any(one.complete for one in (c, d, e)), "a majority of five, and no election"
    a, b = made("a", frozenset("ab")), made("b", frozenset("ab"))
    talk(a, b)
    talk(a, b)
    assert a.complete
    assert b.complete


def test_a_folder_that_is_lost_is_no_part_of_the_founding_it_was_bound_to() -> None:
    a, b, c = made("a"), made("b"), made("c")
    talk(a, b, c)
    anew = made("c", life=2)
    talk(a, b, anew)
    assert anew.founding == ""
    assert not a.complete
    assert dict(anew.outlook(NOW_S).held).keys() == {"a", "b"}  # type: ignore[union-attr]


def test_what_is_bound_stays_so_over_a_restart_whatever_the_list_is_then() -> None:
    a, b, c = made("a"), made("b"), made("c")
    talk(a, b, c)
    assert a.bound is not None
    again = made("a", frozenset("ab"), bound=read_binding(a.bound.note()))
    assert (again.listed, again.founding) == (THREE, a.founding)
    talk(again, b, c)
    assert again.complete


def test_without_a_member_that_is_silent_the_others_found_by_hand() -> None:
    a, b = made("a"), made("b")
    talk(a, b)
    later_s = NOW_S + SILENT_S + 1
    assert a.leave_out("c", later_s) is None
    talk(a, b, now_s=later_s)
    assert b.without == {"c"}, "b does not hear it either, and accepts it"
    talk(a, b, now_s=later_s)
    talk(a, b, now_s=later_s)
    assert a.complete
    assert b.complete
    assert a.bound == Binding(a.founding, THREE, frozenset("c"))


def test_who_hears_a_member_does_not_accept_that_it_is_left_out() -> None:
    a, b, c = made("a"), made("b"), made("c")
    later_s = NOW_S + SILENT_S + 1
    assert a.leave_out("c", later_s) is None
    b.hear(c.statement(), later_s)
    for _ in range(3):
        talk(a, b, now_s=later_s)
    assert b.without == frozenset()
    assert a.founding == b.founding == ""
    a.hear(c.statement(), later_s)
    assert a.without == frozenset(), "it is not off after all"


@pytest.mark.parametrize(
    ("without", "known", "why"),
    [
        ("d", {}, "not in the list"),
        ("a", {}, "itself"),
        ("bc", {}, "more than half"),
        ("c", {"known": KnownCluster("X", "b")}, "there is a cluster, X"),
        ("c", {"blank": False}, "has taken part"),
        ("c", {"begun_s": NOW_S + SILENT_S}, "was heard"),
    ],
)
def test_leaving_out_is_refused_where_it_is_not_safe(without: str, known: dict[str, object], why: str) -> None:
    a = made("a")
    for name, value in known.items():
        setattr(a, name, value)
    said = a.leave_out(without, NOW_S + SILENT_S + 1)
    assert said is not None
    assert why in said
    assert a.without == frozenset()


def test_bound_to_all_it_may_still_found_without_one_unless_it_has_voted() -> None:
    """c answers, and its machine is lost before it is bound."""
    a, b, c = made("a"), made("b"), made("c")
    for one in (a, b):
        for other in (a, b, c):
            one.hear(other.statement(), NOW_S)
    talk(a, b)
    assert a.founding
    later_s = NOW_S + SILENT_S + 1
    before = a.founding
    assert a.leave_out("c", later_s) is None
    for _ in range(4):
        talk(a, b, now_s=later_s)
    assert a.complete
    assert b.founding == a.founding != before
    voter = replace(a, blank=False, voted=True)
    assert voter.leave_out("bc", later_s) is not None


def test_a_statement_is_the_same_after_its_way() -> None:
    said = made("a", without=frozenset("c")).statement()
    assert read_statement(said.message()) == said
    assert read_statement(said.question()) == replace(said, members=(), without=())
    for wrong in ({}, {**said.message(), "life": "x"}, {**said.message(), "members": 3}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            read_statement(wrong)
