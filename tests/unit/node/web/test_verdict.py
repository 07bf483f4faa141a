"""The verdict on states made by the real `apply`."""

from dataclasses import replace

import pytest

from node.duty.overdue import Overdue
from node.duty.ownership import Ownership
from node.http.api.cluster import MismatchView
from node.identity.mismatches import MismatchCode
from node.raft.ports import RaftRole
from node.state.attempts import Finish
from node.state.blackouts import SetBlackout
from node.state.members import Drain, StandAside, TakeLead
from node.state.occurrences import Start
from node.state.outbox import GIVE_UP_TRIES, GIVE_UP_US
from node.state.telling import PutChannel, Tell, Told
from node.state.value import RULES, DownReason, State
from node.web.board import TaskBoard
from node.web.verdict import TRIES_MIN, ClusterVerdict, NodeSight, verdict
from tests.unit.node.http.given import HOUR_US, NOW_US, World
from tests.unit.node.state.given import hook

WELL = NodeSight("node-1", RaftRole(1, "node-1", True, True, True), True, None, Overdue())


def judged(state: State, sight: NodeSight = WELL, after_us: int = 0) -> ClusterVerdict:
    return verdict(state, sight, TaskBoard().read(state, Ownership.of(state), NOW_US + after_us))


def codes(found: ClusterVerdict) -> list[str]:
    return [finding.code for finding in found.findings]


def down(state: State, *members: str, reason: DownReason = "silent") -> State:
    rows = state.members
    for name in members:
        rows = rows.set(name, replace(rows[name], status="down", reason=reason, since_us=NOW_US))
    return replace(state, members=rows)


def test_a_cluster_at_work_is_well() -> None:
    world = World()
    world.task("a", schedule={"every_s": 60})
    world.running("a")
    assert judged(world.state) == ClusterVerdict("well", "All is well", ())


def test_notices_that_cannot_be_sent_are_said() -> None:
    world = World()
    world.do(TakeLead(NOW_US, "node-1", 1, RULES))
    world.do(PutChannel(NOW_US, "ops", hook().pack()))
    world.do(StandAside(NOW_US, "node-2", 1, "no room"))
    [key] = (one.key for one in world.state.channels["ops"].notices)
    for tries in range(1, TRIES_MIN + 1):
        assert "untold" not in codes(judged(world.state)), f"{tries - 1} tries: another member may send it"
        token = world.do(Tell(NOW_US, "ops", (key,), "node-1", 1))["token"]
        world.do(Told(NOW_US, "ops", token, "failed", "it answered 500 \u202e"))
    [finding] = [one for one in judged(world.state).findings if one.code == "untold"]
    assert finding.text.startswith("1 notice cannot be sent on channel ops: it answered 500 \\u202e. Try it with: ")
    assert (finding.level, finding.since_us) == ("wrong", NOW_US)
    for _ in range(TRIES_MIN, GIVE_UP_TRIES):
        token = world.do(Tell(NOW_US, "ops", (key,), "node-1", 1))["token"]
        world.do(Told(NOW_US + GIVE_UP_US, "ops", token, "failed", "the receiver answered 500"))
    [finding] = [one for one in judged(world.state).findings if one.code == "gave-up"]
    assert finding.text.startswith("Channel ops gave up on 1 notice, and has sent nothing since")
    assert (finding.level, finding.since_us) == ("watch", NOW_US + GIVE_UP_US)
    world.do(PutChannel(NOW_US, "ops", hook(enabled=False).pack()))
    assert codes(judged(world.state)) == ["aside"], "it was switched off"


