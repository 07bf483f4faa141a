"""Due times: cron by Debian's rules, every, at, continuous."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.definition.cron import NAMED, check_cron, check_timezone
from tasks.definition.schedule import latest_due_us, next_due_us, occurrences, unreadable
from tasks.definition.spec import At, Continuous, Cron, Every

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def us(text: str, zone: str = "UTC") -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(zone))
    return (moment - EPOCH) // timedelta(microseconds=1)


def times(line: str, zone: str, after: str, count: int) -> list[str]:
    """The next due times of a cron line after a local time, as local times with their offset."""
    due = occurrences(Cron(cron=line, timezone=zone), None, 0, us(after, zone))
    return [
        (EPOCH + timedelta(microseconds=at_us)).astimezone(ZoneInfo(zone)).isoformat() for at_us in islice(due, count)
    ]


# What Debian's cron(8) says: "if a time change of less than three hours occurs, jobs at times that are skipped
# run immediately after the change, and jobs at times that are repeated run once"; wildcard jobs follow the clock.


def test_a_skipped_daily_time_is_due_right_after_the_jump_in_paris() -> None:
    assert times("30 2 * * *", "Europe/Paris", "2026-03-28T03:00", 3) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
        "2026-03-31T02:30:00+02:00",
    ]


def test_a_repeated_daily_time_is_due_once_at_its_first_passing_in_paris() -> None:
    assert times("30 2 * * *", "Europe/Paris", "2026-10-24T03:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_a_skipped_daily_time_is_due_right_after_the_jump_in_new_york() -> None:
    assert times("30 2 * * *", "America/New_York", "2026-03-07T03:00", 2) == [
        "2026-03-08T03:00:00-04:00",
        "2026-03-09T02:30:00-04:00",
    ]


def test_a_repeated_daily_time_is_due_once_at_its_first_passing_in_new_york() -> None:
    assert times("30 1 * * *", "America/New_York", "2026-10-31T03:00", 2) == [
        "2026-11-01T01:30:00-04:00",
        "2026-11-02T01:30:00-05:00",
    ]


def test_several_times_in_a_skipped_hour_are_due_once() -> None:
    assert times("0,15,45 2 * * *", "Europe/Paris", "2026-03-28T03:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:00:00+02:00",
    ]


def test_wildcard_lines_follow_elapsed_time() -> None:
    assert times("*/30 * * * *", "Europe/Paris", "2026-03-29T01:15", 3) == [
        "2026-03-29T01:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-29T03:30:00+02:00",
    ]
    assert times("0 * * * *", "Europe/Paris", "2026-10-25T01:30", 4) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T03:00:00+01:00",
        "2026-10-25T04:00:00+01:00",
    ]


def test_a_due_time_is_not_repeated_in_the_second_passing_of_its_hour() -> None:
    # From within the second 02:00-03:00 cronsim itself would give 02:30 of the first.
    after_us = us("2026-10-25T02:10:00+01:00")
    due = list(islice(occurrences(Cron(cron="30 2 * * *", timezone="Europe/Paris"), None, 0, after_us), 1))
    assert due == [us("2026-10-26T02:30:00+01:00")]


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York", "UTC"])
@pytest.mark.parametrize("line", ["30 2 * * *", "*/20 * * * *", "15,45 1,2 * * *", "0 30 2 * * *"])
@pytest.mark.parametrize("day", ["2026-03-07", "2026-03-28", "2026-10-24", "2026-10-31"])
def test_due_times_do_not_depend_on_the_moment_asked_from(line: str, zone: str, day: str) -> None:
    schedule = Cron(cron=line, timezone=zone)
    first_us = us(day)
    whole = [
        due for due in islice(occurrences(schedule, None, 0, first_us), 400) if due < first_us + 3 * 86_400_000_000
    ]
    for after_us in range(first_us, whole[-1], 1_200_000_000 + 1):
        assert next_due_us(schedule, None, 0, after_us) == next(due for due in whole if due > after_us)


def test_six_fields_have_seconds_first() -> None:
    assert times("*/20 5 4 * * *", "UTC", "2026-01-01T00:00", 3) == [
        "2026-01-01T04:05:00+00:00",
        "2026-01-01T04:05:20+00:00",
        "2026-01-01T04:05:40+00:00",
    ]


@pytest.mark.parametrize(
    ("name", "due"),
    [
        ("@hourly", "2026-05-06T08:00:00+00:00"),
        ("@daily", "2026-05-07T00:00:00+00:00"),
        ("@midnight", "2026-05-07T00:00:00+00:00"),
        ("@weekly", "2026-05-10T00:00:00+00:00"),
        ("@monthly", "2026-06-01T00:00:00+00:00"),
        ("@yearly", "2027-01-01T00:00:00+00:00"),
        ("@annually", "2027-01-01T00:00:00+00:00"),
    ],
)
def test_cron_nicknames_are_mapped(name: str, due: str) -> None:
    assert name in NAMED
    assert times(name, "UTC", "2026-05-06T07:08:09", 1) == [due]


def test_day_of_month_and_day_of_week_are_combined_with_or() -> None:
    # crontab(5): if both are restricted, the line is due when either matches.
    assert times("0 0 13 * FRI", "UTC", "2026-05-06T00:00", 3) == [
        "2026-05-08T00:00:00+00:00",
        "2026-05-13T00:00:00+00:00",
        "2026-05-15T00:00:00+00:00",
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("0 0 30 2 *", "never fires"),
        ("0 0 31 4,6,9,11 *", "never fires"),
        ("0 0 0 30 FEB *", "never fires"),
        ("0 0 */31 * SUN#5", "never fires"),
        ("@reboot", "no meaning in a cluster"),
        ("@fortnightly", "not a name that cron knows"),
        ("0 25 * * *", "'25' is not a valid hour"),
        ("61 * * * *", "'61' is not a valid minute"),
        ("0 0 * * MONDAY", "day of the week"),
        ("* * * *", "has 4"),
        ("", "has 0"),
        ("* * * * * * *", "has 7"),
        ("*/0 * * * *", "is not a valid minute"),
    ],
)
def test_an_invalid_cron_line_is_refused_with_a_reason(line: str, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("*", r"\*")):
        check_cron(line, "Europe/Paris")


def test_a_cron_line_due_once_in_decades_is_accepted() -> None:
    check_cron("0 0 29 2 *", "UTC")
    check_cron("0 0 */28 2 SUN#5", "UTC")  # 29 February on a Sunday


@given(st.text(alphabet="0123456789*/,-#L W@MONJANx²", max_size=30))
@settings(max_examples=150, deadline=None)
def test_any_invalid_cron_line_raises_value_error_only(line: str) -> None:
    try:
        check_cron(line, "Europe/Paris")
    except ValueError as error:
        assert str(error)


@pytest.mark.parametrize("name", ["", "Europe", "Nowhere/Atall", "../../etc/passwd", "localtime", "UTC+1", "a\0b"])
def test_an_unknown_time_zone_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(ValueError, match="not a time zone"):
        check_timezone(name)


def test_a_spec_names_what_is_wrong_with_its_schedule() -> None:
    with pytest.raises(ValidationError, match="never fires"):
        Cron(cron="0 0 30 2 *")
    with pytest.raises(ValidationError, match="not a time zone"):
        Cron(cron="0 0 * * *", timezone="Mars/Olympus")


@given(
    st.integers(100, 10_000_000).map(lambda ms: ms / 1000), st.integers(0, 2 * 10**15), st.integers(-(10**9), 10**12)
)
@settings(max_examples=60, deadline=None)
def test_every_counts_from_since_in_whole_microseconds(every_s: float, since_us: int, gone_us: int) -> None:
    every_us = round(every_s * 1_000_000)
    due = list(islice(occurrences(Every(every_s=every_s), None, since_us, since_us + gone_us), 5))
    assert all((at_us - since_us) % every_us == 0 for at_us in due)
    assert all(later - earlier == every_us for earlier, later in pairwise(due))
    assert max(since_us, since_us + gone_us) < due[0] <= max(since_us, since_us + gone_us) + every_us


def test_a_tenth_of_a_second_does_not_drift_in_ten_million_steps() -> None:
    assert next_due_us(Every(every_s=0.1), None, 7, 7 + 10_000_000 * 100_000) == 7 + 10_000_001 * 100_000


def test_at_is_due_once_and_never_if_registered_later() -> None:
    at = At(at=datetime(2026, 12, 1, tzinfo=ZoneInfo("Europe/Paris")))
    at_us = us("2026-11-30T23:00:00+00:00")
    assert list(occurrences(at, None, 0, 0)) == [at_us]
    assert list(occurrences(at, None, 0, at_us)) == []
    assert list(occurrences(at, None, at_us, 0)) == []


def test_a_continuous_schedule_has_one_occurrence_at_since() -> None:
    schedule = Continuous(continuous=True)
    assert list(occurrences(schedule, None, 50, 49)) == [50]
    assert list(occurrences(schedule, None, 50, 50)) == []


def test_a_task_without_a_schedule_is_never_due() -> None:
    assert list(occurrences(None, None, 0, 0)) == []


def test_times_after_year_9999_have_no_occurrences() -> None:
    assert next_due_us(Cron(cron="* * * * *"), None, 0, 10**18) is None
    assert next_due_us(Cron(cron="0 0 1 1 *", timezone="Europe/Paris"), None, 0, us("9999-12-31T12:00")) is None


def test_a_time_zone_missing_on_this_machine_makes_nothing_due_and_is_logged() -> None:
    """It was accepted by a member with another tzdata: no function may raise here."""
    schedule = Cron.model_construct(cron="0 3 * * *", timezone="Mars/Olympus")
    assert next_due_us(schedule, None, 0, 0) is None
    assert list(occurrences(schedule, None, 0, 0)) == []
    assert "Mars/Olympus" in (unreadable(schedule) or "")
    assert unreadable(Cron(cron="@daily", timezone="Europe/Paris")) is None
    assert unreadable(Every(every_s=1)) is None


_DAY_US = 86_400_000_000
_JUMPS = (us("2026-03-29T01:00", "UTC"), us("2026-10-25T01:00", "UTC"), us("2026-11-01T06:00", "UTC"))
"""When clocks change in Paris, twice, and in New York."""


@settings(max_examples=300, deadline=None)
@given(
    line=st.sampled_from(
        ("30 2 * * *", "0 * * * *", "*/20 * * * *", "15 1,3 * * *", "*/7 */5 2 * * *", "0 0 1 * *", "0 6 * * 1-5")
    ),
    zone=st.sampled_from(("UTC", "Europe/Paris", "America/New_York")),
    jump_us=st.sampled_from(_JUMPS),
    until_us=st.integers(-3 * 3_600_000_000, 3 * 3_600_000_000),
    back_us=st.integers(0, 40 * _DAY_US),
)
def test_the_latest_time_of_a_cron_line(line: str, zone: str, jump_us: int, until_us: int, back_us: int) -> None:
    cron, until_us = Cron(cron=line, timezone=zone), jump_us + until_us
    since_us = until_us - back_us
    wanted = None
    for due_us in occurrences(cron, None, since_us, 0):
        if due_us > until_us:
            break
        wanted = due_us
    assert latest_due_us(cron, None, since_us, until_us) == wanted


def test_the_latest_time_of_other_schedules() -> None:
    at = At(at=datetime(2026, 1, 1, tzinfo=UTC))
    at_us = us("2026-01-01T00:00")
    assert latest_due_us(at, None, 0, at_us) == at_us
    assert [latest_due_us(at, None, *span) for span in ((0, at_us - 1), (at_us, at_us + 1))] == [None, None]
    assert latest_due_us(Every(every_s=5), None, 10, 15_000_010) == 15_000_010
    assert [latest_due_us(one, None, 0, 10**15) for one in (None, Continuous(continuous=True))] == [None, None]
