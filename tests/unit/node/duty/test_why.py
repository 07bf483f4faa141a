"""Why a task does not run: each thing that may hold it, and which comes first."""

from dataclasses import replace
from typing import Any

import msgpack
import pytest

from node.duty.conditions import CONDITIONS, UNEXPECTED
from node.duty.hold import Hold
from node.duty.ownership import Ownership
from node.duty.why import asks_owner, why_not_running
from node.duty.why_values import Why, WhyFacts
from node.state.attempts import Cancel, Finish
from node.state.claims import Claim
from node.state.members import Drain, MarkDown, StandAside
from node.state.occurrences import Start
from node.state.registry import Pause, Put, PutTasks
from tasks.definition.spec import Spec
from tests.unit.node.http.given import NOW_US, World

S = 1_000_000
EVERY = {"every_s": 60}
LATER = NOW_US + 61 * S
MISSING = "MissingSecret: secret 'pg': cannot read /run/secrets/pg: No such file or directory"


def known(world: World, task: str = "a", **more: Any) -> WhyFacts:
    owners = Ownership.of(world.state)
    return WhyFacts("node-1", "node-3", True, owners.owner(task), tuple(owners.explain(task)), **more)


def ask(world: World, task: str = "a", now_us: int = NOW_US, run_id: str | None = None, **more: Any) -> Why:
    found = why_not_running(world.state, task, known(world, task, **more), now_us, run_id)
    assert [step.ends for step in found.steps] == [False] * (len(found.steps) - 1) + [True]
    assert found.code in CONDITIONS
    assert found.sentence(task).startswith(task)
    assert "{" not in found.sentence(task)
    return found


def due(**spec: Any) -> World:
    """A world with the task `a`, which is due at `LATER`."""
    world = World()
    world.task("a", schedule=EVERY, **spec)
    return world


def test_without_a_quorum_nothing_else_is_asked() -> None:
    world = due(overlap="queue")
    run_id, _ = world.running("a", "node-2")
    for role in ({"leader": None}, {"quorum": False}):
        found = why_not_running(world.state, "a", replace(known(world), **role), NOW_US)
        assert (found.code, found.member, len(found.steps)) == ("no_quorum", "node-1", 1)
        assert found.detail.endswith(f"; {run_id} on node-2 goes on while node-2 has a lease, as far as is known here")
    frozen = why_not_running(
        world.state, "a", replace(known(world, frozen_since_us={run_id: NOW_US}), leader=None), NOW_US
    )
    assert f"{run_id} on node-2 is frozen since 2026-11-18T11:06:40Z" in frozen.detail


def test_what_its_definition_and_its_schedule_hold() -> None:
    world = due(enabled=False)
    world.do(Pause(NOW_US, "a", on=True))
    assert ask(world).code == "disabled", "resuming it would not help"
    world.task("a", schedule=EVERY)
    paused = ask(world)
    assert (paused.code, paused.remedy) == ("paused", "resume it with: rota resume a")
    assert [step.place for step in paused.steps] == ["quorum", "runs", "definition"]
    world.task("past", schedule={"at": "2020-01-01T00:00:00Z"})
    assert ask(world, "past").code == "over"
    world.task("hand")
    assert ask(world, "hand").code == "by_hand"
    world.do(Pause(NOW_US, "a", on=False))
    found = ask(world)
    assert (found.code, found.until_us) == ("not_due", NOW_US + 60 * S)
    assert [step.place for step in found.steps] == ["quorum", "runs", "definition", "schedule", "owner", "time"]


def test_a_schedule_that_this_member_cannot_evaluate() -> None:
    world = World()
    world.task("a", schedule={"cron": "0 3 * * *"})
    row = world.state.tasks["a"]
    raw = msgpack.unpackb(row.spec_packed) | {"schedule": {"cron": "0 3 * * *", "timezone": "Mars/Olympus"}}
    world.state = replace(world.state, tasks=world.state.tasks.set("a", replace(row, spec_packed=msgpack.packb(raw))))
    found = ask(world)
    assert (found.code, found.member) == ("unreadable", "node-1")
    assert "Mars/Olympus" in found.detail


