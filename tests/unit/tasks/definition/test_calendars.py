"""On which days a task is due: compared, for every day of some years, with the rule written out day by day."""

import random
from datetime import UTC, date, datetime, timedelta
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from tasks.definition.calendars import MOVED_DAYS_MAX, CalendarDays, NamedDays
from tasks.definition.schedule import latest_due_us, left_out_days, may_be_due, next_due_us, occurrences
from tasks.definition.spec import At, Cron, Schedule, Spec, calendar_of, timing

US = 1_000_000
DAY_US = 86_400 * US


def us(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1e6)


def day(text: str) -> int:
    return date.fromisoformat(text).toordinal()


def listed(name: str, *days: str, until: str = "") -> NamedDays:
    return NamedDays(name, tuple(sorted(map(day, days))), day(until) if until else 0)


def days_of(skip: tuple[NamedDays, ...] = (), only: tuple[NamedDays, ...] = (), on_skip: Any = "skip") -> CalendarDays:
    untils = [one.until for one in (*skip, *only) if one.until]
    return CalendarDays(skip, only, on_skip, min(untils, default=0))


def shown(schedule: Schedule, days: CalendarDays, after: str, count: int, zone: str = "UTC") -> list[str]:
    due = islice(occurrences(schedule, days, 0, us(after, zone)), count)
    return [f"{datetime.fromtimestamp(at_us / 1e6, ZoneInfo(zone)):%a %d %b %H:%M}" for at_us in due]


CHRISTMAS = listed("holidays/DE", "2026-12-25", "2026-12-26", "2027-01-01", until="2027-12-31")
NIGHTLY = Cron(cron="0 3 * * *", timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("on_skip", "wanted"),
    [
        ("skip", ["Thu 24 Dec 03:00", "Sun 27 Dec 03:00", "Mon 28 Dec 03:00"]),
        ("next", ["Thu 24 Dec 03:00", "Sun 27 Dec 03:00", "Mon 28 Dec 03:00"]),
        ("previous", ["Thu 24 Dec 03:00", "Sun 27 Dec 03:00", "Mon 28 Dec 03:00"]),
    ],
)
def test_what_is_moved_to_a_time_that_is_due_anyway_is_due_once(on_skip: str, wanted: list[str]) -> None:
    assert shown(NIGHTLY, days_of((CHRISTMAS,), on_skip=on_skip), "2026-12-23T12:00", 3, "Europe/Berlin") == wanted


@pytest.mark.parametrize(
    ("on_skip", "wanted"),
    [
        ("skip", ["Fri 18 Dec 18:30", "Fri 08 Jan 18:30"]),
        ("next", ["Fri 18 Dec 18:30", "Sun 27 Dec 18:30", "Sat 02 Jan 18:30", "Fri 08 Jan 18:30"]),
        ("previous", ["Fri 18 Dec 18:30", "Thu 24 Dec 18:30", "Thu 31 Dec 18:30", "Fri 08 Jan 18:30"]),
    ],
)
def test_a_weekly_task_is_moved_at_the_same_time_of_day(on_skip: str, wanted: list[str]) -> None:
    fridays = Cron(cron="30 18 * * 5", timezone="Europe/Berlin")
    days = days_of((CHRISTMAS,), on_skip=on_skip)
    assert shown(fridays, days, "2026-12-12T12:00", len(wanted), "Europe/Berlin") == wanted


def test_the_order_of_times_on_a_day_is_kept_when_later_days_move_to_it() -> None:
    closed = listed("closing", "2026-12-26", "2026-12-27")
    schedule = Cron(cron="0 6,18 * * 0,6")
    assert shown(schedule, days_of((closed,), on_skip="previous"), "2026-12-24T12:00", 3) == [
        "Fri 25 Dec 06:00",
        "Fri 25 Dec 18:00",
        "Sat 02 Jan 06:00",
    ]


