"""Members: joining, slots, marking down, and the orphans that it leaves."""

from dataclasses import replace

from node.state.attempts import Finish
from node.state.members import AddMember, Drain, FoundCluster, MarkDown, Refound, RemoveMember, StandAside, TakeLead
from node.state.settings import ChangeSettings
from node.state.value import Member
from tests.unit.node.state.given import DAY_US, NOW_US, cluster, joining, seed

LATER_US = NOW_US + 1_000_000
EVERY = {"every_s": 1}


def test_a_cluster_is_founded_once() -> None:
    history = cluster("a", "b")
    assert history.state.slots == ("a", "b")
    assert history.do(FoundCluster(LATER_US, "another", (seed("a"),))).code == "founded"
    assert history.state.cluster_id == "cluster"


def test_a_new_member_takes_the_lowest_vacant_slot() -> None:
    history = cluster("a", "b", "c", "d")
    for member in "bc":
        history.must(MarkDown(LATER_US, member, 1, "stopped", 0))
        assert history.must(RemoveMember(LATER_US, member)) == {"gone": True}
    assert list(history.state.slots) == ["a", None, None, "d"]
    assert history.must(AddMember(LATER_US, seed("e"))) == {"slot": 1}
    assert history.must(AddMember(LATER_US, seed("f"))) == {"slot": 2}
    assert history.must(AddMember(LATER_US, seed("g"))) == {"slot": 4}
    assert list(history.state.slots) == ["a", "e", "f", "d", "g"]
    assert (history.state.members["e"].status, history.state.members["e"].reason) == ("down", "new")
    assert history.do(AddMember(LATER_US, seed("a"))).code == "exists"


def test_a_member_that_may_still_work_is_removed_once_it_is_down() -> None:
    """Invariant 4: what it runs may go on until its lease is over."""
    history = cluster("a", "b")
    assert history.must(RemoveMember(LATER_US, "b")) == {"gone": False}
    leaving = history.state.members["b"]
    assert (leaving.status, leaving.leaving) == ("draining", True)
    assert history.do(joining("b", LATER_US, after=1)).code == "leaving"
    history.must(MarkDown(LATER_US, "b", 1, "stopped", 0))
    assert list(history.state.slots) == ["a", None]


def test_a_member_that_is_leaving_may_be_kept_after_all() -> None:
    history = cluster("a", "b")
    history.must(RemoveMember(LATER_US, "b"))
    history.must(Drain(LATER_US, "b", False))
    history.must(MarkDown(LATER_US, "b", 1, "stopped", 0))
    assert list(history.state.slots) == ["a", "b"]


def test_since_tells_of_a_restart_too() -> None:
    history = cluster("a", "b")
    assert history.state.members["b"].since_us == NOW_US
    history.back("b", LATER_US)
    assert history.state.members["b"].since_us == LATER_US
    history.must(Drain(LATER_US + 5, "b", True))
    history.must(Drain(LATER_US + 9, "b", True))
    assert history.state.members["b"].since_us == LATER_US + 5


def test_a_delayed_join_supersedes_no_incarnation() -> None:
    """Found by the simulation of section 7: it would orphan what the member works on by now."""
    history = cluster("a", "b")
    late = joining("b", LATER_US, after=1)
    history.back("b", LATER_US)
    assert history.do(late).code == "incarnation"
    assert history.state.members["b"].incarnation == 2


def test_the_last_member_does_not_leave() -> None:
    history = cluster("a")
    assert history.do(RemoveMember(LATER_US, "a")).code == "invalid"


def test_mark_down_names_the_leadership_and_the_incarnation() -> None:
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "a", 3))
    assert history.do(MarkDown(LATER_US, "b", 1, "silent", 2)).code == "leadership"
    assert history.do(MarkDown(LATER_US, "b", 2, "silent", 3)).code == "incarnation"
    history.must(MarkDown(LATER_US, "b", 1, "silent", 3))
    assert history.do(MarkDown(LATER_US, "b", 1, "gone", 3)).code == "not-up"
    history.must(TakeLead(NOW_US, "b", 4))
    assert history.do(MarkDown(LATER_US, "a", 1, "silent", 3)).code == "leadership"


def test_one_member_leads_a_term() -> None:
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "a", 3))
    history.must(TakeLead(NOW_US, "a", 3))
    assert history.do(TakeLead(NOW_US, "b", 3)).code == "leadership"
    assert history.do(TakeLead(NOW_US, "b", 2)).code == "leadership"


def test_a_member_that_stops_says_so_itself() -> None:
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "a", 3))
    history.must(MarkDown(LATER_US, "b", 1, "stopped", 0))
    assert history.state.members["b"].reason == "stopped"


def test_runs_are_orphaned_in_the_entry_that_marks_their_member_down() -> None:
    history = cluster("a", "b")
    history.put("t", schedule=EVERY, failover={"grace_s": 5})
    run = history.claim("t", LATER_US, "b")
    history.must(MarkDown(LATER_US + 7, "b", 1, "stopped", 0))
    orphan = history.state.runs[run.run_id]
    assert (orphan.state, orphan.node, orphan.orphanings) == ("orphaned", None, 1)
    assert orphan.due_us == LATER_US + 7 + 5_000_000
    assert orphan.attempts[0].state == "orphaned"
    assert history.last.touched == {"t"}


