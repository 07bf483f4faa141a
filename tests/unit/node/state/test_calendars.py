"""Calendars in the state: what is refused, who uses them, and that a snapshot restores them."""

from datetime import date
from typing import Any

import pytest

from node.state.calendar import days_of
from node.state.calendars import CALENDAR_DAYS_MAX, SetCalendar
from node.state.codec import from_pieces, snapshot_pieces
from node.state.members import TakeLead
from node.state.registry import DeleteTask, Put, PutTasks
from node.state.saved import lines, read
from node.state.value import RULES, TaskRow
from tests.unit.node.state.given import NOW_US, History, cluster, packed

NIGHTLY = {"cron": "0 3 * * *"}
DAY = date(2024, 12, 24).toordinal()


def leading(rules: int = RULES) -> History:
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "a", 1, rules))
    return history


def with_calendars(**days: tuple[int, ...]) -> History:
    history = leading()
    for name, found in days.items():
        history.must(SetCalendar(NOW_US, name, found))
    return history


def users(history: History, name: str) -> list[str]:
    """The tasks that use a calendar, which a snapshot restores as it is."""
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state
    return sorted(history.state.calendars[name].tasks)


def put(history: History, name: str, skip: str | list[str], **fields: Any) -> TaskRow:
    given: dict[str, Any] = {"schedule": NIGHTLY, "calendar": {"skip": skip}}
    history.put(name, **(given | fields))
    return history.state.tasks[name]


def test_a_calendar_knows_the_tasks_that_use_it() -> None:
    history = with_calendars(closing=(DAY,), moving=())
    put(history, "t", "closing")
    put(history, "u", ["closing", "moving"])
    history.put("v", schedule=NIGHTLY)
    assert (users(history, "closing"), users(history, "moving")) == (["t", "u"], ["u"])
    put(history, "u", "moving")
    history.must(DeleteTask(NOW_US, "t"))
    assert (users(history, "closing"), users(history, "moving")) == ([], ["u"])
    assert history.do(SetCalendar(NOW_US, "moving", None)).code == "exists"
    assert history.must(SetCalendar(NOW_US, "closing", None)) == {"change": "removed"}
    assert "closing" not in history.state.calendars


def test_a_change_touches_the_tasks_that_use_it_and_no_others() -> None:
    history = with_calendars(closing=(DAY,), moving=())
    put(history, "t", "closing")
    put(history, "u", "moving")
    assert history.must(SetCalendar(NOW_US, "closing", (DAY,))) == {"change": "unchanged"}
    assert history.last.touched == frozenset()
    assert history.must(SetCalendar(NOW_US, "closing", (DAY, DAY + 1), DAY + 9)) == {"change": "changed"}
    assert history.last.touched == {"t"}
    days = days_of(history.state.calendars, history.state.tasks["t"].timing)
    assert days is not None
    assert (days.allows(DAY + 1), days.knows(DAY + 9), days.knows(DAY + 10)) == (False, True, False)


def test_a_task_names_calendars_that_are_there() -> None:
    history = leading()
    spec = packed("t", schedule=NIGHTLY, calendar={"only": ["closing"]})
    refusal = history.do(PutTasks(NOW_US, (Put(spec),)))
    assert (refusal.code, "the calendar closing, which is not there" in refusal.detail) == ("invalid", True)
    history.must(SetCalendar(NOW_US, "closing", ()))
    history.must(PutTasks(NOW_US, (Put(spec),)))


def test_before_all_members_know_calendars_there_are_none() -> None:
    history = leading(rules=9)
    assert history.do(SetCalendar(NOW_US, "closing", ())).code == "invalid"
    refusal = history.do(PutTasks(NOW_US, (Put(packed("t", schedule=NIGHTLY, calendar={"skip": "closing"})),)))
    assert refusal.detail == "t: `calendar` needs a leader of this version"


@pytest.mark.parametrize(
    ("name", "days", "until", "fault"),
    [
        ("a b", (), 0, "is no name of a calendar"),
        ("", (), 0, "is no name of a calendar"),
        ("x", (DAY, DAY), 0, "not in order"),
        ("x", (3,), 0, "from 1970"),
        ("x", (), 3, "from 1970"),
        ("x", tuple(range(DAY, DAY + CALENDAR_DAYS_MAX + 1)), 0, "2000 days at most"),
        ("holidays/DE", (DAY,), 0, "kept for public holidays"),
    ],
)
def test_what_is_no_calendar(name: str, days: tuple[int, ...], until: int, fault: str) -> None:
    refusal = leading().do(SetCalendar(NOW_US, name, days, until))
    assert refusal.code == "invalid"
    assert fault in refusal.detail


def test_lists_are_saved_and_public_holidays_are_worked_out_anew() -> None:
    history = with_calendars(closing=(DAY,))
    history.must(SetCalendar(NOW_US, "holidays/DE", (DAY + 1,), DAY + 400))
    assert read(lines(history.state, NOW_US)).head["calendars"] == {"closing": ["2024-12-24"]}
    assert "calendars" not in read(lines(leading().state, NOW_US)).head, "so that earlier versions can load it"


def test_a_change_of_the_rule_counts_from_now_and_one_of_the_days_does_not() -> None:
    history = with_calendars(closing=(DAY,), moving=())
    before = put(history, "t", "closing")
    history.must(SetCalendar(NOW_US + 5, "closing", ()))
    assert history.state.tasks["t"].since_us == before.since_us
    history.must(PutTasks(NOW_US + 7, (Put(packed("t", schedule=NIGHTLY, calendar={"skip": "moving"})),)))
    assert history.state.tasks["t"].since_us == NOW_US + 7


def test_parents_have_times_in_common_only_by_equal_calendars() -> None:
    history = with_calendars(closing=(DAY,))
    put(history, "a", "closing")
    put(history, "b", "closing")
    history.put("c", schedule=NIGHTLY)
    history.must(PutTasks(NOW_US, (Put(packed("d", after=["a", "b"])),)))
    refusal = history.do(PutTasks(NOW_US, (Put(packed("e", after=["a", "c"])),)))
    assert "the same cron line, time zone and calendar" in refusal.detail
    refusal = history.do(PutTasks(NOW_US, (Put(packed("b", schedule=NIGHTLY)),)))
    assert "the same cron line, time zone and calendar" in refusal.detail