def test_a_day_is_that_of_the_schedules_time_zone() -> None:
    closed = days_of((listed("closing", "2026-12-24"),))
    auckland = Cron(cron="0 8 * * *", timezone="Pacific/Auckland")  # 19:00 of the day before in UTC
    assert shown(auckland, closed, "2026-12-23T12:00", 1, "Pacific/Auckland") == ["Fri 25 Dec 08:00"]
    at = At.model_validate({"at": "2026-12-24T23:30:00-05:00"})
    assert list(occurrences(at, closed, 0, 0)) == []
    assert list(occurrences(At.model_validate({"at": "2026-12-24T23:30:00-00:30"}), closed, 0, 0)) == []
    assert list(occurrences(At.model_validate({"at": "2026-12-25T00:30:00Z"}), closed, 0, 0)) != []


def test_only_days_of_a_calendar_and_none_after_the_last_one() -> None:
    business = listed("business-days", "2026-12-23", "2026-12-28")
    days = days_of(only=(business,), skip=(listed("closing", "2026-12-28"),))
    assert shown(NIGHTLY, days, "2026-12-01T00:00", 5, "Europe/Berlin") == ["Wed 23 Dec 03:00"]
    # However often a line is due, days without occurrences are not gone through.
    often = Cron(cron="* * * * *")
    assert next_due_us(often, days_of(only=(listed("one", "2029-06-01"),)), 0, us("2026-12-01T00:00")) == us(
        "2029-06-01"
    )


def test_nothing_is_due_where_the_days_are_not_known() -> None:
    days = days_of((listed("holidays/DE", until="2026-12-24"),))
    assert shown(NIGHTLY, days, "2026-12-22T12:00", 5, "Europe/Berlin") == ["Wed 23 Dec 03:00", "Thu 24 Dec 03:00"]
    assert next_due_us(NIGHTLY, days, 0, us("2027-01-01")) is None
    assert next_due_us(NIGHTLY, days._replace(missing=("x",)), 0, 0) is None
    moved = days_of((listed("holidays/DE", "2026-12-24", until="2026-12-24"),), on_skip="next")
    assert shown(NIGHTLY, moved, "2026-12-23T12:00", 5) == [], "the day to which it would be moved is not known"


def test_a_moved_time_that_the_clocks_skip_is_due_at_the_first_minute_after() -> None:
    closed = days_of((listed("closing", "2026-03-28"),), on_skip="next")
    saturdays = Cron(cron="30 2 * * 6", timezone="Europe/Paris")
    assert shown(saturdays, closed, "2026-03-27T12:00", 1, "Europe/Paris") == ["Sun 29 Mar 03:00"]
    daily = Cron(cron="30 2 * * *", timezone="Europe/Paris")
    assert shown(daily, closed, "2026-03-27T12:00", 2, "Europe/Paris") == ["Sun 29 Mar 03:00", "Mon 30 Mar 02:30"]


def written_out(cron: Cron, days: CalendarDays, after_us: int, until_us: int) -> list[int]:
    """The due times, by going through all times and all days."""
    zone = ZoneInfo(cron.timezone)
    found = set()
    around_us = (MOVED_DAYS_MAX + 2) * DAY_US
    base = takewhile(lambda at_us: at_us <= until_us + around_us, occurrences(cron, None, 0, after_us - around_us))
    for at_us in base:
        local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)).astimezone(zone)
        step = {"skip": 0, "next": 1, "previous": -1}[days.on_skip]
        for moved in range(MOVED_DAYS_MAX + 1 if step else 1):
            one = local.date() + timedelta(days=step * moved)
            is_in = [any(one.toordinal() in named.days for named in these) for these in (days.skip, days.only)]
            if not is_in[0] and (is_in[1] or not days.only):
                moved_to = datetime.combine(one, local.time(), zone)
                found.add(at_us if not moved else round(moved_to.timestamp() * 1e6))
                break
    return sorted(at_us for at_us in found if after_us < at_us <= until_us)


