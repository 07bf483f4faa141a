"""Channels in the replicated state: what is noted for them, and who may send it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from node.state.attempts import Began, Cancel, Finish
from node.state.channel import EVENTS, SEVERITY_MAX, Channel, channel_of
from node.state.codec import from_pieces, snapshot_pieces
from node.state.deadlines import Breached
from node.state.entries import Entry
from node.state.facts import SINCE_RULES
from node.state.members import AddMember, MarkDown, StandAside, TakeLead
from node.state.occurrences import Start
from node.state.outbox import GIVE_UP_TRIES, GIVE_UP_US, NOTICES_BYTES_MAX, NOTICES_MAX, ChannelRow, notice_bytes
from node.state.registry import DeleteTask, Pause
from node.state.telling import DeleteChannel, PutChannel, Tell, Told
from node.state.value import RULES
from tests.unit.node.state.given import NOW_US, History, cluster, hook, seed

S = 1_000_000
BI = {"team": "bi"}


def telling(*members: str, **fields: Any) -> History:
    history = cluster(*(members or ("a", "b", "c")))
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    history.must(PutChannel(NOW_US, "ops", hook(**fields).pack()))
    return history


def ops(history: History) -> ChannelRow:
    return history.state.channels["ops"]


def told(history: History) -> list[str]:
    """The notices that wait, as event:subject."""
    return [f"{one.event}:{one.task or one.member}" for one in ops(history).notices]


def run_once(
    history: History,
    end: str,
    at_us: int = NOW_US,
    task: str = "t",
    error: str | None = None,
    result: dict[str, Any] | None = None,
) -> str:
    run_id: str = history.must(Start(at_us, task))["run_id"]
    run = history.claim(task, history.state.runs[run_id].fire_at_us, run_id=run_id)
    history.must(Began(at_us, run_id, run.token))
    history.must(Finish(at_us, run_id, run.token, end, error=error, result=result))  # type: ignore[arg-type]
    return run_id


def test_a_failure_for_good_is_told_and_the_first_success_after_it() -> None:
    history = telling()
    history.put("t", retry={"attempts": 2, "backoff_s": 0})
    run_id = run_once(history, "failed")
    assert told(history) == [], "it is tried again"
    run = history.claim("t", history.state.runs[run_id].fire_at_us, run_id=run_id)
    history.must(Finish(NOW_US + S, run_id, run.token, "failed", error="no such\n  table"))
    [notice] = ops(history).notices
    assert (notice.event, notice.severity, notice.task, notice.run_id) == ("run_failed", "error", "t", run_id)
    assert notice.text == "t failed, after 2 attempts: no such table"
    assert notice.key == f"{history.state.index}.0"
    cancelled = history.must(Start(NOW_US, "t"))["run_id"]
    history.must(Cancel(NOW_US, cancelled))
    for _ in range(2):
        run_once(history, "succeeded")
    assert told(history) == ["run_failed:t", "run_recovered:t"]


def test_what_a_success_left_undone_is_told_when_it_begins_and_when_it_is_made_up_for() -> None:
    history = telling()
    history.put("t", retry={"attempts": 1})
    for rest in ("far lacks 1", "far lacks 2"):
        run_once(history, "succeeded", result={"degraded": rest})
        assert history.state.tasks["t"].degraded == rest
    [notice] = ops(history).notices
    assert (notice.event, notice.severity, notice.text) == (
        "run_degraded",
        "warning",
        "t succeeded in part: far lacks 1",
    )
    run_once(history, "failed")
    assert history.state.tasks["t"].degraded == "far lacks 2", "a failure copies nothing"
    run_once(history, "succeeded", result={"degraded": None})
    assert history.state.tasks["t"].degraded == ""
    assert told(history) == ["run_degraded:t", "run_failed:t", "run_recovered:t", "run_recovered:t"]
    assert ops(history).notices[-1].text == "t has made up for what it had left undone"


def test_what_is_unusual_of_a_success_is_told_of_each_run() -> None:
    history = telling()
    history.put("t", retry={"attempts": 1})
    run_once(history, "succeeded", result={"unusual": ["no rows in a", "it took 900 s"]})
    [notice] = ops(history).notices
    assert (notice.event, notice.severity) == ("run_unusual", "warning")
    assert notice.text == "t succeeded, but something is unusual: no rows in a; it took 900 s"
    assert history.state.tasks["t"].degraded == "", "it owes nothing"
    run_once(history, "succeeded", result={"unusual": []})
    run_once(history, "succeeded", result={"unusual": ["no rows in a"]})
    assert told(history) == ["run_unusual:t", "run_unusual:t"]


def test_nothing_is_told_of_what_went_well_was_cancelled_or_deleted() -> None:
    history = telling()
    history.put("t", retry={"attempts": 1})
    run_once(history, "succeeded")
    run_once(history, "cancelled")
    run_id = history.must(Start(NOW_US, "t"))["run_id"]
    run = history.claim("t", history.state.runs[run_id].fire_at_us, run_id=run_id)
    history.must(DeleteTask(NOW_US, "t"))
    history.must(Finish(NOW_US, run_id, run.token, "failed"))
    assert told(history) == []


def test_deadlines_that_are_breached_and_met_again_are_told() -> None:
    history = telling()
    history.put("t", schedule={"every_s": 60}, deadlines={"start_within_s": 10})
    due_us = NOW_US + 60 * S
    history.must(Breached(due_us + 10 * S, "t", "start_within", due_us, True))
    [breached] = ops(history).notices
    assert (breached.event, breached.severity) == ("deadline_breached", "error")
    assert breached.text == "t is late: what was due at 2024-10-04T00:01:00Z has not begun in time (start_within)"
    run = history.claim("t", due_us)
    history.must(Began(due_us + 12 * S, run.run_id, run.token))
    assert told(history) == ["deadline_breached:t", "deadline_met:t"]
    history.must(Breached(due_us + 99 * S, "t", "start_within", due_us + 60 * S, True))
    history.must(DeleteTask(due_us + 100 * S, "t"))
    assert told(history)[2:] == ["deadline_breached:t", "deadline_dropped:t"], "what is not judged any more is not met"


def _paused(history: History, at_us: int) -> None:
    history.must(Pause(at_us, "t", on=True))


def _deleted(history: History, at_us: int) -> None:
    history.must(DeleteTask(at_us, "t"))


def _changed(history: History, at_us: int) -> None:
    history.put("t", at_us, labels=BI, deadlines={"start_within_s": 20})


def _cancelled(history: History, at_us: int) -> None:
    [run_id] = history.state.runs
    history.must(Cancel(at_us, run_id))


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (_paused, "it was paused"),
        (_deleted, "it was deleted"),
        (_changed, "its definition was changed"),
        (_cancelled, "what was due at 2024-10-04T00:00:00Z was skipped, missed or cancelled"),
    ],
)
def test_a_breach_that_ends_without_being_met_is_told_with_the_reason(
    ending: Callable[[History, int], None], why: str
) -> None:
    history = telling(labels=BI)
    history.put("t", labels=BI, deadlines={"start_within_s": 10})
    history.must(Start(NOW_US, "t"))
    history.must(Breached(NOW_US + 10 * S, "t", "start_within", NOW_US))
    ending(history, NOW_US + 11 * S)
    _, dropped = ops(history).notices
    assert (dropped.event, dropped.severity, dropped.task) == ("deadline_dropped", "info", "t")
    assert dropped.text == f"t is not late any more, without having made up for it: {why} (start_within)"


def test_by_the_rules_of_before_no_breach_is_told_to_be_dropped() -> None:
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, 2))
    assert "update it first" in history.do(PutChannel(NOW_US, "ops", hook(events=["deadline_dropped"]).pack())).detail
    history.must(PutChannel(NOW_US, "ops", hook().pack()))
    history.put("t", deadlines={"start_within_s": 10})
    history.must(Start(NOW_US, "t"))
    history.must(Breached(NOW_US + 10 * S, "t", "start_within", NOW_US))
    history.must(DeleteTask(NOW_US + 11 * S, "t"))
    assert told(history) == ["deadline_breached:t"]


def test_members_that_go_and_come_are_told() -> None:
    history = telling("a", "b", "c")
    history.must(MarkDown(NOW_US, "b", 1, "gone", 1))
    assert told(history) == ["member_down:b", "majority_at_risk:"]
    assert [one.severity for one in ops(history).notices] == ["warning", "critical"]
    history.back("b")
    assert told(history)[2:] == ["member_up:b", "majority_safe:"]
    history.must(StandAside(NOW_US, "c", 1, "no room on its disk: 12 MiB of 1 GiB are free"))
    history.must(StandAside(NOW_US, "c", 1, ""))
    assert told(history)[4:] == ["member_impaired:c", "member_fit:c"]
    assert "12 MiB" in ops(history).notices[4].text


def test_a_stop_in_good_order_is_no_alarm() -> None:
    history = telling("a", "b", "c")
    history.must(MarkDown(NOW_US, "b", 1, "stopped", 0))
    assert [one.severity for one in ops(history).notices] == ["info", "warning"]


def test_a_new_member_is_neither_back_nor_missed() -> None:
    history = telling("a", "b", "c")
    history.must(AddMember(NOW_US, seed("d")))
    history.back("d")
    assert told(history) == []


@pytest.mark.parametrize(
    ("fields", "heard"),
    [
        ({}, ["run_failed:t", "member_down:b", "majority_at_risk:"]),
        ({"events": ["member_down", "run_failed"]}, ["run_failed:t", "member_down:b"]),
        ({"min_severity": "error"}, ["run_failed:t", "majority_at_risk:"]),
        ({"labels": {"team": "bi"}}, ["run_failed:t"]),
        ({"labels": {"team": "web"}}, []),
        ({"enabled": False}, []),
    ],
)
def test_a_channel_hears_what_it_wants(fields: dict[str, Any], heard: list[str]) -> None:
    history = telling("a", "b", "c", **fields)
    history.put("t", retry={"attempts": 1}, labels={"team": "bi", "tier": "1"})
    run_once(history, "failed")
    history.must(MarkDown(NOW_US, "b", 1, "silent", 1))
    assert told(history) == heard


def failing(count: int = 1, **fields: Any) -> History:
    history = telling(**fields)
    history.put("t", retry={"attempts": 1})
    for number in range(count):
        run_once(history, "failed", NOW_US + number)
    return history


def permit(history: History, member: str = "a", incarnation: int = 1) -> Tell:
    return Tell(NOW_US, "ops", tuple(one.key for one in ops(history).notices), member, incarnation)


def code(history: History, entry: Entry) -> str:
    return history.do(entry).code


def test_one_member_at_a_time_may_send() -> None:
    history = failing(2)
    token = history.must(permit(history))["token"]
    assert code(history, permit(history, "b")) == "held"
    assert code(history, permit(history)) == "held", "its own permission stands"
    history.must(Told(NOW_US, "ops", token, "accepted"))
    assert (ops(history).notices, ops(history).told, ops(history).sending) == ((), 2, None)
    assert code(history, Told(NOW_US, "ops", token, "accepted")) == "fenced"
    assert code(history, Tell(NOW_US, "ops", ("1.0",), "a", 1)) == "no-such-notice"


def test_what_comes_meanwhile_is_not_told_with_it() -> None:
    history = failing()
    token = history.must(permit(history))["token"]
    run_once(history, "failed", NOW_US + 5)
    history.must(Told(NOW_US, "ops", token, "accepted"))
    assert told(history) == ["run_failed:t"]


@pytest.mark.parametrize("how", ["down", "again"])
def test_a_permission_ends_with_its_holders_incarnation(how: str) -> None:
    history = failing()
    token = history.must(permit(history, "b"))["token"]
    if how == "down":
        history.must(MarkDown(NOW_US, "b", 1, "silent", 1))
        assert code(history, permit(history, "b")) == "not-up"
    else:
        history.back("b")
        assert code(history, permit(history, "b", 1)) == "incarnation"
    history.must(permit(history, "c"))
    assert code(history, Told(NOW_US, "ops", token, "accepted")) == "fenced"


def test_what_fails_waits_and_is_given_up_in_the_end() -> None:
    history = failing()
    waits = []
    for _ in range(3):
        token = history.must(permit(history))["token"]
        history.must(Told(NOW_US + S, "ops", token, "failed", "no answer"))
        waits.append((ops(history).again_us - NOW_US) // S - 1)
    assert (waits, ops(history).tries, ops(history).failed) == ([2, 4, 8], 3, 3)
    given_up = []
    for _ in range(GIVE_UP_TRIES - 3):
        token = history.must(permit(history))["token"]
        given_up.append(history.must(Told(NOW_US + GIVE_UP_US, "ops", token, "failed", "no answer"))["given_up"])
    assert given_up == [0, 0, 1], "a day old, and tried so often"
    assert (ops(history).given_up, ops(history).notices) == (1, ())
    assert ops(history).last is not None


def test_by_the_rules_of_before_what_is_old_is_tried_once() -> None:
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, 2))
    history.must(PutChannel(NOW_US, "ops", hook().pack()))
    history.put("t", retry={"attempts": 1})
    run_once(history, "failed")
    token = history.must(permit(history, "a"))["token"]
    assert history.must(Told(NOW_US + GIVE_UP_US, "ops", token, "failed", "no answer")) == {"given_up": 1}


def test_a_message_that_was_not_sent_counts_as_no_failure() -> None:
    history = failing()
    token = history.must(permit(history))["token"]
    history.must(Told(NOW_US, "ops", token, "given_back"))
    assert (ops(history).tries, ops(history).again_us, len(ops(history).notices)) == (0, 0, 1)


def test_the_oldest_are_dropped_and_counted_but_none_that_is_being_sent() -> None:
    history = failing(2)
    token = history.must(replace(permit(history), keys=permit(history).keys[:1]))["token"]
    first = ops(history).notices[0]
    for number in range(NOTICES_MAX + 8):
        run_once(history, "failed", NOW_US + number, error="x" * 600)
    row = ops(history)
    assert (row.dropped, row.lost) == (10 + NOTICES_MAX - len(row.notices), row.dropped)
    assert row.notices_bytes == sum(map(notice_bytes, row.notices)) <= NOTICES_BYTES_MAX
    assert len(row.notices) <= NOTICES_MAX
    assert first in row.notices
    history.must(Told(NOW_US, "ops", token, "accepted", dropped=3))
    assert ops(history).dropped == row.dropped - 3
    assert from_pieces(snapshot_pieces(history.state)) == history.state


def test_channels_are_made_changed_and_deleted() -> None:
    history = telling()
    assert history.must(PutChannel(NOW_US, "ops", hook().pack()))["change"] == "unchanged"
    assert history.must(PutChannel(NOW_US, "ops", hook(group_s=1).pack())) == {"change": "changed", "version": 2}
    assert code(history, PutChannel(NOW_US, "ops", b"\xc1")) == "invalid"
    assert code(history, PutChannel(NOW_US, "../ops", hook().pack())) == "invalid"
    history.must(DeleteChannel(NOW_US, "ops"))
    assert code(history, DeleteChannel(NOW_US, "ops")) == "no-such-channel"


def test_by_earlier_rules_there_are_no_channels() -> None:
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, SINCE_RULES - 1))
    assert code(history, PutChannel(NOW_US, "ops", hook().pack())) == "invalid"
    history.put("t", retry={"attempts": 1})
    run_once(history, "failed")
    assert not history.state.tasks["t"].failing


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"url": "ftp://x"}, "http:// or https://"),
        ({"url": "https://me:pass@x/"}, "holds no user"),
        ({"kind": "apprise", "url": "mailto://me:pass@x"}, "is a reference"),
        ({"kind": "apprise", "url": {"secret": "x"}, "secret": {"secret": "y"}}, "only a webhook's"),
        ({"labels": {"team": "bi"}, "events": ["member_down"]}, "about members"),
        ({"quiet": {"from": "22:00", "to": "22:00"}}, "different times"),
        ({"quiet": {"from": "22:00", "to": "24:00"}}, "pattern"),
        ({"quiet": {"from": "22:00", "to": "07:00", "timezone": "Mars/Olympus"}}, "no|not a time zone"),
        (
            {"labels": {"team": "bi"}, "min_severity": "critical"},
            "none of events of tasks is ever of severity critical",
        ),
        (
            {"events": ["run_recovered", "member_up"], "min_severity": "error"},
            "none of run_recovered, member_up is ever",
        ),
    ],
)
def test_a_channel_that_makes_no_sense_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        hook(**fields)


def test_a_channel_that_an_earlier_version_accepted_is_read() -> None:
    useless = Channel.model_construct(**dict(hook(labels={"team": "bi"}))).model_copy(
        update={"min_severity": "critical"}
    )
    history = telling()
    history.must(PutChannel(NOW_US, "useless", useless.pack()))
    assert channel_of(history.state.channels["useless"].packed) == useless


def test_the_greatest_severity_of_each_event_is_known() -> None:
    assert set(SEVERITY_MAX) == set(EVENTS)
    history = telling()
    history.put("t", retry={"attempts": 1})
    run_once(history, "failed")
    run_once(history, "succeeded", NOW_US + S)
    history.must(StandAside(NOW_US, "b", 1, "no room"))
    history.must(MarkDown(NOW_US, "c", 1, "gone", 1))
    assert {one.event: one.severity for one in ops(history).notices}.items() <= SEVERITY_MAX.items()


# -- successes


def succeeding(**fields: Any) -> History:
    """A channel that names `run_succeeded`, and a task."""
    history = telling(**({"events": ["run_succeeded", "run_failed"]} | fields))
    history.put("t", retry={"attempts": 2, "backoff_s": 0})
    return history


def test_a_success_is_told_where_a_channel_names_it_and_nowhere_else() -> None:
    history = succeeding()
    history.must(PutChannel(NOW_US, "all", hook().pack()))
    run_id = run_once(history, "succeeded")
    [notice] = ops(history).notices
    assert (notice.event, notice.severity, notice.run_id) == ("run_succeeded", "info", run_id)
    assert notice.text == "t succeeded"
    assert history.state.channels["all"].notices == ()


def test_a_success_after_retries_is_told_once() -> None:
    history = succeeding()
    run_id = run_once(history, "failed")
    assert told(history) == []
    run = history.claim("t", history.state.runs[run_id].fire_at_us, run_id=run_id)
    history.must(Finish(NOW_US + S, run_id, run.token, "succeeded"))
    assert [one.text for one in ops(history).notices] == ["t succeeded, after 2 attempts"]


def test_by_the_rules_of_before_no_channel_names_successes() -> None:
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, 9))
    assert "update it first" in history.do(PutChannel(NOW_US, "ops", hook(events=["run_succeeded"]).pack())).detail


def test_a_flood_of_successes_is_bounded_counted_and_drops_no_failure() -> None:
    history = succeeding()
    run_once(history, "failed", NOW_US)
    [run_id] = history.state.runs
    run = history.claim("t", history.state.runs[run_id].fire_at_us, run_id=run_id)
    history.must(Finish(NOW_US, run_id, run.token, "failed"))
    for number in range(NOTICES_MAX + 20):
        run_once(history, "succeeded", NOW_US + number)
    row = ops(history)
    assert (len(row.notices), row.dropped, row.lost) == (NOTICES_MAX, 0, 0)
    assert (row.dropped_successes, row.lost_successes) == (21, 21)
    assert [one.event for one in row.notices].count("run_failed") == 1
    assert row.notices_bytes == sum(map(notice_bytes, row.notices))
    successes = [one.at_us for one in row.notices if one.event == "run_succeeded"]
    assert successes == sorted(successes), "the latest are kept"
    assert successes[-1] == NOW_US + NOTICES_MAX + 19
    assert from_pieces(snapshot_pieces(history.state)) == history.state


def test_a_success_finds_no_room_among_failures() -> None:
    history = telling(events=["run_succeeded", "run_failed"])
    history.put("t", retry={"attempts": 1})
    for number in range(NOTICES_MAX):
        run_once(history, "failed", NOW_US + number)
    before = ops(history).notices
    run_once(history, "succeeded")
    assert (ops(history).notices, ops(history).lost, ops(history).lost_successes) == (before, 0, 1)
    token = history.must(permit(history))["token"]
    history.must(Told(NOW_US, "ops", token, "accepted", dropped_successes=1))
    assert (ops(history).dropped_successes, ops(history).lost_successes) == (0, 1)


def test_what_is_more_urgent_starts_with_a_short_pause_of_its_own() -> None:
    history = succeeding()
    run_once(history, "succeeded")
    for _ in range(4):
        history.must(Told(NOW_US, "ops", history.must(permit(history))["token"], "failed", "429"))
    assert (ops(history).tries, ops(history).failed_urgency) == (4, 2)
    assert ops(history).again_us == NOW_US + 16 * S
    history.put("u", retry={"attempts": 1})
    run_once(history, "failed", task="u")
    history.must(Told(NOW_US, "ops", history.must(permit(history))["token"], "failed", "429"))
    assert (ops(history).tries, ops(history).failed_urgency, ops(history).again_us) == (1, 0, NOW_US + 2 * S)
    history.must(Told(NOW_US, "ops", history.must(permit(history))["token"], "accepted"))
    assert (ops(history).tries, ops(history).failed_urgency) == (0, 0)
