"""Definitions of tasks: epoch, what a schedule counts from, and versions."""

import json
from typing import Any, Literal

import msgpack
import pytest

from node.state.attempts import Cancel, Finish
from node.state.members import TakeLead
from node.state.occurrences import Enqueue, SkipOccurrences, Start
from node.state.registry import DeleteTask, Pause, Put, PutTasks
from node.state.value import RULES, Result, Series
from tasks.definition.spec import DESCRIBING, Spec
from tests.unit.node.state.given import NOW_US, History, cluster, packed

LATER_US = NOW_US + 1_000_000
EVERY = {"every_s": 1}


def put(history: History, *puts: Put) -> Result:
    return history.do(PutTasks(LATER_US, puts))


def test_all_of_a_list_or_none() -> None:
    history = cluster("a")
    history.put("there")
    before = history.state.tasks
    good = Put(packed("good"))
    for bad, code in (
        (Put(b"\xc1"), "invalid"),
        (Put(msgpack.packb({"name": "x/y", "kind": "command"})), "invalid"),
        (Put(msgpack.packb({"name": "x", "kind": "command", "params": {"x": float("nan")}})), "invalid"),
        (Put(packed("good")), "invalid"),
        (Put(packed("there"), if_version=0), "version"),
        (Put(packed("there"), if_version=2), "version"),
        (Put(packed("nowhere"), if_version=1), "version"),
    ):
        result = put(history, good, bad)
        assert (result.code, bool(result.detail)) == (code, True)
        assert history.state.tasks == before
    assert put(history, good, Put(packed("there", weight=2), if_version=1)).value == {
        "tasks": [["good", 1, "created"], ["there", 2, "changed"]]
    }


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "field",
    [
        {"params": {"a": [{"b": NAN}]}},
        {"params": {"a": INF}},
        {"params": {"a": b""}},
        {"params": {"a": msgpack.ExtType(5, b"")}},
        {"params": {1: "a"}},
        {"params": ["a"]},
        {"params": {"a": json.loads(40 * "[" + 40 * "]")}},
        {"group": {"a": b"b"}},
        {"group": {"a": msgpack.ExtType(5, b"")}},
        {"key": b"k"},
        {"timeout_s": NAN},
        {"timeout_s": INF},
        {"schedule": {"every_s": NAN}},
        {"schedule": {"every_s": INF}},
        {"schedule": {"at": NAN}},
        {"retry": {"backoff_s": NAN}},
        {"retry": {"factor": INF}},
        {"retry": {"max_s": NAN}},
        {"failover": {"grace_s": NAN}},
        {"weight": NAN},
        {"weight": msgpack.Timestamp(1)},
    ],
    ids=repr,
)
def test_a_spec_holds_nothing_that_json_has_not(field: dict[str, Any]) -> None:
    """A value that JSON cannot represent could not be shown over HTTP once it was accepted."""
    history = cluster("a")
    refusal = put(history, Put(msgpack.packb({"name": "x", "kind": "command", **field})))
    assert refusal.code == "invalid"
    assert refusal.detail
    assert not history.state.tasks


DEFINITIONS = [
    {},
    {"params": {"argv": ["true"]}},
    {"params": {"argv": ["true"]}, "key": "k"},
    {"params": {"argv": ["false"]}, "key": "k", "group": {"disk": "ssd"}},
    {"params": {"argv": ["false"]}, "schedule": EVERY},
    {"schedule": {"continuous": True}},
    {"params": {"argv": ["true"]}, "schedule": {"continuous": True}},
    {"params": {"argv": ["true"]}, "schedule": {"continuous": True}, "weight": 3, "standbys": 1},
]


