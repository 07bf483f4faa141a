"""Occurrences in blackouts: what is foretold of each is what its owner then does."""

from typing import Any

import pytest
from immutables import Map

from node.duty.decide import needs
from node.duty.held_times import held_count, held_time, holding_within
from node.duty.timetable import TimeSpan, timetable
from node.state.attempts import Finish
from node.state.blackout import Blackout
from node.state.blackouts import SetBlackout
from node.state.deadlines import Breached
from node.state.occurrences import SkipOccurrences
from node.state.registry import Pause
from node.state.telling import PutChannel
from tasks.definition.policy import KEPT
from tests.unit.node.state.given import NOW_US, History, hook
from tests.unit.node.state.test_calendars import leading

S = 1_000_000
LABELS = {"team": "bi"}


def dark(*spans: tuple[float, float], labels: dict[str, str] | None = None, **fields: Any) -> History:
    """A history with blackouts `b0`, `b1`, ... from and to these seconds, and the task `t` with the label team=bi."""
    history = leading()
    for number, (begins_s, ends_s) in enumerate(spans):
        times_us = (NOW_US + round(begins_s * S), NOW_US + round(ends_s * S))
        history.must(SetBlackout(NOW_US, f"b{number}", *times_us, tuple((labels or {}).items())))
    history.put("t", labels=LABELS, **({"schedule": {"every_s": 10}} | fields))
    return history


def decided(history: History, now_us: int) -> tuple[set[int], set[int]]:
    """Let the owner decide on all that is due; the due times that began, and those that were missed."""
    begun: set[int] = set()
    missed: set[int] = set()
    for _ in range(3 * KEPT):
        found = needs(history.state, "t", history.state.members["a"], now_us)
        if not found.entries and not found.wishes:
            return begun, missed
        for entry in found.entries:
            if isinstance(entry, SkipOccurrences):
                missed.update(range(entry.fire_at_us[0], entry.fire_at_us[-1] + 1, 10 * S))
            history.must(entry)
        for wish in found.wishes[: 0 if found.entries else 1]:
            begun.add(wish.claim.fire_at_us)
            done = history.must(wish.claim)
            history.must(Finish(now_us, done["run_id"], done["token"], "succeeded"))
    raise AssertionError("it goes on for ever")


@pytest.mark.parametrize("catch_up", ["latest", "skip", "all"])
@pytest.mark.parametrize("overlap", ["skip", "queue", "replace"])
@pytest.mark.parametrize(
    "spans",
    [[(15, 45)], [(15, 50)], [(20, 50.5)], [(15, 45), (40, 75)], [(15, 45), (45, 62)], [(15, 10 * KEPT + 40)]],
)
def test_what_is_foretold_is_what_the_owner_does(catch_up: str, overlap: str, spans: list[tuple[float, float]]) -> None:
    history = dark(*spans, catch_up=catch_up, overlap=overlap)
    ends_us = NOW_US + round(max(until for _, until in spans) * S)
    decided(history, NOW_US + 10 * S)
    row = history.state.tasks["t"]
    times = [NOW_US + number * 10 * S for number in range(2, (ends_us - NOW_US) // (10 * S) + 1)]
    foretold = {at_us: held for at_us in times if (held := held_time(history.state, row, at_us)) is not None}
    assert foretold.keys() == {at_us for at_us in times if at_us < ends_us and at_us >= NOW_US + spans[0][0] * S}
    assert {held.until_us for held in foretold.values()} == {ends_us}
    begun, missed = decided(history, ends_us)
    assert {at_us for at_us, held in foretold.items() if held.begins} == begun & foretold.keys()
    assert {at_us for at_us, held in foretold.items() if not held.begins} == missed & foretold.keys()


def test_it_is_said_in_words_which_blackouts_hold_it_one_after_the_other() -> None:
    history = dark((15, 45), (40, 75), catch_up="latest")
    row = history.state.tasks["t"]
    last, first = (held_time(history.state, row, NOW_US + at * S) for at in (70, 20))
    assert str(last) == "held by the blackout b1 until 2024-10-04T00:01:15Z"
    assert str(first) == ("held by the blackouts b0, b1 until 2024-10-04T00:01:15Z, and missed then (catch_up: latest)")
    assert held_time(history.state, row, NOW_US + 10 * S) is None
    assert held_time(history.state, row, NOW_US + 80 * S) is None


def test_other_labels_and_continuous_tasks_are_not_held() -> None:
    history = dark((15, 45), labels={"team": "other"})
    assert held_time(history.state, history.state.tasks["t"], NOW_US + 20 * S) is None
    history = dark((15, 45), schedule={"continuous": True})
    assert held_time(history.state, history.state.tasks["t"], NOW_US + 20 * S) is None


@pytest.mark.parametrize("labels", [{}, LABELS, {"team": "x"}])
def test_held_occurrences_are_counted_as_one_by_one(labels: dict[str, str]) -> None:
    history = dark((15, 45), (30, 62), (100, 130), (500, 600), labels=labels)
    [upcoming] = timetable(history.state, TimeSpan(NOW_US, NOW_US + 120 * S))
    row = history.state.tasks["t"]
    assert upcoming.held == sum(held_time(history.state, row, at_us) is not None for at_us in upcoming.times)
    assert (upcoming.held > 0) == (labels != {"team": "x"})
    found = holding_within(Map({"b": Blackout("b", 5, 7)}), 7, 9)
    assert (found, held_count(found, b"", [7, 8])) == ([], 0)


def late(history: History, due_s: float, at_s: float) -> str:
    """The notice that a channel is told, once the task has not begun in time."""
    history.must(PutChannel(NOW_US, "ops", hook().pack()))
    history.must(Breached(NOW_US + round(at_s * S), "t", "start_within", NOW_US + round(due_s * S), undecided=True))
    return history.state.channels["ops"].notices[-1].text


def test_the_notice_of_a_deadline_names_the_blackout_that_held_the_task_up() -> None:
    deadline: dict[str, Any] = {"deadlines": {"start_within_s": 5}}
    span = "from 2024-10-04T00:00:15Z to 2024-10-04T00:00:45Z"
    assert late(dark((15, 45), **deadline), 20, 25).endswith(f"(start_within); held up by the blackout b0 {span}")
    assert late(dark((15, 45), **deadline), 20, 60).endswith(f"; held up by the blackout b0 {span}"), "it is over"
    assert late(dark((15, 45), (40, 90), **deadline), 20, 60).count("2024-10-04T00:00:40Z") == 1
    assert late(dark((15, 45), labels={"team": "x"}, **deadline), 20, 25).endswith("(start_within)")
    assert late(dark((115, 145), **deadline), 20, 25).endswith("(start_within)"), "it is to come"
    history = dark((15, 45), **deadline)
    history.must(Pause(NOW_US, "t", on=True))
    history.must(Pause(NOW_US, "t", on=False))
    assert "held up" in late(history, 20, 25)