@pytest.mark.parametrize("seed", range(60))
def test_it_is_as_written_out_day_by_day(seed: int) -> None:
    rng = random.Random(seed)
    first = day("2026-01-01")
    lines = ["0 3 * * *", "30 18 * * 5", "0 6,18 * * 0,6", "15 9 1 * *", "0 0 * * *", "59 23 * * 1-5", "0 */6 * * *"]
    cron = Cron(cron=rng.choice(lines), timezone=rng.choice(["UTC", "Asia/Kolkata", "America/Phoenix"]))

    def some(share: float) -> NamedDays:
        return NamedDays("x", tuple(one for one in range(first, first + 500) if rng.random() < share))

    days = days_of(
        skip=tuple(some(rng.choice([0.03, 0.3, 0.8])) for _ in range(rng.choice([0, 1, 2]))),
        only=tuple(some(rng.choice([0.02, 0.3])) for _ in range(rng.choice([0, 0, 1, 2]))),
        on_skip=rng.choice(["skip", "next", "previous"]),
    )
    after_us = us("2026-03-01") + rng.randrange(20 * DAY_US)
    until_us = after_us + 200 * DAY_US
    wanted = written_out(cron, days, after_us, until_us)
    assert list(takewhile(lambda at_us: at_us <= until_us, occurrences(cron, days, 0, after_us))) == wanted
    for at_us in rng.sample(range(after_us, until_us), 5):
        assert next_due_us(cron, days, after_us, at_us) == next(
            (one for one in wanted if one > at_us), next(iter(occurrences(cron, days, 0, until_us)), None)
        )
        assert latest_due_us(cron, days, after_us, at_us) == max((one for one in wanted if one <= at_us), default=None)


def test_the_days_that_fall_out_are_told_with_the_calendars() -> None:
    told = list(left_out_days(NIGHTLY, days_of((CHRISTMAS,)), us("2026-12-24"), us("2026-12-28")))
    assert [str(one) for one in told] == [
        "Fri 25 Dec 2026 falls out (holidays/DE)",
        "Sat 26 Dec 2026 falls out (holidays/DE)",
    ]
    only = days_of(only=(listed("month-ends", "2026-12-31"),), on_skip="next")
    [one] = left_out_days(Cron(cron="0 3 24 12 *"), only, us("2026-12-01"), us("2026-12-31"))
    assert str(one) == "Thu 24 Dec 2026 is moved to Thu 31 Dec 2026 (month-ends)"
    assert list(left_out_days(NIGHTLY, None, 0, us("2026-12-28"))) == []


def test_a_definition_with_a_calendar() -> None:
    given = {"name": "a", "kind": "command", "schedule": {"cron": "0 3 * * *"}, "calendar": {"skip": "closing"}}
    packed = Spec.model_validate(given).pack()
    rule = calendar_of(packed)
    assert rule is not None
    assert (rule.names, rule.on_skip, timing(packed).calendar) == (("closing",), "skip", rule)
    assert b"calendar" not in Spec(name="a", kind="command").pack()
    assert may_be_due(timing(packed), 0, 5 * US)
    assert not may_be_due(timing(packed), 5 * US, 5 * US)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"schedule": {"every_s": 60}}, "for schedules with `cron` or `at`"),
        ({"schedule": None}, "for schedules with `cron` or `at`"),
        ({"schedule": {"continuous": True}}, "for schedules with `cron` or `at`"),
        ({"schedule": {"cron": "*/5 * * * *"}}, "more than 24 times a day"),
        ({"calendar": {"on_skip": "next"}}, "names no calendar"),
        ({"calendar": {"skip": ["a b"]}}, "String should match pattern"),
    ],
)
def test_what_is_no_calendar_of_a_definition(fields: dict[str, Any], fault: str) -> None:
    given = {"name": "a", "kind": "command", "schedule": {"cron": "0 3 * * *"}}
    given |= {"calendar": {"skip": "closing", "on_skip": "next"}} | fields
    with pytest.raises(ValidationError, match=fault):
        Spec.model_validate(given)
