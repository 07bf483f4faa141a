"""A week of the schedules: what is due when, what calendars leave out, and what collides."""

from dataclasses import replace
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from immutables import Map

from node.duty.week import COLLISIONS_MAX, OFTEN, DueMinute, Week, week_of
from node.state.blackout import Blackout
from node.state.calendar import Calendar
from node.state.places import Places
from node.state.pool import Pool
from node.state.value import EachRow, Run, State, TaskRow
from tasks.definition.spec import Continuous, Cron, Every
from tests.unit.node.duty.given import S, task, world

MONDAY = date(2026, 11, 30)
UTC_ZONE = ZoneInfo("UTC")
PARIS = ZoneInfo("Europe/Paris")


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * S


LONG_AGO = us("2026-01-01T00:00:07")


def given(*parts: TaskRow | Run, places: int = 2, pools: dict[str, int] | None = None) -> State:
    """A world of three members with `places` each, and these pools."""
    state = world(*parts)
    told = {"places": Places(places), "kinds": frozenset({"command"})}
    members = Map({name: replace(one, **told) for name, one in state.members.items()})  # type: ignore[arg-type]
    return replace(state, members=members, pools=Map({name: Pool(most) for name, most in (pools or {}).items()}))


def daily(name: str, clock: str, since_us: int = LONG_AGO, zone: str = "UTC", **spec: object) -> TaskRow:
    hour, minute = clock.split(":")
    cron = {"cron": f"{int(minute)} {int(hour)} * * *", "timezone": zone}
    return task(name, since_us=since_us, schedule=cron, **spec)  # type: ignore[arg-type]


def lines(week: Week) -> list[str]:
    """What is listed: the day, the hour, how many, and the first tasks of each minute."""
    return [
        f"{one.day:%a} {hour.hour}: {hour.count} " + " ".join(",".join(due.tasks) for due in hour.due)
        for one in week.days
        for hour in one.hours
    ]


def test_what_is_due_is_listed_by_the_days_and_hours_of_the_zone() -> None:
    state = given(
        daily("b", "23:30"),
        daily("a", "23:30"),
        task("once", since_us=LONG_AGO, schedule={"at": "2026-12-02T08:15:00Z"}),
    )
    week = week_of(state, UTC_ZONE, MONDAY)
    assert lines(week)[:3] == ["Mon 23: 2 a,b", "Tue 23: 2 a,b", "Wed 8: 1 once"]
    assert (len(week.days), week.count, week.days[0].day) == (7, 15, MONDAY)
    # In Paris it is half past midnight: of the day after.
    assert lines(week_of(state, PARIS, MONDAY))[:4] == ["Mon 0: 2 a,b", "Tue 0: 2 a,b", "Wed 0: 2 a,b", "Wed 9: 1 once"]


def test_the_time_zones_of_the_schedules_are_named() -> None:
    state = given(daily("a", "1:00"), daily("b", "1:00", zone="Europe/Paris"), daily("c", "1:00", zone="Asia/Tokyo"))
    assert week_of(state, UTC_ZONE, MONDAY).zones == ("Asia/Tokyo", "Europe/Paris", "UTC")


def test_the_week_begins_and_ends_with_its_midnights() -> None:
    week = week_of(given(daily("midnight", "00:00", zone="Europe/Paris")), PARIS, MONDAY)
    assert lines(week) == [f"{name} 0: 1 midnight" for name in "Mon Tue Wed Thu Fri Sat Sun".split()]


def test_a_schedule_has_no_times_before_it_counts_and_none_while_it_is_paused() -> None:
    late = daily("late", "12:00", since_us=us("2026-12-03T13:00:00"))
    state = given(late, task("off", since_us=LONG_AGO, enabled=False, schedule={"cron": "@daily"}))
    state = replace(state, tasks=state.tasks.set("held", daily("held", "1:00", paused=True)))
    assert lines(week_of(state, UTC_ZONE, MONDAY)) == ["Fri 12: 1 late", "Sat 12: 1 late", "Sun 12: 1 late"]
    assert week_of(state, UTC_ZONE, date(2026, 11, 2)).count == 0