@pytest.mark.parametrize("before", DEFINITIONS, ids=repr)
@pytest.mark.parametrize("after", DEFINITIONS, ids=repr)
def test_a_changed_task_is_what_it_would_be_if_it_were_new(before: dict[str, Any], after: dict[str, Any]) -> None:
    changed, new = cluster("a"), cluster("a")
    changed.put("t", **before)
    for history in (changed, new):
        history.put("t", **after)
    row, fresh = changed.state.tasks["t"], new.state.tasks["t"]
    assert (row.spec_packed, row.placing, row.spec) == (fresh.spec_packed, fresh.placing, fresh.spec)
    assert row.version == (1 if before == after else 2)


def test_what_a_task_is_changed_to_is_looked_at_whatever_it_has_in_common_with_what_is_there() -> None:
    history = cluster("a")
    history.put("t", retry={"attempts": 5})
    for fault in ({"params": None}, {"params": [1]}, {"retry": {"attempts": 0}}, {"more": 1}, {"name": None}):
        fields = {**msgpack.unpackb(packed("t", retry={"attempts": 5})), **fault}
        assert put(history, Put(msgpack.packb(fields))).code == "invalid"
    assert history.state.tasks["t"].version == 1


def test_an_unchanged_spec_keeps_version_epoch_and_what_its_schedule_counts_from() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    row, epoch = history.state.tasks["t"], history.state.epoch
    assert put(history, Put(packed("t", schedule=EVERY))).value == {"tasks": [["t", 1, "unchanged"]]}
    assert (history.state.tasks["t"], history.state.epoch) == (row, epoch)
    assert history.last.touched == frozenset()


def test_params_and_labels_keep_the_order_in_which_they_were_written() -> None:
    history = cluster("a")
    history.put("t", params={"argv": ["x"], "a": {"z": 1, "b": 2}}, labels={"team": "bi", "at": "x"})
    row = history.state.tasks["t"]
    assert json.dumps(row.spec.params) == '{"argv": ["x"], "a": {"z": 1, "b": 2}}'
    assert json.dumps(row.spec.labels) == '{"team": "bi", "at": "x"}'
    other = packed("t", labels={"at": "x", "team": "bi"}, params={"a": {"b": 2, "z": 1}, "argv": ["x"]})
    assert put(history, Put(other)).value == {"tasks": [["t", 1, "unchanged"]]}
    assert history.state.tasks["t"] is row, "another order alone is no change"
    for value in (True, 1.0):
        changed = packed("t", labels={"at": "x", "team": "bi"}, params={"a": {"b": 2, "z": value}, "argv": ["x"]})
        assert put(history, Put(changed)).value["tasks"][0][2] == "changed"


PLACES, OF_RUNS = {"places"}, {"of runs"}
MATTERS: dict[str, tuple[Any, set[str]]] = {
    "kind": ("backup", PLACES | OF_RUNS),
    "params": ({"argv": ["true"]}, OF_RUNS),
    "schedule": (EVERY, OF_RUNS),
    "key": ("t", PLACES),
    "group": ({"disk": "ssd"}, PLACES),
    "labels": ({"team": "bi"}, set()),
    "pin": ("a", PLACES),
    "sticky": (False, PLACES),
    "weight": (2, PLACES),
    "standbys": (1, PLACES),
    "overlap": ("allow", OF_RUNS),
    "catch_up": ("all", OF_RUNS),
    "timeout_s": (60, OF_RUNS),
    "retry": ({"attempts": 5}, OF_RUNS),
    "failover": ({"grace_s": 5}, OF_RUNS),
    "enabled": (False, OF_RUNS),
    "set": ("site", set()),
    "deadlines": ({"start_within_s": 60}, OF_RUNS),
    "limits": ({"processes": 8}, OF_RUNS),
    "priority": (90, OF_RUNS),
    "run_as": ("deploy", OF_RUNS),
}
"""Of each field of a spec another value, and what the change matters to: placement, whose epoch grows, and the run of
a continuous task, which ends so that the next one is made with the value. A field that matters to neither `Describes`.
"""


OTHERS = {"name", "after", "wait_s", "uses", "rate", "each", "calendar", "template"}


