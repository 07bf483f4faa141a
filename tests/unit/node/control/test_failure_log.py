"""Which node says what of a run that went wrong."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from node.control.failure_log import failures, log_failures
from node.replication.state_machine import StateChange
from node.runtime.log_repeats import EACH, Repeats
from node.state.attempts import Began, Cancel, Finish
from node.state.entries import Entry
from node.state.members import MarkDown, TakeLead
from node.state.value import Run
from tests.unit.node.state.given import DAY_US, NOW_US, History, cluster

S = 1_000_000
DUE_US = NOW_US + DAY_US


def running(**spec: Any) -> tuple[History, Run]:
    """A run that `a` holds; `b` leads."""
    history = cluster("a", "b", "c")
    history.must(TakeLead(NOW_US, "b", 1))
    history.put("t", schedule={"every_s": 86400}, **spec)
    return history, again(history, None)


def again(history: History, run_id: str | None) -> Run:
    run = history.claim("t", DUE_US, run_id=run_id)
    history.must(Began(DUE_US, run.run_id, run.token))
    return run


def said(history: History, entry: Entry) -> dict[str, Sequence[tuple[int, str]]]:
    """What each member says, if it says anything."""
    before = history.state
    history.must(entry)
    applied = history.last
    change = StateChange(before, applied.state, applied.touched, tuple((1, ended) for ended in applied.ended))
    return {name: told for name in "abc" if (told := lines(change, name))}


def lines(change: StateChange, me: str) -> list[tuple[int, str]]:
    """The lines of a member's log."""
    return [(level, f"{task}: attempt {what}") for level, task, what in failures(change, me)]


def failing(run: Run, **more: Any) -> Finish:
    return Finish(DUE_US + S, run.run_id, run.token, "failed", error="ValueError: no\nrows", **more)


def test_the_node_that_ran_it_says_why_it_failed_and_when_it_is_tried_again() -> None:
    history, run = running(retry={"attempts": 2, "backoff_s": 30})
    assert said(history, failing(run)) == {
        "a": [
            (
                logging.WARNING,
                "t: attempt 1 on a failed: ValueError: no rows; tried again in 30 s (run t~20241005T000000.000000Z)",
            )
        ]
    }
    run = again(history, run.run_id)
    [(level, text)] = said(history, failing(run))["a"]
    assert (level, "attempt 2 on a failed" in text) == (logging.ERROR, True)
    assert "; not tried again: 2 of 2 attempts failed (run" in text


def test_what_would_fail_the_same_way_and_what_ran_out_of_time_is_not_tried_again() -> None:
    history, run = running(retry={"attempts": 5})
    assert "not tried again: another attempt would fail the same" in said(history, failing(run, retry=False))["a"][0][1]
    history, run = running(retry={"attempts": 5})
    finish = Finish(DUE_US, run.run_id, run.token, "timed_out", error="timed out after 1 s")
    [(level, text)] = said(history, finish)["a"]
    assert level == logging.ERROR
    assert "ran out of time: timed out after 1 s; not tried again" in text


def test_the_leader_says_what_was_lost_with_a_member() -> None:
    history, run = running(failover={"max": 2, "grace_s": 5})
    [(level, text)] = said(history, MarkDown(DUE_US, "a", 1, "gone", 1))["b"]
    assert (level, "attempt 1 on a was lost: a was lost; taken over in 5 s" in text) == (logging.WARNING, True)
    history.back("a")
    history.must(TakeLead(NOW_US, "c", 2))
    again(history, run.run_id)
    told = said(history, MarkDown(DUE_US, "a", 2, "gone", 2))
    assert list(told) == ["c"], "who leads when that is decided"
    assert "not tried again: its attempts were lost 2 times" in told["c"][0][1]
    assert told["c"][0][0] == logging.ERROR


def test_nothing_is_said_of_what_goes_well_or_was_asked_for() -> None:
    history, run = running()
    assert said(history, Finish(DUE_US, run.run_id, run.token, "succeeded")) == {}
    history, run = running()
    assert said(history, Finish(DUE_US, run.run_id, run.token, "not_started", error="no room")) == {}
    history, run = running()
    assert said(history, Cancel(DUE_US, run.run_id, "by hand")) == {}
    assert said(history, failing(run)) == {}, "it was asked to end"


def test_a_task_that_fails_without_end_is_counted_and_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[str] = []
    now_s = 0.0
    repeats = Repeats(lambda record: counted.append(record.getMessage()), lambda: now_s)
    caplog.handler.addFilter(repeats)
    try:
        history = cluster("a", "b", "c")
        history.put("flaky", schedule={"every_s": 0.1})
        history.put("nightly", schedule={"every_s": 86400})
        number = EACH + 30
        for occurrence in range(number):
            fail(history, "flaky", NOW_US + (occurrence + 1) * S // 10)
        fail(history, "nightly", DUE_US)
        now_s = 60.0
        fail(history, "flaky", DUE_US)
    finally:
        caplog.handler.removeFilter(repeats)
    assert [message.partition(":")[0] for message in caplog.messages] == [*["flaky"] * EACH, "nightly", "flaky"]
    assert counted == [f"dropped {number - EACH} more lines like this one within 30 s: flaky: attempt %s"]


def fail(history: History, task: str, due_us: int) -> None:
    """A run of the task fails on `a`, which says so."""
    run = history.claim(task, due_us)
    before = history.state
    history.must(Finish(due_us, run.run_id, run.token, "failed", error="exit code 1", retry=False))
    applied = history.last
    ended = tuple((1, one) for one in applied.ended)
    log_failures([StateChange(before, applied.state, applied.touched, ended)], "a")


def test_an_attempt_that_found_its_server_away_is_told_with_its_pause_and_the_last_one_with_the_reason() -> None:
    history, run = running(retry={"attempts": 1, "away_s": 5})
    away = Finish(DUE_US, run.run_id, run.token, "away", error="ServerAway: refused")
    [[_, line]] = said(history, away)["a"]
    assert "ServerAway: refused; tried again in 5 s, which does not count as one of its attempts (run t~" in line
    history.claim("t", DUE_US, run_id=run.run_id)
    run = history.state.runs[run.run_id]
    [[level, line]] = said(history, Finish(DUE_US, run.run_id, run.token, "away", error="ServerAway: refused"))["a"]
    assert level == logging.ERROR
    assert "not tried again: it has waited for 5 s for a service that does not answer" in line
