"""Which nodes found a cluster: all nodes of a list, and no node that has heard of a cluster (node/raft/founding)."""

from dataclasses import replace

import pytest

from node.raft.founding.founding import FRESH_S, SILENT_S, ClusterElsewhere, Founding, FoundingWait
from node.raft.founding.statement import Binding, KnownCluster, read_binding, read_known_cluster, read_statement

NOW_S = 1_000.0
THREE = frozenset("abc")


def made(me: str, listed: frozenset[str] = THREE, life: int = 1, **known: object) -> Founding:
    return Founding(me, life, listed, NOW_S, **known)  # type: ignore[arg-type]


def talk(*founders: Founding, now_s: float = NOW_S) -> None:
    """Every node hears every other one once, and decides."""
    for one in founders:
        for other in founders:
            if one is not other:
                one.hear(other.statement(), now_s)
    for one in founders:
        while (promise := one.promise(now_s)) is not None:
            one.keep(promise)


def test_listed_nodes_found_and_vote_once_all_are_bound() -> None:
    a, b, c = founders = [made(name) for name in "abc"]
    talk(a, b, c)
    assert len({one.founding for one in founders}) == 1
    assert a.founding
    assert not any(one.complete for one in founders), "no node knows yet that the others are bound"
    talk(a, b, c)
    assert all(one.complete for one in founders)


def test_a_node_alone_on_its_list_founds_at_once() -> None:
    alone = made("a", frozenset("a"))
    talk(alone)
    assert alone.complete


def test_a_majority_of_the_list_does_not_found_and_names_the_silent_nodes() -> None:
    a, b = made("a"), made("b")
    for _ in range(3):
        talk(a, b)
    assert a.founding == b.founding == ""
    assert a.outlook(NOW_S) == FoundingWait(silent=("c",))
    said = "waiting to found a cluster: c has not answered (not started, out of reach, or another secret)"
    assert str(a.outlook(NOW_S)) == said
    assert a.outlook(NOW_S + FRESH_S + 1) == FoundingWait(silent=("b", "c")), "an answer expires"


def test_differing_lists_do_not_found_and_the_difference_is_reported() -> None:
    a, b, c = made("a"), made("b"), made("c", frozenset("abd"))
    for _ in range(3):
        talk(a, b, c)
    assert a.founding == ""
    assert a.outlook(NOW_S) == FoundingWait(differing=(("c", ("c",), ("d",)),))
    said = "the list of members that c has (ROTA_MEMBERS) differs from the one here: it lacks c and it names d besides"
    assert said in str(a.outlook(NOW_S))


def test_a_list_known_only_by_its_digest_is_not_reported_as_lacking_nodes() -> None:
    """A node that has just started sends the digest of its list first, and the list in its next message."""
    a, c = made("a"), made("c", frozenset("abd"))
    a.hear(replace(c.statement(), members=(), without=()), NOW_S)
    said = str(a.outlook(NOW_S))
    assert "c has another list of members (ROTA_MEMBERS), which it has not sent yet" in said
    assert "by hand" not in said


def test_a_node_listed_only_by_others_does_not_block_founding() -> None:
    a, b, c, d = made("a"), made("b"), made("c"), made("d", frozenset("abcd"))
    talk(a, b, c, d)
    talk(a, b, c, d)
    assert a.complete
    assert d.founding == ""


def test_a_node_told_of_a_cluster_never_founds_one() -> None:
    a, b, c = made("a"), made("b"), made("c")
    a.hear(made("d").statement("X", "de"), NOW_S)
    assert a.promise(NOW_S) == KnownCluster("X", "d"), "the binding is persisted before it is used"
    talk(a, b, c)
    talk(a, b, c)
    assert (a.known, b.known, c.known) == (KnownCluster("X", "d"),) * 3, (
        "a node that is told of the cluster tells the others"
    )
    assert not any(one.founding for one in (a, b, c))
    assert a.outlook(NOW_S) == ClusterElsewhere("X", "d")
    again = made("a", known=read_known_cluster(KnownCluster("X", "d").note()))
    talk(again, made("b"), made("c"))
    assert again.founding == ""