# A task with `after` or one of the last five is not continuous, and `wait_s` is of tasks with `after`.
@pytest.mark.parametrize("field", [one for one in Spec.model_fields if one not in OTHERS])
def test_a_change_of_a_field_moves_and_ends_what_depends_on_it(field: str) -> None:
    value, matters = MATTERS[field]
    history = cluster("a")
    before: dict[str, Any] = {"schedule": {"continuous": True}, "sticky": True}
    history.put("t", **before)
    run = history.claim("t", history.state.tasks["t"].since_us)
    epoch = history.state.epoch
    history.put("t", **(before | {field: value}))
    assert history.state.tasks["t"].version == 2
    assert (history.state.epoch > epoch) == (matters >= PLACES)
    assert (history.state.runs[run.run_id].cancelling == "changed") == (matters >= OF_RUNS)
    assert (field in DESCRIBING) == (not matters)


def test_a_pause_keeps_the_epoch_and_a_resumption_counts_from_now() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    epoch = history.state.epoch
    history.must(Pause(LATER_US, "t", True))
    assert history.do(Enqueue(LATER_US, "t", (LATER_US,))).code == "not-due"
    history.must(Pause(LATER_US + 5, "t", False))
    row = history.state.tasks["t"]
    assert (row.since_us, row.through_us, history.state.epoch) == (LATER_US + 5, LATER_US + 5, epoch)


def test_what_has_been_dealt_with_never_comes_back_however_clocks_differ() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    run = history.claim("t", LATER_US)
    history.must(Finish(LATER_US, run.run_id, run.token, "succeeded"))
    history.put("t", at_us=NOW_US - 5_000_000, schedule={"every_s": 2})
    assert history.state.tasks["t"].since_us == NOW_US - 5_000_000
    assert history.state.tasks["t"].through_us == LATER_US


def test_order_and_counts_outlive_a_change() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    history.put("u")
    history.must(SkipOccurrences(LATER_US + 1_000_000, "t", "missed", (LATER_US, LATER_US + 1_000_000)))
    history.put("t", schedule=EVERY, weight=3)
    row = history.state.tasks["t"]
    assert (row.order, row.version, row.missed) == (1, 2, 2)


def test_deleting_cancels_runs_at_once_or_by_their_holders() -> None:
    history = cluster("a")
    history.put("t", overlap="allow")
    held = history.must(Start(LATER_US, "t"))["run_id"]
    waiting = history.must(Start(LATER_US, "t"))["run_id"]
    held_run = history.claim("t", LATER_US, run_id=held)
    history.must(DeleteTask(LATER_US, "t"))
    assert [(one.run.run_id, one.state) for one in history.ended] == [(waiting, "cancelled")]
    assert history.state.runs[held].cancelling == "deleted"
    history.put("t", at_us=LATER_US)
    history.must(Finish(LATER_US, held, held_run.token, "failed"))
    assert history.ended[-1].state == "cancelled"
    assert history.state.tasks["t"].last is None
    assert not history.state.runs_of


def test_a_passed_over_occurrence_is_counted_once() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    times = (LATER_US, LATER_US + 1_000_000)
    assert history.must(SkipOccurrences(LATER_US + 1_000_000, "t", "skipped", times)) == {"passed_over": 2}
    assert history.must(SkipOccurrences(LATER_US + 1_000_000, "t", "skipped", times)) == {"passed_over": 0}
    assert history.state.tasks["t"].skipped == 2
    assert [(one.state, one.series) for one in history.ended] == [("skipped", None)] * 2, "as it was before"
    assert history.do(SkipOccurrences(LATER_US, "t", "skipped", (LATER_US + 9_000_000,))).code == "not-due"


S_US = 1_000_000


def passed(history: History, state: Literal["skipped", "missed"], first: int, last: int) -> Series:
    """Pass over that many seconds after the first time. Returns the series that history gets."""
    times = (LATER_US + first * S_US, LATER_US + last * S_US)
    assert history.must(SkipOccurrences(times[1], "t", state, times, last - first + 1)) == {
        "passed_over": last - first + 1
    }
    series = history.ended[-1].series
    assert series is not None
    assert series == history.state.tasks["t"].series
    return series