def test_what_is_due_often_is_summed_up() -> None:
    state = given(
        *(task(f"tick-{n}", since_us=LONG_AGO + n, schedule={"every_s": 30}) for n in range(5)),
        task("line", since_us=LONG_AGO, schedule={"cron": "*/5 * * * *"}),
        task("ever", since_us=LONG_AGO, schedule={"continuous": True}),
        task("rare", since_us=LONG_AGO, schedule={"every_s": 7 * 86400 / OFTEN}),
        places=100,
    )
    week = week_of(state, UTC_ZONE, MONDAY)
    assert [(one.schedule, one.count, one.tasks) for one in week.often] == [
        (Continuous(continuous=True), 1, ("ever",)),
        (Every(every_s=30), 5, ("tick-0", "tick-1", "tick-2")),
        (Cron(cron="*/5 * * * *"), 1, ("line",)),
    ]
    assert (week.often_tasks, week.count, week.cut) == (7, OFTEN, 0)


def test_days_that_a_calendar_leaves_out_say_why_and_where_to() -> None:
    closing = Calendar((date(2026, 12, 1).toordinal(),))
    state = replace(given(
        daily("a", "3:00", calendar={"skip": ["closing"]}),
        daily("b", "4:00", calendar={"skip": ["closing"]}),
        daily("c", "5:00", calendar={"skip": ["closing"], "on_skip": "next"}),
        daily("d", "6:00", calendar={"skip": ["nowhere"]}),
    ), calendars=Map({"closing": closing}))  # fmt: skip
    week = week_of(state, UTC_ZONE, MONDAY)
    tuesday = week.days[1]
    assert tuesday.hours == ()
    assert [(one.calendars, one.count, one.tasks, one.moved_to) for one in tuesday.left_out] == [
        (("closing",), 2, ("a", "b"), None),
        (("closing",), 1, ("c",), date(2026, 12, 2)),
    ]
    assert all(not day.left_out for number, day in enumerate(week.days) if number != 1)
    assert lines(week)[3] == "Wed 3: 1 a"
    assert week.unknown_days == 1, "d: its calendar is not there"


def test_more_in_one_minute_than_places_collides_and_is_named_once_for_all_days() -> None:
    state = given(*(daily(f"t-{n}", "2:30") for n in range(7)))
    week = week_of(state, UTC_ZONE, MONDAY)
    [found] = week.collisions
    assert (found.pool, found.room, found.most, len(found.times), found.tasks) == ("", 6, 7, 7, ("t-0", "t-1", "t-2"))
    assert found.times[0] == us("2026-11-30T02:30:00")
    assert [hour.collides for day in week.days for hour in day.hours] == [True] * 7
    assert week_of(given(*(daily(f"t-{n}", "2:30") for n in range(6))), UTC_ZONE, MONDAY).collisions == ()
    assert week_of(given(*(daily(f"t-{n}", "2:30") for n in range(9)), places=0), UTC_ZONE, MONDAY).places is None


def test_more_in_one_minute_than_a_pool_has_collides() -> None:
    rows = [daily(f"dump-{n}", "1:00", uses={"db": 2}) for n in range(2)]
    week = week_of(given(*rows, daily("other", "1:00"), pools={"db": 3}), UTC_ZONE, MONDAY)
    [found] = week.collisions
    assert (found.pool, found.room, found.most, found.tasks) == ("db", 3, 4, ("dump-0", "dump-1"))
    assert week_of(given(*rows, pools={"db": 4}), UTC_ZONE, MONDAY).collisions == ()


