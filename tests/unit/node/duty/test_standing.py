"""The status of a task in words."""

from dataclasses import replace

import msgpack

from node.duty.ownership import Ownership
from node.duty.standing import standing
from node.state.attempts import Cancel, Finish
from node.state.awaiting import AwaitParents
from node.state.members import Drain, MarkDown, TakeLead
from node.state.occurrences import Start
from node.state.registry import Pause
from node.state.value import RULES
from tests.unit.node.http.given import NOW_US, World

S = 1_000_000


def statements(world: World, task: str = "a", now_us: int = NOW_US) -> list[tuple[str, str]]:
    owners = Ownership.of(world.state)
    told = standing(world.state, task, owners.owner(task), owners.explain(task), now_us)
    return [(one.code, one.detail) for one in told]


def test_the_status_of_tasks_that_are_not_due() -> None:
    world = World()
    world.task("a", schedule={"every_s": 60})
    assert statements(world) == [("not_due", "not due until 2026-11-18T11:07:40Z")]
    assert statements(world, now_us=NOW_US + 61 * S) == [("due", "due since 2026-11-18T11:07:40Z and not claimed yet")]
    world.do(Pause(NOW_US, "a", on=True))
    assert statements(world) == [("paused", "paused: it has no due times until it is resumed (rota resume a)")]
    world.task("off", schedule={"every_s": 60}, enabled=False)
    assert [code for code, _ in statements(world, "off")] == ["disabled"]
    world.task("hand")
    assert [code for code, _ in statements(world, "hand")] == ["by_hand"]
    world.task("past", schedule={"at": "2020-01-01T00:00:00Z"})
    assert statements(world, "past") == [("over", "its schedule has no further times")]


def test_the_status_of_runs_that_run_back_off_or_wait() -> None:
    world = World()
    world.task("a", overlap="queue", retry={"attempts": 3, "backoff_s": 30})
    first, token = world.running("a")
    second = world.do(Start(NOW_US + S, "a"))["run_id"]
    behind = ("behind", f"{second} waits behind {first} (overlap: queue)")
    assert statements(world) == [("running", f"attempt 1 of {first} runs on node-1"), behind]
    world.do(Finish(NOW_US, first, token, "failed"))
    off = ("backing_off", f"{first} backs off until 2026-11-18T11:07:10Z, after 1 failed attempt")
    assert statements(world) == [off, behind], "it keeps its place"
    assert statements(world, now_us=NOW_US + 31 * S)[0] == ("due", f"{first} is due and not claimed yet")
    world.do(Cancel(NOW_US, first, "by hand"))
    assert statements(world) == [("due", f"{second} is due and not claimed yet")]


def test_a_run_that_waits_for_what_does_not_answer_says_so() -> None:
    world = World()
    world.task("a")
    run_id, token = world.running("a")
    world.do(Finish(NOW_US, run_id, token, "away", error="ServerAway: connection to\nserver failed"))
    told = (
        f"{run_id} waits until 2026-11-18T11:06:45Z, since a service that it needs does not answer: "
        "ServerAway: connection to server failed"
    )
    assert statements(world) == [("backing_off", told)]


def test_an_orphaned_run_waits_for_its_grace_period() -> None:
    world = World()
    world.task("a", failover={"grace_s": 20})
    run_id, _ = world.running("a", "node-2")
    world.do(MarkDown(NOW_US, "node-2", 1, "stopped", 0))
    grace = f"{run_id} backs off until 2026-11-18T11:07:00Z, the grace period of its failover"
    assert statements(world) == [("backing_off", grace)]


def test_without_an_owner_the_status_says_what_each_member_lacks() -> None:
    world = World()
    world.task("a", group={"disk": "tape"}, pin="node-9")
    world.do(MarkDown(NOW_US, "node-2", 1, "stopped", 0))
    world.do(Drain(NOW_US, "node-3", on=True))
    [(code, detail), _] = statements(world)
    assert code == "no_owner"
    words, _, parts = detail.partition(": ")
    assert words == "no member may run it"
    assert set(parts.split(", ")) == {
        "node-9 is not a member",
        "node-1 lacks a label (disk=tape)",
        "node-2 is down",
        "node-3 is draining",
    }


def test_the_status_names_a_schedule_that_cannot_be_evaluated() -> None:
    world = World()
    world.task("a", schedule={"cron": "0 3 * * *"})
    row = world.state.tasks["a"]
    raw = msgpack.unpackb(row.spec_packed) | {"schedule": {"cron": "0 3 * * *", "timezone": "Mars/Olympus"}}
    world.state = replace(world.state, tasks=world.state.tasks.set("a", replace(row, spec_packed=msgpack.packb(raw))))
    assert [code for code, _ in statements(world)] == ["unreadable"]


def test_the_status_of_a_task_that_comes_after_others_at_times_of_its_own() -> None:
    world = World()
    world.do(TakeLead(NOW_US, "node-1", 1, RULES))
    world.task("a", schedule={"every_s": 60})
    world.task("b", after=["a"], schedule={"every_s": 90}, wait_s=600)
    assert statements(world, "b") == [("not_due", "not due until 2026-11-18T11:08:10Z; then it waits for a")]
    due_us, first_us = NOW_US + 90 * S, NOW_US + 60 * S
    world.do(AwaitParents(due_us, "b", due_us, (("a", first_us),)))
    detail = "its occurrence of 2026-11-18T11:08:10Z waits for a (of 2026-11-18T11:07:40Z) until 2026-11-18T11:18:10Z"
    assert statements(world, "b", due_us) == [("after", detail)]