def test_what_one_run_blocks_is_one_record_however_long_it_lasts() -> None:
    history = cluster("a")
    history.put("t", schedule={"every_s": 1})
    run = history.claim("t", LATER_US)
    for second in range(1, 1000):
        series = passed(history, "skipped", second, second)
    assert series == Series(
        "skipped", LATER_US + S_US, LATER_US + S_US, LATER_US + 999 * S_US, 999, blocked_by=run.run_id
    )
    assert len({(one.run.run_id, one.run.created_at_us) for one in history.ended}) == 1
    assert (history.state.tasks["t"].skipped, history.state.tasks["t"].through_us) == (999, LATER_US + 999 * S_US)
    history.must(Finish(LATER_US + 999 * S_US, run.run_id, run.token, "succeeded"))
    assert passed(history, "skipped", 1000, 1000).count == 1000, "it was decided on before the end was known"
    history.claim("t", LATER_US + 1001 * S_US)
    assert history.state.tasks["t"].series is None
    series = passed(history, "skipped", 1002, 1003)
    assert (series.count, series.fire_at_us) == (2, LATER_US + 1002 * S_US)
    assert passed(history, "missed", 1004, 1014).count == 11, "another reason is another series"
    history.put("t", at_us=LATER_US + 1014 * S_US, schedule={"every_s": 2})
    assert history.state.tasks["t"].series is None
    row = history.state.tasks["t"]
    assert (row.skipped, row.missed) == (1002, 11)


def test_a_count_of_occurrences_must_be_one_and_none_is_counted_twice() -> None:
    history = cluster("a")
    history.put("t", schedule={"every_s": 1})
    passed(history, "missed", 1, 5)
    last = LATER_US + 9 * S_US
    for first, through, count, code in (
        (5, 9, 5, "occurrence-taken"),
        (6, 9, 0, "ok"),
        (7, 7, 2, "invalid"),
        (7, 9, 1, "invalid"),
        (9, 7, 3, "invalid"),
    ):
        times = (LATER_US + first * S_US, LATER_US + through * S_US)
        before = history.state.tasks["t"].missed
        result = history.do(SkipOccurrences(last, "t", "missed", times, count))
        assert result.code == code
        assert history.state.tasks["t"].missed == before + (2 if code == "ok" else 0)  # as it was written before: each
    assert history.do(SkipOccurrences(last, "t", "missed", (last,), 1)).code == "invalid"


def test_the_queue_keeps_a_hundred_and_skips_the_rest() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY, overlap="queue")
    times = tuple(LATER_US + second * 1_000_000 for second in range(130))
    assert history.must(Enqueue(times[-1], "t", times)) == {"queued": 100}
    assert history.must(Enqueue(times[-1], "t", times)) == {"queued": 0}
    row = history.state.tasks["t"]
    assert (len(history.state.runs), row.skipped, row.through_us) == (100, 30, times[-1])
    assert history.do(Start(times[-1], "t")).code == "overlap"


def test_overlap_decides_on_a_start_by_hand() -> None:
    history = cluster("a")
    for overlap, second in (("skip", "overlap"), ("queue", "ok"), ("allow", "ok"), ("replace", "ok")):
        history.put(overlap, overlap=overlap)
        history.must(Start(LATER_US, overlap))
        assert history.do(Start(LATER_US, overlap)).code == second
    assert [(one.run.task, one.state, one.error) for one in history.ended] == [("replace", "cancelled", "replaced")]


def test_an_idempotency_key_answers_with_the_first_run_even_when_that_has_ended() -> None:
    history = cluster("a")
    history.put("t")
    first = history.must(Start(LATER_US, "t", key="k"))
    history.must(Cancel(LATER_US, first["run_id"]))
    assert history.must(Start(LATER_US + 5, "t", key="k")) == first
    assert history.must(Start(LATER_US + 5, "t", key="another")) != first