def test_where_it_runs_and_since_when_it_is_frozen() -> None:
    world = due()
    run_id, _ = world.running("a", "node-2")
    found = ask(world)
    assert (found.code, found.run_id, found.member) == ("running", run_id, "node-2")
    assert found.sentence("a") == f"a runs: attempt 1 of {run_id} runs on node-2; follow it with: rota log -f {run_id}"
    frozen = ask(world, frozen_since_us={run_id: NOW_US})
    assert frozen.detail.endswith("is frozen since 2026-11-18T11:06:40Z, because node-2 has no lease")
    world.do(Pause(NOW_US, "a", on=True))
    assert ask(world).code == "running", "a paused task runs by hand"


def test_behind_which_run_it_waits() -> None:
    world = due(overlap="queue")
    first, token = world.running("a", "node-2")
    second = world.do(Start(NOW_US + S, "a"))["run_id"]
    found = ask(world)
    assert (found.code, found.run_id, found.member, found.runs) == ("behind", second, "node-2", (first,))
    assert found.detail == (f"{second} waits behind {first} (overlap: queue): attempt 1 of {first} runs on node-2")
    assert ask(world, run_id=first).code == "running"
    world.do(Finish(NOW_US, first, token, "failed", retry=False))
    assert ask(world).run_id == second, "the first has failed for good"


def test_an_occurrence_that_replaces_a_run_waits_for_its_end() -> None:
    world = due(overlap="replace")
    run_id, _ = world.running("a", "node-2")
    assert ask(world, now_us=LATER).code == "running"
    world.do(Cancel(LATER, run_id, "replaced"))
    found = ask(world, now_us=LATER)
    assert (found.code, found.runs, found.member) == ("behind", (run_id,), "node-2")


def test_beside_a_run_what_else_is_due_is_asked_for() -> None:
    """`overlap: allow`: one that runs does not hold the next."""
    world = due(overlap="allow")
    world.running("a", "node-2")
    assert ask(world).code == "running"
    assert ask(world, now_us=LATER).code == "due"
    waits = world.do(Start(NOW_US + S, "a"))["run_id"]
    assert ask(world).run_id == waits


def test_until_when_it_backs_off_and_why() -> None:
    world = due(retry={"attempts": 3, "backoff_s": 30})
    run_id, token = world.running("a")
    world.do(Finish(NOW_US, run_id, token, "failed", error="OSError: no route. Is it up?"))
    found = ask(world)
    assert (found.code, found.run_id, found.until_us) == ("backing_off", run_id, NOW_US + 30 * S)
    assert found.detail.endswith("after 1 failed attempt: OSError: no route.")
    assert ask(world, now_us=NOW_US + 31 * S).code == "due"
    token = world.do(Claim(NOW_US + 31 * S, "a", world.state.runs[run_id].fire_at_us, "node-1", 1, run_id))["token"]
    world.do(Finish(NOW_US + 31 * S, run_id, token, "away", error="Away: db.internal does not answer"))
    away = ask(world, now_us=NOW_US + 31 * S)
    assert (away.code, away.until_us) == ("backing_off", NOW_US + 36 * S)
    assert away.detail.endswith("since a service that it needs does not answer: Away: db.internal does not answer")


def test_a_continuous_task_that_failed_backs_off() -> None:
    world = World()
    world.task("a", schedule={"continuous": True}, retry={"backoff_s": 30})
    run_id, token = world.running("a")
    world.do(Finish(NOW_US, run_id, token, "failed", error="OSError: no route", retry=False))
    found = ask(world)
    assert (found.code, found.until_us) == ("backing_off", NOW_US + 30 * S)
    assert found.detail.endswith("its last run failed: OSError: no route")
    assert found.remedy == f"wait, or fix the cause that its log shows: rota log {run_id}"