def test_a_new_incarnation_holds_nothing() -> None:
    history = cluster("a", "b")
    history.put("t", schedule=EVERY)
    run = history.claim("t", LATER_US, "b")
    assert history.back("b", LATER_US) == {"incarnation": 2}
    assert history.state.runs[run.run_id].state == "orphaned"
    assert history.do(Finish(LATER_US, run.run_id, run.token, "succeeded")).code == "fenced"


def test_a_member_asked_to_drain_drains_until_told_otherwise_also_after_a_restart() -> None:
    history = cluster("a", "b")
    statuses = []
    for entry in (
        Drain(LATER_US, "b", True),
        MarkDown(LATER_US, "b", 1, "stopped", 0),
        joining("b", LATER_US, after=1),
        Drain(LATER_US, "b", False),
    ):
        history.must(entry)
        statuses.append(history.state.members["b"].status)
    assert statuses == ["draining", "down", "draining", "up"]


def test_a_member_that_stands_aside_drains_until_it_says_otherwise_or_joins_anew() -> None:
    history = cluster("a", "b")

    def b() -> Member:
        return history.state.members["b"]

    epoch = history.state.epoch
    history.must(StandAside(LATER_US, "b", 1, "no room"))
    assert (b().status, b().aside, history.state.epoch) == ("draining", "no room", epoch + 1)
    history.must(Drain(LATER_US, "b", False))
    assert b().status == "draining", "only the member itself knows when that is over"
    history.must(Drain(LATER_US, "b", True))
    history.must(StandAside(LATER_US, "b", 1))
    assert (b().status, b().aside) == ("draining", ""), "it was asked to drain meanwhile"
    history.must(Drain(LATER_US, "b", False))
    assert b().status == "up"
    history.must(StandAside(LATER_US, "b", 1, "no room"))
    assert history.do(StandAside(LATER_US, "b", 2)).code == "incarnation"
    history.must(MarkDown(LATER_US, "b", 1, "stopped", 0))
    assert history.do(StandAside(LATER_US, "b", 1)).code == "not-up"
    history.back("b", LATER_US)
    assert (b().status, b().aside) == ("up", "")


def test_settings_change_all_or_none() -> None:
    history = cluster("a")
    for wrong in ({"lease_s": "2"}, {"lease_s": 0}, {"leases": 2}, {"balance_slack_milli": -1}, {"history_days": True}):
        before = history.state.settings
        assert history.do(ChangeSettings(LATER_US, {"margin_s": 1, **wrong})).code == "invalid"
        assert history.state.settings == before
    epoch = history.state.epoch
    history.must(ChangeSettings(LATER_US, {"lease_s": 3}))
    assert (history.state.settings.lease_s, history.state.epoch) == (3.0, epoch)
    history.must(ChangeSettings(LATER_US, {"balance_slack_milli": None}))
    assert history.state.epoch == epoch + 1


def test_a_join_bumps_the_epoch_only_with_what_placement_sees() -> None:
    history = cluster("a", "b")
    epoch = history.state.epoch
    history.back("b", LATER_US)
    assert history.state.epoch == epoch
    history.back("b", LATER_US, labels=(("disk", "ssd"),))
    assert history.state.epoch == epoch + 1


def test_what_is_no_member_is_refused_with_a_sentence() -> None:
    history = cluster("a")
    for wrong in (
        AddMember(NOW_US, replace(seed("b"), id="b/c")),
        AddMember(NOW_US, replace(seed("b"), id="b\n")),
        AddMember(NOW_US, replace(seed("b"), host="")),
        AddMember(NOW_US, replace(seed("b"), raft_port=65_536)),
        joining("a", capacity=0),
        joining("a", labels=(("x", "1"), ("x", "2"))),
    ):
        result = history.do(wrong)
        assert result.code == "invalid"
        assert result.detail


def test_refounded_one_member_is_left_with_the_work_of_the_others_to_take_over() -> None:
    history = cluster("a", "b", "c")
    history.put("t", schedule={"every_s": 60})
    run = history.claim("t", NOW_US + 60_000_000, "c")
    token = history.state.token
    history.must(Refound(NOW_US + DAY_US, "new", "b"))
    state = history.state
    assert (state.cluster_id, state.slots, list(state.members)) == ("new", (None, "b", None), ["b"])
    assert state.runs[run.run_id].state == "orphaned"
    assert state.token > token + 1_000_000, "the others may have given some that this one has not seen"
    assert state.members["b"].status == "up"
    assert history.must(AddMember(NOW_US, seed("c")))["slot"] == 0


def test_refounding_needs_a_member_and_a_new_id() -> None:
    history = cluster("a", "b")
    assert history.do(Refound(NOW_US, "new", "z")).code == "no-such-member"
    assert history.do(Refound(NOW_US, "cluster", "a")).code == "invalid"
    assert history.do(Refound(NOW_US, "", "a")).code == "invalid"
