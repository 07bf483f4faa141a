"""How a task stands."""

from dataclasses import replace

import msgpack

from node.duty.ownership import Ownership
from node.http.views import owner_view
from node.state.entries import Cancel, Drain, Finish, MarkDown, Pause, Start
from tests.unit.node.http.given import NOW_US, World

S = 1_000_000


def told(world: World, task: str = "a", now_us: int = NOW_US) -> list[tuple[str, str]]:
    view = owner_view(world.state, Ownership.of(world.state), task, now_us)
    return [(one["code"], one["detail"]) for one in view["standing"]]


def test_what_is_not_due_or_never_is() -> None:
    world = World()
    world.task("a", schedule={"every_s": 60})
    assert told(world) == [("not_due", "not due until 2026-11-18T11:07:40Z")]
    assert told(world, now_us=NOW_US + 61 * S) == [("due", "due since 2026-11-18T11:07:40Z, and nobody has begun it")]
    world.do(Pause(NOW_US, "a", on=True))
    assert told(world) == [("paused", "paused: nothing of it falls due until it is resumed (rota resume a)")]
    world.task("off", schedule={"every_s": 60}, enabled=False)
    assert [code for code, _ in told(world, "off")] == ["disabled"]
    world.task("hand")
    assert [code for code, _ in told(world, "hand")] == ["by_hand"]
    world.task("past", schedule={"at": "2020-01-01T00:00:00Z"})
    assert told(world, "past") == [("over", "its schedule has no times to come")]


def test_what_runs_backs_off_and_waits_behind_another() -> None:
    world = World()
    world.task("a", overlap="queue", retry={"attempts": 3, "backoff_s": 30})
    first, token = world.running("a")
    second = world.do(Start(NOW_US + S, "a"))["run_id"]
    behind = ("behind", f"{second} waits behind {first} (overlap: queue)")
    assert told(world) == [("running", f"attempt 1 of {first} runs on node-1"), behind]
    world.do(Finish(NOW_US, first, token, "failed"))
    off = ("backing_off", f"{first} backs off until 2026-11-18T11:07:10Z, after 1 failed attempt")
    assert told(world) == [off, behind], "it keeps its place"
    assert told(world, now_us=NOW_US + 31 * S)[0] == ("due", f"{first} is due, and nobody has begun it")
    world.do(Cancel(NOW_US, first, "by hand"))
    assert told(world) == [("due", f"{second} is due, and nobody has begun it")]


def test_what_was_lost_waits_for_its_grace() -> None:
    world = World()
    world.task("a", failover={"grace_s": 20})
    run_id, _ = world.running("a", "node-2")
    world.do(MarkDown(NOW_US, "node-2", 1, "stopped", 0))
    grace = f"{run_id} backs off until 2026-11-18T11:07:00Z, when the grace of its failover is over"
    assert told(world) == [("backing_off", grace)]


def test_without_an_owner_it_says_what_each_member_lacks() -> None:
    world = World()
    world.task("a", group={"disk": "tape"}, pin="node-9")
    world.do(MarkDown(NOW_US, "node-2", 1, "stopped", 0))
    world.do(Drain(NOW_US, "node-3", on=True))
    [(code, detail), _] = told(world)
    assert code == "no_owner"
    words, _, parts = detail.partition(": ")
    assert words == "no member may run it"
    assert set(parts.split(", ")) == {
        "node-9 is no member",
        "node-1 lacks a label (disk=tape)",
        "node-2 is down",
        "node-3 is draining",
    }


def test_a_schedule_that_cannot_be_read_here_is_told() -> None:
    world = World()
    world.task("a", schedule={"cron": "0 3 * * *"})
    row = world.state.tasks["a"]
    raw = msgpack.unpackb(row.spec_packed) | {"schedule": {"cron": "0 3 * * *", "timezone": "Mars/Olympus"}}
    world.state = replace(world.state, tasks=world.state.tasks.set("a", replace(row, spec_packed=msgpack.packb(raw))))
    assert [code for code, _ in told(world)] == ["unreadable"]