def test_a_start_by_hand_keeps_the_time_it_is_given_where_that_is_free() -> None:
    history = cluster("a")
    history.put("t", overlap="allow")
    yesterday_us = NOW_US - 86_400_000_000
    ids = [history.must(Start(LATER_US, "t", fire_at_us=yesterday_us))["run_id"] for _ in range(3)]
    assert [history.state.runs[one].fire_at_us - yesterday_us for one in ids] == [0, 1, 2]
    assert ids[0].startswith("t~20241003T000000.000000Z~")


def test_a_scheduled_occurrence_is_not_the_one_started_by_hand_for_the_same_time() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY, overlap="allow")
    by_hand = history.must(Start(NOW_US, "t", fire_at_us=LATER_US))["run_id"]
    history.must(Cancel(NOW_US, by_hand))
    run = history.claim("t", LATER_US)
    assert run.fire_at_us == LATER_US + 1
    assert history.state.tasks["t"].through_us == LATER_US + 1


CONTINUOUS: dict[str, Any] = {"schedule": {"continuous": True}}


@pytest.mark.parametrize(
    "change",
    [{"params": {"x": 1}}, {"schedule": {"every_s": 5}}, {"schedule": None}, {"enabled": False}, {"timeout_s": 9}],
)
def test_a_change_ends_a_continuous_tasks_run_which_would_not_end_by_itself(change: dict[str, Any]) -> None:
    history = cluster("a")
    history.put("t", **CONTINUOUS)
    run = history.claim("t", history.state.tasks["t"].since_us)
    history.must(PutTasks(LATER_US, (Put(packed("t", **(CONTINUOUS | change))),)))
    assert history.state.runs[run.run_id].cancelling == "changed"
    history.must(Finish(LATER_US, run.run_id, run.token, "cancelled"))
    row = history.state.tasks["t"]
    assert (row.since_us > row.through_us) == row.spec.continuous


@pytest.mark.parametrize("change", [{"weight": 3}, {"pin": "a"}, {"group": {"disk": "ssd"}}, {"standbys": 1}])
def test_a_change_of_where_it_runs_alone_ends_nothing(change: dict[str, Any]) -> None:
    history = cluster("a")
    history.put("t", **CONTINUOUS)
    run = history.claim("t", history.state.tasks["t"].since_us)
    history.must(PutTasks(LATER_US, (Put(packed("t", **(CONTINUOUS | change))),)))
    assert history.state.runs[run.run_id].cancelling is None


def test_a_change_of_any_other_task_leaves_its_runs_as_they_are() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    run = history.claim("t", NOW_US + 1_000_000)
    history.must(PutTasks(LATER_US, (Put(packed("t", **CONTINUOUS)),)))
    assert history.state.runs[run.run_id].cancelling is None


def test_a_continuous_tasks_run_without_a_holder_ends_with_the_change() -> None:
    history = cluster("a", "b")
    history.put("t", **CONTINUOUS)
    run = history.claim("t", history.state.tasks["t"].since_us)
    history.must(Finish(LATER_US, run.run_id, run.token, "handed_over"))
    history.must(PutTasks(LATER_US, (Put(packed("t", params={"x": 1}, **CONTINUOUS)),)))
    assert [(one.state, one.error) for one in history.ended] == [("cancelled", "changed")]
    row = history.state.tasks["t"]
    assert row.since_us > row.through_us, "the next one is due"


def ruled() -> History:
    """A cluster whose leader is of this build."""
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    return history


def test_a_queue_that_is_full_tells_of_what_it_skips_as_one() -> None:
    history = ruled()
    history.put("t", schedule=EVERY, overlap="queue")
    times = tuple(LATER_US + second * S_US for second in range(130))
    history.must(Enqueue(times[-1], "t", times))
    [one] = history.ended
    assert one.series == Series("skipped", times[-1], times[100], times[-1], 30, min(history.state.runs))
