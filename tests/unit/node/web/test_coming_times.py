"""Occurrences by the clocks of a time zone, and the change of daylight saving among them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from node.web.coming_times import ComingTime, coming_times
from tasks.definition.spec import Spec


def at_us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6)


def told_of(now_us: int, **schedule: Any) -> list[ComingTime]:
    spec = Spec.model_validate({"name": "a", "kind": "copy", "schedule": schedule or None})
    return coming_times(spec.schedule, None, now_us, now_us, now_us)


@pytest.mark.parametrize("second", ["00", "07", "31.250", "59.999999"])
def test_a_nightly_task_is_followed_to_the_next_change_of_the_clocks(second: str) -> None:
    now_us = at_us(f"2026-11-23T12:00:{second}")
    told = told_of(now_us, cron="30 2 * * *", timezone="Europe/Paris")
    assert [(one.day, one.clock, one.offset) for one in told[:2]] == [
        ("Tue 24 Nov 2026", "02:30", "+01:00"),
        ("Wed 25 Nov 2026", "02:30", "+01:00"),
    ]
    before, after = told[-2:]
    assert (before.day, before.clock, before.offset, before.apart) == ("Sat 27 Mar 2027", "02:30", "+01:00", True)
    # 02:30 does not exist on that day: it is due at the first minute after the change.
    assert (after.day, after.clock, after.offset) == ("Sun 28 Mar 2027", "03:00", "+02:00")
    assert after.note == "the clocks of Europe/Paris go forward by 1 h on Sun 28 Mar 2027, from +01:00 to +02:00"
    assert [one.note for one in told[:-1]] == [None] * 6


def test_a_change_between_the_next_occurrences_is_marked_once() -> None:
    now_us = at_us("2026-10-24T12:00:00")
    told = told_of(now_us, cron="0 6 * * *", timezone="Europe/Paris")
    assert [one.offset for one in told] == ["+01:00"] * 5
    assert [one.note is not None for one in told] == [True, False, False, False, False]
    assert told[0].note == "the clocks of Europe/Paris go back by 1 h on Sun 25 Oct 2026, from +02:00 to +01:00"


def test_an_hour_that_comes_twice_has_its_times_twice() -> None:
    now_us = at_us("2026-10-25T00:10:00")
    told = told_of(now_us, cron="*/30 * * * *", timezone="Europe/Paris")
    assert [(one.clock, one.offset) for one in told[:4]] == [
        ("02:30", "+02:00"),
        ("02:00", "+01:00"),
        ("02:30", "+01:00"),
        ("03:00", "+01:00"),
    ]


def test_what_has_no_clock_has_no_change() -> None:
    now_us = at_us("2026-11-23T12:00:00")
    every = told_of(now_us, every_s=3600)
    assert [(one.clock, one.offset, one.note) for one in every[:2]] == [
        ("13:00", "+00:00", None),
        ("14:00", "+00:00", None),
    ]
    assert len(every) == 5
    assert told_of(now_us, every_s=90)[0].clock == "12:01:30"
    assert told_of(now_us, continuous=True) == []
    assert told_of(now_us) == []
    weekly = told_of(now_us, cron="15 4 * * 1", timezone="America/New_York")
    assert [one.day for one in weekly[-1:]] == ["Mon 15 Mar 2027"]
    assert (
        weekly[-1].note == "the clocks of America/New_York go forward by 1 h on Sun 14 Mar 2027, from -05:00 to -04:00"
    )