def test_an_orphaned_run_waits_for_its_grace_period() -> None:
    world = due(failover={"grace_s": 20})
    run_id, _ = world.running("a", "node-2")
    world.do(MarkDown(NOW_US, "node-2", 1, "stopped", 0))
    found = ask(world)
    assert (found.code, found.run_id, found.until_us) == ("backing_off", run_id, NOW_US + 20 * S)
    assert "grace period" in found.detail


def test_no_member_has_the_label() -> None:
    world = due(group={"disk": "tape"})
    found = ask(world)
    assert found.code == "no_label"
    assert "no member has the label disk=tape" in found.detail
    assert found.steps[-1].place == "owner"


def test_no_member_offers_the_kind_and_why_not_each() -> None:
    world = World()
    world.do(PutTasks(NOW_US, (Put(Spec.model_validate({"name": "a", "kind": "command"}).pack()),)))
    found = ask(world, unoffered={"node-1": "its ROTA_ALLOW_COMMAND is not 1"})
    assert found.code == "no_kind"
    assert "no member offers the kind command (node-1: its ROTA_ALLOW_COMMAND is not 1; node-2:" in found.detail
    assert found.code == ask(world).code, "as well where nobody was asked"


def test_members_that_may_run_it_are_down_or_draining() -> None:
    world = due()
    world.do(Drain(NOW_US, "node-1", on=True))
    world.do(StandAside(NOW_US, "node-2", 1, "no room on its disk"))
    world.do(Drain(NOW_US, "node-3", on=True))
    found = ask(world)
    assert found.code == "members_draining"
    assert "node-2 is draining (no room on its disk)" in found.detail
    world.do(MarkDown(NOW_US, "node-3", 1, "stopped", 0))
    found = ask(world)
    assert (found.code, "node-3 is down (stopped)" in found.detail) == ("members_down", True)


def test_members_that_have_not_joined_may_have_what_is_missing() -> None:
    world = due(group={"disk": "tape"})
    world.state = replace(
        world.state,
        members=world.state.members.set("node-3", replace(world.state.members["node-3"], incarnation=0)),
    )
    assert ask(world).detail.endswith("not joined yet: node-3")


def test_a_placement_that_is_behind_is_no_fault() -> None:
    world = due()
    assert why_not_running(world.state, "a", replace(known(world), owner=None, because=()), LATER).code == "no_owner"


def test_a_task_without_an_owner_is_told_before_its_next_due_time() -> None:
    """What does not pass by itself comes first."""
    world = due(group={"disk": "tape"}, retry={"attempts": 3, "backoff_s": 30})
    assert (ask(world).code, ask(world, now_us=LATER).code) == ("no_label", "no_label")
    run_id, token = world.running("a")
    world.do(Finish(NOW_US, run_id, token, "failed"))
    assert (ask(world).code, ask(world).run_id) == ("no_label", run_id)
    world.task("hand", group={"disk": "tape"})
    assert ask(world, "hand").code == "no_label"


@pytest.mark.parametrize(
    ("hold", "place"),
    [
        (Hold("stopping", "node-2 is stopping"), "lease"),
        (Hold("no_lease", "node-2 has no lease"), "lease"),
        (Hold("aside", "node-2 takes on nothing new: no room on its disk"), "lease"),
        (Hold("unreadable", "node-2 cannot evaluate it"), "lease"),
        (Hold("undecided", "node-2 cannot decide on it"), "lease"),
        (Hold("bound", "node-2 has room for 1 attempt (ROTA_SPARK_SESSIONS)", ("b@1",)), "room"),
        (Hold("max_runs", "node-2 runs 2 attempts already", ("b@1", "c@1")), "room"),
        (Hold("secret", "node-2 lacks what it needs"), "secrets"),
    ],
)
def test_what_only_its_owner_knows(hold: Hold, place: str) -> None:
    world = due(pin="node-2")
    before = ask(world, now_us=LATER)
    assert before.code == "due"
    assert asks_owner(world.state, "a", before)
    found = ask(world, now_us=LATER, asked=True, hold=hold)
    assert (found.code, found.member, found.runs) == (hold.code, "node-2", hold.runs)
    assert found.detail == ": ".join(filter(None, (hold.detail, ", ".join(hold.runs))))
    assert found.steps[-1].place == place
    assert found.code in UNEXPECTED


