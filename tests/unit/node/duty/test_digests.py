"""When digests are due, by the wall clock of their time zone, and what they say."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from node.duty.digests import (
    GROUPS_SHOWN,
    NAMES_SHOWN,
    DueDigest,
    RunTally,
    digest_due,
    digest_so_far,
    digest_summary,
    digests_due,
    next_digest_us,
)
from node.duty.telling import LOOK_US, sender
from node.notify.message import digest_lines
from node.state.bounds import params_bytes
from node.state.channel import DailyDigest
from node.state.deadlines import Breached
from node.state.digest import FIGURES_BYTES_MAX
from node.state.members import MarkDown, TakeLead
from node.state.outbox import ChannelRow
from node.state.registry import Pause
from node.state.telling import PutChannel
from node.state.value import RULES
from tests.unit.node.state.given import DAY_US, NOW_US, History, cluster, hook

S = 1_000_000
HOUR_US = 3600 * S


def paris_us(text: str, fold: int = 0) -> int:
    at = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Paris"), fold=fold)
    return round(at.timestamp()) * S


def row(since_us: int, at: str = "07:00", timezone: str = "Europe/Paris") -> ChannelRow:
    channel = hook(digest={"at": at, "timezone": timezone})
    return ChannelRow("ops", channel.pack(), digest_us=since_us, digest_index=3)


def days(begin: str, end: str, at: str, step_us: int = 600 * S) -> list[int]:
    """The times of all digests from one time to another, looked for every ten minutes."""
    made: list[int] = []
    since_us, now_us = paris_us(begin), paris_us(begin)
    while now_us <= paris_us(end):
        due = digest_due(row(since_us, at), now_us)
        if isinstance(due, DueDigest):
            made.append(since_us := due.nominal_us)
        now_us += step_us
    return made


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("07:00", ["2026-03-28 07:00", "2026-03-29 07:00", "2026-03-30 07:00"]),
        ("02:30", ["2026-03-28 02:30", "2026-03-29 03:00", "2026-03-30 02:30"]),  # that day has no 02:30
    ],
)
def test_it_is_made_once_a_day_when_an_hour_is_skipped(at: str, expected: list[str]) -> None:
    assert days("2026-03-28 00:00", "2026-03-30 23:00", at) == [paris_us(text) for text in expected]


def test_it_is_made_once_a_day_when_an_hour_comes_twice() -> None:
    expected = [paris_us(f"2026-10-{day} 02:30") for day in (24, 25, 26)]
    assert days("2026-10-24 00:00", "2026-10-26 23:00", "02:30") == expected


def test_after_days_without_members_it_is_one_about_all_of_them() -> None:
    since_us = paris_us("2026-11-20 07:00")
    due = digest_due(row(since_us), paris_us("2026-11-24 12:00"))
    assert isinstance(due, DueDigest)
    assert (due.since_us, due.nominal_us, due.after) == (since_us, paris_us("2026-11-24 07:00"), 3)


def test_a_clock_that_was_set_back_makes_no_second_one() -> None:
    made_us = paris_us("2026-11-24 07:00")
    assert digest_due(row(made_us), made_us - 10 * S) == paris_us("2026-11-25 07:00")
    assert digest_due(row(made_us), made_us) == paris_us("2026-11-25 07:00")
    assert next_digest_us(row(made_us)) == paris_us("2026-11-25 07:00")


def test_a_time_far_ahead_holds_up_no_digest() -> None:
    now_us = paris_us("2026-11-24 12:00")
    due = digest_due(row(now_us + 30 * DAY_US), now_us)
    assert isinstance(due, DueDigest)
    assert (due.since_us, due.nominal_us) == (now_us + 30 * DAY_US, paris_us("2026-11-24 07:00"))


def test_a_time_zone_that_this_member_does_not_know_is_taken_for_utc() -> None:
    unknown = hook(digest={"at": "07:00"})
    assert unknown.digest is not None
    unknown = unknown.model_copy(update={"digest": DailyDigest.model_construct(at="07:00", timezone="Mars/Olympus")})
    due = digest_due(ChannelRow("ops", unknown.pack(), digest_us=NOW_US), NOW_US + 8 * HOUR_US)
    assert isinstance(due, DueDigest)
    assert due.nominal_us == NOW_US + 7 * HOUR_US


def daily(**fields: Any) -> History:
    history = cluster("a", "b", "c")
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    history.must(PutChannel(NOW_US, "ops", hook(**({"digest": {"at": "07:00", "by": "team"}} | fields)).pack()))
    return history


def test_the_member_that_sends_makes_it_and_after_it_the_next() -> None:
    history = daily()
    now_us = NOW_US + 7 * HOUR_US
    first = sender(history.state, "ops", 0) or ""
    makers = [name for name in "abc" if digests_due(history.state, name, now_us, ())[0]]
    assert makers == [first]
    assert digests_due(history.state, first, now_us, {"ops"}) == ([], None)
    history.must(MarkDown(now_us, first, 1, "silent", 1))
    [second] = [name for name in "abc" if name != first and digests_due(history.state, name, now_us, ())[0]]
    [due], _ = digests_due(history.state, second, now_us, ())
    summary = digest_summary(history.state, due, RunTally(history.state.index, {}), now_us)
    history.must(summary.entry(due, now_us))
    assert history.do(summary.entry(due, now_us)).code == "stale"
    assert digests_due(history.state, second, now_us, ()) == ([], now_us + LOOK_US)


def test_it_looks_again_when_it_is_due() -> None:
    history = daily()
    me = sender(history.state, "ops", 0) or ""
    almost_us = NOW_US + 7 * HOUR_US - 5 * S
    assert digests_due(history.state, me, almost_us, ()) == ([], NOW_US + 7 * HOUR_US)


def due_of(history: History) -> DueDigest:
    due = digest_so_far(history.state.channels["ops"], NOW_US + DAY_US)
    assert due is not None
    return due


def team_night() -> History:
    history = daily()
    history.put("nightly", labels={"team": "bi"})
    history.put("report", labels={"team": "bi"}, schedule={"every_s": 60}, deadlines={"start_within_s": 10})
    history.put("site", labels={"team": "web"})
    history.put("stray")
    history.must(Pause(NOW_US, "site", True))
    history.must(Breached(NOW_US + 90 * S, "report", "start_within", NOW_US + 60 * S, True))
    return history


ENDS: dict[Any, int] = {
    ("nightly", "succeeded"): 5,
    ("nightly", "failed"): 2,
    ("nightly", "timed_out"): 1,
    ("report", "missed"): 3,
    ("report", "skipped"): 4,
    ("stray", "cancelled"): 1,
    ("stray", "not_needed"): 9,
    ("gone", "succeeded"): 2,
}


def test_it_says_what_ran_by_label_the_worst_first() -> None:
    history = team_night()
    summary = digest_summary(history.state, due_of(history), RunTally(77, ENDS, backfilled=2), NOW_US + DAY_US)
    assert summary.text == "3 failed, 1 late, 3 missed, 1 paused; 7 of 11 runs succeeded since 2024-10-04 00:00 UTC"
    assert summary.figures["total"] == {
        "ran": 11,
        "succeeded": 7,
        "failed": 3,
        "cancelled": 1,
        "not_run": 4,
        "missed": 3,
        "late": 1,
        "paused": 1,
    }
    assert (summary.through, summary.figures["backfilled"], summary.complete) == (77, 2, True)
    assert digest_lines(summary.figures) == [
        "team bi: 8 ran, 5 succeeded, 3 failed, 4 did not run, 3 missed, 1 late",
        "  failed: nightly (3)",
        "  late: report",
        "  missed: report (3)",
        "no team: 3 ran, 2 succeeded, 1 cancelled",
        "team web: nothing ran, 1 paused",
        "  paused: site",
    ]


def test_only_tasks_with_the_channels_labels_are_in_it() -> None:
    history = team_night()
    history.must(PutChannel(NOW_US, "ops", hook(digest={"at": "07:00"}, labels={"team": "bi"}).pack()))
    summary = digest_summary(history.state, due_of(history), RunTally(7, ENDS, complete=False), NOW_US + DAY_US)
    assert [one["value"] for one in summary.figures["groups"]] == [None]
    lines = digest_lines(summary.figures)
    assert lines[0] == "all tasks: 8 ran, 5 succeeded, 3 failed, 4 did not run, 3 missed, 1 late"
    assert lines[-1].startswith("some finished runs are missing")


def test_a_day_without_runs_says_so() -> None:
    history = daily()
    summary = digest_summary(history.state, due_of(history), RunTally(7, {}), NOW_US + DAY_US)
    assert (summary.text, summary.figures["groups"]) == ("nothing ran since 2024-10-04 00:00 UTC", [])


def test_it_stays_small_whatever_there_is() -> None:
    history = daily()
    long = "x" * 120
    for number in range(GROUPS_SHOWN + 20):
        for task in range(NAMES_SHOWN + 2):
            history.put(f"{long}-{number}-{task}", labels={"team": f"team {number}"})
    ends: dict[Any, int] = {(task, end): 1 for task in history.state.tasks for end in ("failed", "missed", "succeeded")}
    summary = digest_summary(history.state, due_of(history), RunTally(7, ends), NOW_US + DAY_US)
    shown = summary.figures["groups"]
    assert params_bytes(summary.figures) < FIGURES_BYTES_MAX
    assert len(shown) + summary.figures["groups_left_out"] == GROUPS_SHOWN + 20
    assert len(shown[0]["tasks"]["failed"]) == NAMES_SHOWN
    assert summary.figures["total"]["failed"] == (GROUPS_SHOWN + 20) * (NAMES_SHOWN + 2)