def test_what_is_due_often_counts_in_what_collides() -> None:
    rows = [daily(f"t-{n}", "2:30") for n in range(5)]
    hourly = [task(f"h-{n}", since_us=us("2026-01-01T00:30:00") + n * S, schedule={"every_s": 3600}) for n in range(2)]
    line = task("line", since_us=LONG_AGO, schedule={"cron": "30 * * * *"})
    assert week_of(given(*rows, hourly[0]), UTC_ZONE, MONDAY).collisions == ()
    for often in (hourly, [hourly[0], line], [line, task("tick", since_us=LONG_AGO, schedule={"every_s": 20})]):
        [found] = week_of(given(*rows, *often), UTC_ZONE, MONDAY).collisions
        assert (found.most, len(found.times), found.tasks) == (7, 7, ("t-0", "t-1", "t-2"))
    odd = task("odd", since_us=us("2026-11-30T02:29:00"), schedule={"every_s": 90})
    found = week_of(given(*rows, odd, line), UTC_ZONE, MONDAY).collisions[0]
    assert found.most == 7
    assert found.times == tuple(
        us(f"2026-{day}T02:30:00") for day in ("11-30", "12-01", "12-02", "12-03", "12-04", "12-05", "12-06")
    )


def test_what_is_too_much_in_every_minute_is_said_once() -> None:
    ticks = [task(f"tick-{n}", since_us=LONG_AGO + n * S, schedule={"every_s": 30}) for n in range(7)]
    week = week_of(given(*ticks, daily("a", "1:00")), UTC_ZONE, MONDAY)
    [found] = week.collisions
    assert (found.always, found.most, found.room, week.more_collisions) == (True, 7, 6, 0)


def test_many_collisions_are_counted() -> None:
    rows = [
        daily(f"t-{hour}-{minute}-{n}", f"{hour}:{minute}")
        for hour in range(24)
        for minute in (0, 30)
        for n in range(4)
    ]
    week = week_of(given(*rows, places=1), UTC_ZONE, MONDAY)
    assert (len(week.collisions), week.more_collisions) == (COLLISIONS_MAX, 48 - COLLISIONS_MAX)
    assert all(hour.collides for day in week.days for hour in day.hours)


def test_blackouts_that_fall_into_the_week_are_there() -> None:
    night = Blackout("night", us("2026-12-01T22:00:00"), us("2026-12-02T02:00:00"))
    over = Blackout("over", us("2026-11-29T22:00:00"), us("2026-11-30T00:00:00"))
    state = replace(given(), blackouts=Map({"night": night, "over": over}))
    assert week_of(state, UTC_ZONE, MONDAY).blackouts == (night,)


def test_a_day_on_which_the_clocks_change_has_another_length() -> None:
    state = given(daily("a", "2:30", zone="Europe/Paris"), daily("b", "3:10", zone="Europe/Paris"))
    spring = week_of(state, PARIS, date(2027, 3, 22)).days[6]
    assert (spring.ends_us - spring.begins_us) // (3600 * S) == 23
    assert [(hour.hour, hour.count) for hour in spring.hours] == [(3, 2)], "half past two does not exist"
    autumn = week_of(state, PARIS, date(2026, 10, 19)).days[6]
    assert (autumn.ends_us - autumn.begins_us) // (3600 * S) == 25
    assert [(hour.hour, hour.count) for hour in autumn.hours] == [(2, 1), (3, 1)]


def test_an_hour_names_few_minutes_and_a_minute_few_tasks() -> None:
    rows = [daily(f"m-{minute}-{n}", f"4:{minute:02}") for minute in range(10) for n in range(5)]
    [hour] = week_of(given(*rows, places=99), UTC_ZONE, MONDAY).days[0].hours
    assert (hour.count, len(hour.due)) == (50, 4)
    assert hour.due[0] == DueMinute(us("2026-11-30T04:00:00"), 5, ("m-0-0", "m-0-1", "m-0-2"))


def test_a_task_on_each_member_takes_a_place_on_each() -> None:
    state = given(daily("clean", "1:00", each=True), daily("other", "1:00"), places=1)
    state = replace(state, each=Map({"clean": EachRow("clean")}))
    [found] = week_of(state, UTC_ZONE, MONDAY).collisions
    assert (found.room, found.most, found.tasks) == (3, 4, ("clean", "other"))