def test_a_reason_of_a_later_version_is_passed_on() -> None:
    world = due(pin="node-2")
    found = why_not_running(
        world.state, "a", known(world, asked=True, hold=Hold("on_holiday", "node-2 is away")), LATER
    )
    assert (found.code, found.detail, found.remedy) == ("on_holiday", "node-2 is away", "see the log of node-2")


def test_an_owner_that_does_not_answer() -> None:
    world = due(pin="node-2")
    found = ask(world, now_us=LATER, asked=True, away="node-2 does not answer: timed out")
    assert (found.code, found.member) == ("owner_away", "node-2")


def test_due_and_about_to_be_claimed() -> None:
    world = due(pin="node-2")
    found = ask(world, now_us=LATER, asked=True)
    assert (found.code, found.member, found.until_us) == ("due", "node-2", None)
    places = ["quorum", "runs", "definition", "schedule", "owner", "time", "lease", "room", "secrets", "claim"]
    assert [step.place for step in found.steps] == places
    run_id = world.do(Start(NOW_US, "a"))["run_id"]
    found = ask(world, asked=True)
    assert (found.code, found.run_id) == ("due", run_id)
    assert [step.place for step in found.steps] == [*places[:2], *places[4:]]


def test_a_secret_that_is_missing_is_told_before_the_next_due_time_too() -> None:
    """The run has failed for good: what holds the task is the secret, not the clock."""
    world = due(pin="node-2", params={"source": {"password": {"secret": "pg"}}})
    run_id, token = world.running("a", "node-2")
    world.do(Finish(NOW_US, run_id, token, "failed", error=MISSING, retry=False))
    before = ask(world)
    assert (before.code, MISSING in before.detail) == ("not_due", True)
    assert asks_owner(world.state, "a", before)
    found = ask(world, asked=True, hold=Hold("secret", "node-2 lacks what it needs: secret 'pg'"))
    assert (found.code, found.member, found.until_us) == ("secret", "node-2", NOW_US + 60 * S)
    assert ask(world, asked=True, hold=Hold("no_lease", "node-2 has no lease")).code == "not_due", "it may have by then"
    assert "has the" not in ask(world, asked=True, away="node-2 does not answer").detail
    there = ask(world, asked=True)
    assert (there.code, there.detail.endswith("(node-2 has the secrets that it names)")) == ("not_due", True)


def test_whether_the_owner_is_asked_for_secrets_does_not_hang_on_the_words_of_an_error() -> None:
    world = due(pin="node-2", params={"password": {"env": "PGPASSWORD"}})
    run_id, token = world.running("a", "node-2")
    assert not asks_owner(world.state, "a", ask(world))
    world.do(Finish(NOW_US, run_id, token, "failed", error="OperationalError: no password", retry=False))
    assert asks_owner(world.state, "a", ask(world))


def test_a_last_run_that_failed_is_no_question_for_the_owner_of_a_task_without_secrets() -> None:
    world = due()
    run_id, token = world.running("a")
    world.do(Finish(NOW_US, run_id, token, "failed", error="OSError: no route", retry=False))
    found = ask(world)
    assert (found.code, found.detail.endswith("; its last run failed: OSError: no route")) == ("not_due", True)
    assert not asks_owner(world.state, "a", found)


def test_what_waits_of_an_action_is_told_where_nothing_of_the_work_is_active() -> None:
    world = due()
    run_id = world.do(Start(NOW_US, "a", action="preview", args={}))["run_id"]
    assert (ask(world).code, ask(world).run_id) == ("due", run_id)