def test_a_blackout_is_said_and_what_it_holds_is_not_overdue() -> None:
    world = World()
    world.do(TakeLead(NOW_US, "node-1", 1, RULES))
    world.task("a", schedule={"every_s": 60})
    world.do(SetBlackout(NOW_US, "move", NOW_US, NOW_US + HOUR_US, (("team", "bi"),)))
    world.do(SetBlackout(NOW_US, "later", NOW_US + 2 * HOUR_US, NOW_US + 3 * HOUR_US))
    world.do(SetBlackout(NOW_US, "next-week", NOW_US + 100 * HOUR_US, NOW_US + 101 * HOUR_US))
    found = judged(world.state)
    assert (found.level, codes(found)) == ("watch", ["blackout", "blackout"])
    now, later = found.findings
    assert now.text.startswith("The blackout move holds tasks with team=bi until ")
    assert later.text.startswith("The blackout later is to hold all tasks from ")
    assert (now.since_us, later.since_us) == (NOW_US, None)
    due_us = 2 * HOUR_US
    assert "overdue" in codes(judged(world.state, after_us=due_us - HOUR_US // 2)), "the labels are others"
    assert "overdue" not in codes(judged(world.state, after_us=due_us + 1))


def test_a_node_without_a_cluster_says_what_it_waits_for() -> None:
    found = judged(State(), replace(WELL, outlook="it waits for node-2 to answer"))
    assert (found.level, codes(found)) == ("wrong", ["no-cluster"])
    assert "node-2" in found.findings[0].text


@pytest.mark.parametrize(
    ("role", "lease_held", "code"),
    [
        (RaftRole(1, None, False, False, True), True, "no-quorum"),
        (RaftRole(1, "node-2", False, False, True), False, "no-quorum"),
        (RaftRole(1, "node-2", False, True, False), False, "not-ready"),
        (RaftRole(1, "node-2", False, True, True), False, "no-lease"),
    ],
)
def test_what_this_node_lacks_is_said_first(role: RaftRole, lease_held: bool, code: str) -> None:
    assert codes(judged(World().state, replace(WELL, role=role, lease_held=lease_held))) == [code]


@pytest.mark.parametrize(
    ("reason", "level"), [("silent", "wrong"), ("gone", "wrong"), ("stopped", "watch"), ("new", "watch")]
)
def test_a_member_that_is_down_is_wrong_unless_somebody_meant_it(reason: DownReason, level: str) -> None:
    found = judged(down(World(5).state, "node-3", reason=reason))
    assert (found.level, codes(found)) == (level, ["down"])
    [finding] = found.findings
    assert (finding.subject, finding.since_us) == ("node-3", NOW_US)


def test_the_last_member_to_spare_is_told() -> None:
    assert codes(judged(down(World(3).state, "node-3", reason="stopped"))) == ["no-spare", "down"]
    assert codes(judged(down(World(5).state, "node-3", reason="stopped"))) == ["down"]
    assert codes(judged(World(1).state)) == []
    joining = World(3).state
    joining = replace(joining, members=joining.members.set("node-4", replace(joining.members["node-3"], id="node-4")))
    assert codes(judged(down(joining, "node-4", reason="new"))) == [], "somebody is adding it"


def test_a_drained_member_can_be_undrained_and_one_that_stands_aside_says_why() -> None:
    world = World()
    world.do(Drain(NOW_US, "node-2", True))
    [finding] = judged(world.state).findings
    assert (finding.code, finding.level, finding.action, finding.subject) == ("drained", "watch", "undrain", "node-2")
    world.do(Drain(NOW_US, "node-2", False))
    world.do(StandAside(NOW_US, "node-2", world.state.members["node-2"].incarnation, "its disk is full"))
    [finding] = judged(world.state).findings
    assert (finding.code, finding.level) == ("aside", "wrong")
    assert "its disk is full" in finding.text


def test_tasks_that_fail_wait_or_cannot_run_are_wrong_and_lead_to_where_to_look() -> None:
    world = World()
    for name in ("a", "b"):
        world.task(name)
        run_id, token = world.running(name)
        world.do(Finish(NOW_US + 5, run_id, token, "failed", None, "boom", False))
        found = judged(world.state)
        assert codes(found) == ["failing"]
    assert "2 tasks" in found.findings[0].text
    assert found.findings[0].action is None
    world.task("gpu", group={"gpu": "a100"})
    found = judged(world.state)
    assert (found.headline, codes(found)) == ("2 things need attention", ["unowned", "failing"])
    assert [finding.look for finding in found.findings] == ["tasks?show=unowned", "tasks?show=failing"]


def test_one_failing_task_can_be_run_again() -> None:
    world = World()
    world.task("a")
    run_id, token = world.running("a")
    world.do(Finish(NOW_US + 5, run_id, token, "timed_out", None, "slow"))
    found = judged(world.state)
    assert found.headline == "The last run of a task failed"
    [finding] = found.findings
    assert (finding.action, finding.subject, finding.since_us) == ("run", "a", NOW_US + 5)


def test_a_task_is_named_once_however_much_is_wrong_with_it() -> None:
    world = World()
    world.late("a")
    world.do(Finish(NOW_US + HOUR_US, *world.running("a"), "failed", None, "boom", False))
    world.do(Start(NOW_US + HOUR_US, "a"))
    overdue = replace(WELL, overdue=Overdue(1, 7200.0, frozenset({"a"})))
    found = judged(world.state, overdue, 3 * HOUR_US)
    assert (found.headline, codes(found)) == ("A deadline is breached", ["late"])
    [finding] = found.findings
    assert finding.text == "a is late: no run has succeeded for 3600 s; it is overdue; its last run failed"
    assert (finding.action, finding.subject) == ("run", "a")
    world.task("b")
    world.do(Finish(NOW_US + 5, *world.running("b"), "failed", None, "boom", False))
    found = judged(world.state, overdue, 3 * HOUR_US)
    assert codes(found) == ["late", "failing"]
    assert found.findings[1].text == "The last run of b failed"


def test_a_breached_deadline_is_wrong_and_says_which() -> None:
    world = World()
    world.late("a")
    [finding] = judged(world.state).findings
    assert (finding.code, finding.level, finding.look) == ("late", "wrong", "tasks?show=late")
    assert (finding.text, finding.since_us) == ("a is late: no run has succeeded for 3600 s", NOW_US + HOUR_US)
    world.late("b")
    assert [one.text for one in judged(world.state).findings] == ["2 tasks are late"]


def test_what_is_overdue_for_a_minute_is_wrong() -> None:
    world = World()
    world.task("a", schedule={"every_s": 60})
    for after_us, level in ((59_000_000, "well"), (62_000_000, "watch"), (125_000_000, "wrong")):
        assert judged(world.state, after_us=after_us).level == level
    # The control loop knows of something that the picture does not show yet.
    found = judged(world.state, replace(WELL, overdue=Overdue(3, 90.0, frozenset("abc"))))
    assert (found.level, found.findings[0].text) == ("wrong", "3 tasks are overdue, by up to 1 min 30 s")


def test_what_is_wrong_comes_before_what_is_to_know() -> None:
    world = World()
    world.do(Drain(NOW_US, "node-2", True))
    world.task("gpu", group={"gpu": "a100"})
    assert codes(judged(world.state)) == ["unowned", "drained"]


def test_it_is_said_since_when_a_node_sees_no_quorum() -> None:
    world = World()
    sight = replace(WELL, role=RaftRole(3, None, False, False, True), lease_held=False, lapsed_us=NOW_US - 5_000_000)
    [finding, *_] = judged(world.state, sight).findings
    assert (finding.code, finding.since_us) == ("no-quorum", NOW_US - 5_000_000)


def mismatch(member: str | None, code: MismatchCode, *, claimed: bool = False) -> MismatchView:
    return {
        "member": member,
        "address": "h:1",
        "code": code,
        "claimed": claimed,
        "version": None,
        "detail": f"{member} is {code}",
    }


def test_nodes_that_do_not_fit_come_first_and_claims_of_members_that_are_up_are_only_to_be_known() -> None:
    state = down(World(5).state, "node-3", reason="stopped")
    met = (mismatch("node-3", "secret"), mismatch("node-2", "mixed"), mismatch("node-1", "build", claimed=True))
    found = judged(state, replace(WELL, mismatches=met))
    assert [(one.text, one.level) for one in found.findings if one.code == "mismatch"] == [
        ("node-3 is secret", "wrong"),
        ("node-2 is mixed", "watch"),
        ("node-1 is build", "watch"),
    ]
    assert (found.headline, found.findings[0].code) == ("A node does not fit to the others", "mismatch")
    starting = judged(State(), replace(WELL, outlook="node-3 has not answered", mismatches=met[:1]))
    assert codes(starting) == ["no-cluster", "mismatch"]