def test_a_member_answers_whether_it_knows_the_asking_node() -> None:
    a = made("a", frozenset("abcd"))
    a.hear(made("b").statement("X", "bc"), NOW_S)
    assert a.outlook(NOW_S) == ClusterElsewhere("X", "b", ("b",), knows_me=False)
    assert "add this node (rota join)" in str(a.outlook(NOW_S))
    a.hear(made("c").statement("X", "abc"), NOW_S)
    assert a.outlook(NOW_S) == ClusterElsewhere("X", "b", ("b", "c"), knows_me=True)
    assert "waits for its leader" in str(a.outlook(NOW_S))


def test_an_empty_node_told_that_it_is_a_member_knows_its_data_is_lost() -> None:
    a, c = made("a"), made("c")
    a.hear(c.statement("X", "abc"), NOW_S)
    b = made("b", known=KnownCluster("X", "a"))
    a.hear(b.statement(), NOW_S)
    b.hear(a.statement(), NOW_S)
    assert a.outlook(NOW_S) == ClusterElsewhere("X", "c", ("c",), knows_me=True)
    assert b.outlook(NOW_S) == ClusterElsewhere("X", "a"), "neither node has said that b is a member"


def test_a_shortened_list_founds_no_second_cluster() -> None:
    """c, d and e are bound to a founding of five; a and b, started with a list of two, are not, and found theirs."""
    five = frozenset("abcde")
    a, b, c, d, e = (made(name, five) for name in "abcde")
    for one in (c, d, e):
        for other in (a, b, c, d, e):
            one.hear(other.statement(), NOW_S)
    talk(c, d, e)
    talk(c, d, e)
    assert c.founding == d.founding == e.founding != ""
    assert not any(one.complete for one in (c, d, e)), "a majority of five, but no election"
    a, b = made("a", frozenset("ab")), made("b", frozenset("ab"))
    talk(a, b)
    talk(a, b)
    assert a.complete
    assert b.complete


def test_a_lost_folder_does_not_count_for_the_founding_it_was_bound_to() -> None:
    a, b, c = made("a"), made("b"), made("c")
    talk(a, b, c)
    anew = made("c", life=2)
    talk(a, b, anew)
    assert anew.founding == ""
    assert not a.complete
    assert dict(anew.outlook(NOW_S).held).keys() == {"a", "b"}  # type: ignore[union-attr]


def test_a_binding_survives_a_restart_with_another_list() -> None:
    a, b, c = made("a"), made("b"), made("c")
    talk(a, b, c)
    assert a.bound is not None
    again = made("a", frozenset("ab"), bound=read_binding(a.bound.note()))
    assert (again.listed, again.founding) == (THREE, a.founding)
    talk(again, b, c)
    assert again.complete


def test_the_others_found_by_hand_without_a_silent_member() -> None:
    a, b = made("a"), made("b")
    talk(a, b)
    later_s = NOW_S + SILENT_S + 1
    assert a.leave_out("c", later_s) is None
    talk(a, b, now_s=later_s)
    assert b.without == {"c"}, "b does not hear it either, and accepts"
    talk(a, b, now_s=later_s)
    talk(a, b, now_s=later_s)
    assert a.complete
    assert b.complete
    assert a.bound == Binding(a.founding, THREE, frozenset("c"))


def test_a_node_that_hears_a_member_refuses_to_found_without_it() -> None:
    a, b, c = made("a"), made("b"), made("c")
    later_s = NOW_S + SILENT_S + 1
    assert a.leave_out("c", later_s) is None
    b.hear(c.statement(), later_s)
    for _ in range(3):
        talk(a, b, now_s=later_s)
    assert b.without == frozenset()
    assert a.founding == b.founding == ""
    a.hear(c.statement(), later_s)
    assert a.without == frozenset(), "the member is reachable after all"


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
def test_founding_without_a_member_is_refused_when_unsafe(without: str, known: dict[str, object], why: str) -> None:
    a = made("a")
    for name, value in known.items():
        setattr(a, name, value)
    said = a.leave_out(without, NOW_S + SILENT_S + 1)
    assert said is not None
    assert why in said
    assert a.without == frozenset()


def test_a_bound_node_may_found_without_a_member_unless_it_has_voted() -> None:
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


def test_a_statement_is_unpacked_unchanged() -> None:
    said = made("a", without=frozenset("c")).statement()
    assert read_statement(said.message()) == said
    assert read_statement(said.question()) == replace(said, members=(), without=())
    for wrong in ({}, {**said.message(), "life": "x"}, {**said.message(), "members": 3}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            read_statement(wrong)
