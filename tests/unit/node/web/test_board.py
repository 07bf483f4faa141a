"""What stands out of all tasks, and that an earlier picture is used again where it may be."""

import asyncio

from node.duty.forecast import forecast
from node.duty.ownership import Ownership
from node.duty.timetable import TimeSpan, timetable
from node.http.api.what_ifs import STILL_US
from node.state.attempts import Finish
from node.state.occurrences import Start
from node.state.registry import Pause
from node.web.board import AHEAD_US, STEPS, ComingTask, Picture, Standout, TaskBoard
from node.web.board_keeper import BoardKeeper
from tests.unit.node.http.given import HOUR_US, NOW_US, World

MINUTE_US = 60_000_000


def picture(world: World, after_us: int = 0) -> Picture:
    return TaskBoard().read(world.state, Ownership.of(world.state), NOW_US + after_us)


def marked(found: Picture) -> dict[str, set[str]]:
    return {task: {mark for mark in found.counts if found.has(task, mark)} for task in found.bits}


def full() -> World:
    """A cluster with a task of each sort."""
    world = World()
    world.task("hourly", schedule={"every_s": 3600})
    world.task("minutely", schedule={"every_s": 60})
    world.task("gpu", group={"gpu": "a100"})
    world.task("paused", schedule={"every_s": 60})
    world.do(Pause(NOW_US, "paused", True))
    world.task("off", enabled=False)
    world.task("at-work")
    world.running("at-work")
    world.task("queued")
    world.do(Start(NOW_US, "queued"))
    world.task("good")
    world.do(Finish(NOW_US + 5, *world.running("good"), "succeeded", {}))
    world.task("bad")
    world.do(Finish(NOW_US + 5, *world.running("bad"), "failed", None, "boom", retry=False))
    return world


def test_each_task_has_the_marks_of_its_state() -> None:
    found = picture(full(), MINUTE_US // 2)
    assert marked(found) == {
        "hourly": {"new"},
        "minutely": {"new"},
        "gpu": {"new", "unowned"},
        "paused": {"new", "paused"},
        "off": {"new", "paused"},
        "at-work": {"running"},
        "queued": {"waiting", "overdue"},
        "bad": {"failing"},
    }
    assert found.total == 9
    assert (found.counts["new"], found.counts["failing"], found.counts["overdue"]) == (5, 1, 1)
    assert [(one.task, one.at_us) for one in found.failing] == [("bad", NOW_US + 5)]
    assert (found.unowned, found.waiting) == (("gpu",), ("queued",))


def test_a_task_is_late_while_a_deadline_is_breached() -> None:
    world = full()
    world.late("no-success")
    found = picture(world)
    assert marked(found)["no-success"] == {"late", "new"}
    assert found.late == (Standout(NOW_US + HOUR_US, "no-success"),)
    world.do(Pause(NOW_US + HOUR_US, "no-success", True))
    assert (picture(world).late, picture(world).counts["late"]) == ((), 0)


def test_what_is_due_comes_next_until_it_is_overdue() -> None:
    world = full()
    before = picture(world, MINUTE_US // 2)
    assert (len(before.density), sum(before.density)) == (STEPS, before.coming_count)
    just = picture(world, MINUTE_US + 500_000)
    assert not just.has("minutely", "overdue"), "a claim takes a moment"
    assert before.coming == (
        ComingTask(NOW_US + MINUTE_US, "minutely", 60),
        ComingTask(NOW_US + HOUR_US, "hourly", 1),
    )
    late = picture(world, MINUTE_US + 1_000_000)
    assert [one.at_us for one in late.overdue if one.task == "minutely"] == [NOW_US + MINUTE_US]
    assert late.coming[0] == ComingTask(NOW_US + 2 * MINUTE_US, "minutely", 60), "the overdue one is told as such"
    assert picture(world, -1).coming[-1].at_us <= NOW_US + AHEAD_US - 1


def test_the_next_hour_has_as_many_occurrences_as_the_timeline() -> None:
    world = full()
    world.task("often", schedule={"every_s": 7.5})
    world.task("cron", schedule={"cron": "*/7 * * * *", "timezone": "Asia/Kathmandu"})
    world.task("cron-too", schedule={"cron": "*/7 * * * *", "timezone": "Asia/Kathmandu"})
    world.task("once", schedule={"at": "2026-11-18T11:20:00Z"})
    world.task("all-the-time", schedule={"continuous": True})
    for after_us in (0, MINUTE_US // 2, 5 * MINUTE_US):
        found = picture(world, after_us)
        span = TimeSpan(NOW_US + after_us, NOW_US + after_us + AHEAD_US)
        ownership = Ownership.of(world.state)
        ahead = forecast(timetable(world.state, span), span, ownership.owner, ownership.owner)
        assert (found.coming_count, ahead.continuous) == (ahead.due, 1)
        assert found.coming_count == sum(found.density) == sum(one.times for one in found.coming) > 500


def test_a_board_follows_changes_of_the_state() -> None:
    world, board = full(), TaskBoard()
    first = board.read(world.state, Ownership.of(world.state), NOW_US)
    world.do(Pause(NOW_US, "minutely", True))
    world.task("another")
    second = board.read(world.state, Ownership.of(world.state), NOW_US)
    assert "minutely" in {one.task for one in first.coming} - {one.task for one in second.coming}
    assert second == picture(world)


def test_a_paused_task_is_not_reported_as_failing() -> None:
    world = full()
    world.do(Pause(NOW_US, "bad", True))
    assert picture(world).counts["failing"] == 0


def test_a_picture_is_used_again_for_a_moment_and_in_proportion_to_what_it_cost() -> None:
    async def asked() -> None:
        world, now_s, spent_s = full(), iter([0.1, 1.0, 2.2, 2.3, 5.0, 5.0, 5.1]), iter([0.0, 0.1, 0.1, 0.2, 0.2, 0.3])
        keeper = BoardKeeper(lambda: next(now_s), lambda: next(spent_s))

        async def read(after_us: int) -> Picture:
            return await keeper.picture(world.state, Ownership.of(world.state), NOW_US + after_us)

        first = await read(0)  # until 0.1 s
        world.task("another")
        assert await read(STILL_US) is first, "at 1.0 s: less than twenty times 0.1 s after that"
        second = await read(STILL_US)  # at 2.2 s: until 2.3 s
        assert second.total == 10
        assert await read(2 * STILL_US - 1) is second, "at 5.0 s: the state is the same, and so is nearly the time"
        assert await read(2 * STILL_US) is not second, "at 5.0 s"

    asyncio.run(asked())


def test_a_cheap_picture_is_read_anew_also_where_it_took_long() -> None:
    async def asked() -> None:
        world, now_s = full(), iter([9.0, 9.0, 9.0])
        keeper = BoardKeeper(lambda: next(now_s), lambda: 0.0)
        first = await keeper.picture(world.state, Ownership.of(world.state), NOW_US)
        world.task("another")
        second = await keeper.picture(world.state, Ownership.of(world.state), NOW_US)
        assert (first.total, second.total) == (9, 10)

    asyncio.run(asked())
