"""Tasks that are due after others: what becomes of each occurrence, and when."""

from typing import Any

import pytest

from node.state.attempts import Cancel, Finish
from node.state.codec import from_pieces, snapshot_pieces
from node.state.deadlines import open_us
from node.state.descent import CHILDREN_MAX
from node.state.joins import JOINS_MAX, TOLD_AT_ONCE, PassOn, SettleJoin
from node.state.members import TakeLead
from node.state.occurrences import Enqueue, SkipOccurrences, Start
from node.state.registry import DeleteTask, Pause, Put, PutTasks
from node.state.snapshot import records
from node.state.telling import PutChannel
from node.state.value import RULES, OccurrenceId, Run
from tests.unit.node.state.given import NOW_US, History, cluster, hook, packed

S = 1_000_000
MINUTE = 60 * S
CRON = {"cron": "* * * * *"}
ONCE = {"attempts": 1}


def after(**families: Any) -> History:
    """A cluster with these tasks, in this order; a list is what a task comes after, and a dict has its other fields."""
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    for name, given in families.items():
        fields = given if isinstance(given, dict) else {"after": given} if given else {"schedule": CRON}
        history.put(name, **({"retry": ONCE, "overlap": "allow"} | fields))
    return history


def finish(history: History, run: Run, end: str = "succeeded") -> None:
    history.must(Finish(NOW_US, run.run_id, run.token, end))  # type: ignore[arg-type]


def do(history: History, task: str, minute: int, end: str = "succeeded") -> None:
    """Let a root's occurrence run and end."""
    finish(history, history.claim(task, NOW_US + minute * MINUTE), end)


def waiting(history: History, task: str) -> list[int]:
    """The minutes of the waiting runs of a task."""
    runs = [history.state.runs[run_id] for run_id in history.state.runs_of.get(task, ())]
    assert all(run.trigger == "after" for run in runs)
    return [(run.fire_at_us - NOW_US) // MINUTE for run in runs if run.state == "waiting"]


def outcome(history: History, task: str) -> tuple[str, str | None] | None:
    last = history.state.tasks[task].last
    return None if last is None else (last.state, last.error)


def pass_all(history: History) -> None:
    while history.state.ends:
        history.must(PassOn(NOW_US, history.state.next_end - len(history.state.ends)))


def test_a_task_is_due_in_the_entry_that_ends_the_last_task_before_it() -> None:
    history = after(a=[], b=[], c=["a", "b"])
    do(history, "a", 1)
    assert (waiting(history, "c"), len(history.state.joins["c"])) == ([], 1)
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state
    do(history, "b", 1)
    assert (waiting(history, "c"), history.state.joins.get("c")) == ([1], None)
    assert "c" in history.last.touched
    (run_id,) = history.state.runs_of["c"]
    run = history.claim("c", 0, run_id=run_id)
    assert run.occurrence == OccurrenceId(NOW_US + MINUTE)
    finish(history, run)
    assert outcome(history, "c") == ("succeeded", None)


@pytest.mark.parametrize(
    ("on", "end", "found"),
    [
        ("succeeded", "succeeded", None),
        ("succeeded", "failed", ("upstream_failed", "a failed")),
        ("succeeded", "timed_out", ("upstream_failed", "a failed")),
        ("succeeded", "cancelled", ("upstream_skipped", "a did not run")),
        ("failed", "failed", None),
        ("failed", "succeeded", ("not_needed", "a did not fail")),
        ("failed", "cancelled", ("not_needed", "a did not fail")),
        ("ended", "succeeded", None),
        ("ended", "failed", None),
        ("ended", "cancelled", ("upstream_skipped", "a did not run")),
    ],
)
def test_how_it_has_to_end(on: str, end: str, found: tuple[str, str] | None) -> None:
    history = after(a=[], b=[{"task": "a", "on": on}])
    do(history, "a", 1, end)
    assert (waiting(history, "b"), outcome(history, "b")) == ([1] if found is None else [], found)
    ended = [one for one in history.ended if one.run.task == "b"]
    assert [(one.state, one.error) for one in ended] == ([] if found is None else [found])


def test_consequences_are_passed_on_by_the_leader_two_levels_an_entry() -> None:
    history = after(a=[], b=["a"], c=["b"], d=["c"], e=["d"])
    do(history, "a", 1, "failed")
    assert [outcome(history, name) for name in "bc"] == [("upstream_failed", "a failed"), None]
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state
    first = history.state.next_end - 1
    history.must(PassOn(NOW_US, first))
    assert [outcome(history, name) for name in "de"] == [("upstream_failed", "c failed"), None]
    assert history.do(PassOn(NOW_US, first)).code == "stale", "each is passed on once"
    pass_all(history)
    assert outcome(history, "e") == ("upstream_failed", "d failed")
    row = history.state.tasks["e"]
    assert (sum(row.endings), row.endings[5], history.state.endings[5], row.failing) == (1, 1, 4, False)


def test_a_failure_is_told_once_with_its_consequences() -> None:
    history = after(a=[], b=["a"], c=["a"], d=["b"])
    history.must(PutChannel(NOW_US, "ops", hook().pack()))
    do(history, "a", 1, "failed")
    pass_all(history)
    [notice] = history.state.channels["ops"].notices
    assert notice.text == "a failed, after 1 attempt; so what comes after it does not run: b, c"
    do(history, "a", 2)
    assert [one.text for one in history.state.channels["ops"].notices[1:]] == ["a succeeded again"]


def test_deadlines_count_from_the_parents_end_and_from_the_time_of_the_schedule() -> None:
    deadlines = {"start_within_s": 60, "finish_within_s": 600}
    history = after(a=[], b={"after": ["a"], "deadlines": deadlines})
    run = history.claim("a", NOW_US + MINUTE)
    history.must(Finish(NOW_US + 5 * MINUTE, run.run_id, run.token, "succeeded"))
    row, runs = history.state.tasks["b"], list(history.state.runs.values())
    assert list(open_us(row, runs, "start_within")) == [NOW_US + 5 * MINUTE]
    assert list(open_us(row, runs, "finish_within")) == [NOW_US + MINUTE]
    do(history, "a", 2, "failed")
    assert history.state.tasks["b"].unmet_us == NOW_US + 2 * MINUTE, "it has not succeeded, whatever the cause"


def test_what_one_entry_ends_is_told_in_portions() -> None:
    children = {f"b{number:02}": ["a"] for number in range(CHILDREN_MAX)}
    history = after(a=[], **children)
    times = tuple(NOW_US + minute * MINUTE for minute in range(1, 4))
    history.must(SkipOccurrences(times[-1], "a", "missed", times))
    assert sum(outcome(history, name) is not None for name in children) == CHILDREN_MAX
    assert len(history.state.ends) == 3 - -(-TOLD_AT_ONCE // CHILDREN_MAX)
    pass_all(history)
    assert all(history.state.tasks[name].endings[6] == 3 for name in children)
    assert history.state.tasks["a"].missed == 3


def test_occurrences_that_were_queued_in_vain_or_shifted_keep_their_times() -> None:
    history = after(a={"schedule": CRON, "overlap": "queue"}, b=["a"])
    history.must(Enqueue(NOW_US + MINUTE, "a", (NOW_US + MINUTE,)))
    moved = history.must(Start(NOW_US, "a", fire_at_us=NOW_US + 2 * MINUTE))["run_id"]
    run = history.claim("a", 0, run_id=history.state.runs_of["a"][0])
    finish(history, run)
    history.must(Cancel(NOW_US, moved))
    assert waiting(history, "b") == [1], "what was started by hand alone has no consequences"


@pytest.mark.parametrize(
    ("overlap", "left", "ended"),
    [
        ("skip", ["claimed"], ["skipped"]),
        ("queue", ["claimed", "waiting"], []),
        ("allow", ["claimed", "waiting"], []),
        ("replace", ["claimed", "waiting"], []),
    ],
)
def test_once_due_it_meets_its_overlap(overlap: str, left: list[str], ended: list[str]) -> None:
    history = after(a=[], b={"after": ["a"], "overlap": overlap}, c=["b"])
    do(history, "a", 1)
    history.claim("b", 0, run_id=history.state.runs_of["b"][0])
    do(history, "a", 2)
    runs = [history.state.runs[run_id] for run_id in history.state.runs_of["b"]]
    assert [run.state for run in runs] == left
    assert (runs[0].cancelling == "replaced") == (overlap == "replace")
    assert [one.state for one in history.ended if one.run.task == "b"] == ended
    pass_all(history)
    assert [one.state for one in history.ended if one.run.task == "c"] == ["upstream_skipped"] * len(ended)


def test_occurrences_before_its_registration_are_not_its_own() -> None:
    history = after(a=[])
    run = history.claim("a", NOW_US + MINUTE)
    history.put("b", NOW_US + MINUTE + S, after=["a"])
    finish(history, run)
    assert (waiting(history, "b"), history.state.joins.get("b")) == ([], None)
    do(history, "a", 2)
    assert waiting(history, "b") == [2]


def test_a_pause_ends_what_waits_and_what_falls_due_meanwhile_leaves_no_record() -> None:
    history = after(a=[], b=[], c=["a", "b"], d=["c"])
    do(history, "a", 1)
    history.must(Pause(NOW_US, "c", True))
    assert outcome(history, "c") == ("upstream_skipped", "paused")
    do(history, "b", 1)
    do(history, "a", 2)
    do(history, "b", 2)
    do(history, "a", 3)
    history.must(Pause(NOW_US + 3 * MINUTE, "c", False))
    do(history, "b", 3)
    pass_all(history)
    assert [one.state for one in history.ended if one.run.task == "c"] == ["upstream_skipped"]
    assert history.state.tasks["d"].endings[6] == 3, "the tasks after it are told of all three"
    do(history, "a", 4)
    do(history, "b", 4)
    assert waiting(history, "c") == [4]
    assert not history.state.joins


def test_a_parent_that_cannot_end_any_more_counts_as_skipped_once() -> None:
    history = after(a=[], b=[], c=["a", "b"], d=["c"])
    do(history, "a", 1)
    settle = SettleJoin(NOW_US, "c", NOW_US + MINUTE)
    assert history.do(settle).code == "not-due", "b may still be due at that time"
    run = history.claim("b", NOW_US + MINUTE)
    assert history.do(settle).code == "not-due"
    history.must(Cancel(NOW_US, run.run_id))
    finish(history, run, "cancelled")
    assert outcome(history, "c") == ("upstream_skipped", "b did not run")
    do(history, "a", 2)
    history.must(Pause(NOW_US, "b", True))
    settle = SettleJoin(NOW_US, "c", NOW_US + 2 * MINUTE)
    history.must(settle)
    assert history.state.tasks["c"].endings[6] == 2
    assert history.do(settle).code == "stale"
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state


def test_too_many_that_wait_end_the_oldest() -> None:
    history = after(a=[], b=[], c=["a", "b"])
    for minute in range(1, JOINS_MAX + 3):
        do(history, "a", minute)
    assert len(history.state.joins["c"]) == JOINS_MAX
    assert history.state.tasks["c"].endings[6] == 2
    for minute in range(1, JOINS_MAX + 3):
        do(history, "b", minute)
    assert waiting(history, "c") == list(range(3, JOINS_MAX + 3))
    assert not history.state.joins


def test_a_change_of_its_parents_ends_what_waits_by_the_earlier_ones() -> None:
    history = after(a=[], b=[], c=["a", "b"])
    do(history, "a", 1)
    history.put("c", after=["b"], retry=ONCE, overlap="allow")
    assert outcome(history, "c") == ("upstream_skipped", "changed")
    do(history, "b", 1)
    assert waiting(history, "c") == []
    assert dict(history.state.children) == {"b": ("c",)}
    do(history, "b", 2)
    assert waiting(history, "c") == [2]


def test_a_rerun_goes_downstream_if_asked_and_does_not_wait_for_tasks_beside_it() -> None:
    history = after(a=[], b=["a"], c=["b"], x=["a"], d=["c", "x"])
    run_id = history.must(Start(NOW_US, "b", downstream=True))["run_id"]
    number = history.state.runs[run_id].generation
    assert history.state.reruns[number].tasks == ("b", "c", "d")
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state
    for name in "bcd":
        finish(history, history.claim(name, 0, run_id=history.state.runs_of[name][0]))
    assert not history.state.runs and not history.state.joins and not history.state.reruns
    history.must(Start(NOW_US, "b"))
    finish(history, history.claim("b", 0, run_id=history.state.runs_of["b"][0]))
    assert not history.state.runs


def test_a_task_is_decided_on_once_in_a_rerun_whatever_its_parents_become() -> None:
    history = after(a=[], b=["a"], c=["a"])
    history.must(Start(NOW_US, "a", downstream=True))
    for name in "ac":
        finish(history, history.claim(name, 0, run_id=history.state.runs_of[name][0]))
    history.put("c", after=["b"], retry=ONCE, overlap="allow")
    finish(history, history.claim("b", 0, run_id=history.state.runs_of["b"][0]))
    assert not history.state.runs and not history.state.reruns


def test_a_rerun_goes_on_without_a_task_that_is_deleted() -> None:
    history = after(a=[], b=["a"], c=["b"], d=["a", "c"])
    history.must(Start(NOW_US, "a", downstream=True))
    history.must(DeleteTask(NOW_US, "b", with_children=True))
    finish(history, history.claim("a", 0, run_id=history.state.runs_of["a"][0]))
    (join,) = history.state.joins["d"]
    history.must(SettleJoin(NOW_US, "d", join.nominal_us, join.generation))
    assert outcome(history, "d") == ("upstream_skipped", "c did not run")


def test_one_entry_decides_on_one_time_of_two_reruns() -> None:
    history = after(a=[], b=["a"], c=["b"], d=[{"task": "c", "on": "failed"}])
    run = history.claim("a", NOW_US + MINUTE)
    rerun = history.must(Start(NOW_US, "b", fire_at_us=NOW_US + MINUTE, downstream=True))["run_id"]
    finish(history, run, "failed")
    finish(history, history.claim("b", 0, run_id=rerun), "failed")
    pass_all(history)
    runs = [history.state.runs[run_id] for run_id in history.state.runs_of["d"]]
    assert sorted(run.generation > 0 for run in runs) == [False, True]


def test_definitions_that_cannot_stand_are_refused() -> None:
    history = after(
        a=[], b=["a"], c=["b"], other={"schedule": {"cron": "5 * * * *"}}, every={"schedule": {"every_s": 60}},
        hand={"schedule": None}, always={"schedule": {"continuous": True}},
    )  # fmt: skip

    def refusal(name: str, **fields: Any) -> str:
        before = history.state
        result = history.do(PutTasks(NOW_US, (Put(packed(name, **fields)),)))
        assert result.code == "invalid"
        assert (history.state.tasks, history.state.children) == (before.tasks, before.children)
        return result.detail

    assert "no task 'z'" in refusal("d", after=["z"])
    assert refusal("a", after=["c"]).endswith("in a circle: a after c after b after a")
    assert "no times in common" in refusal("d", after=["c", "other"])
    assert "no times in common" in refusal("d", after=["a", "every"])
    assert "no times in common" in refusal("d", after=["a", "hand"])
    assert "which is continuous" in refusal("d", after=["always"])
    history.put("e", after=["a", "c"])
    history.put("f", after=["every"])
    history.put("g", after=["f", "every"])
    history.put("h", after=["hand"])
    assert "come after it" in history.do(DeleteTask(NOW_US, "a")).detail
    history.must(DeleteTask(NOW_US, "a", with_children=True))
    assert "a" not in history.state.tasks


def test_one_entry_may_register_children_before_their_parents() -> None:
    history = after()
    puts = tuple(Put(packed(f"t{number}", after=[f"t{number - 1}"])) for number in range(500, 0, -1))
    history.must(PutTasks(NOW_US, (*puts, Put(packed("t0", schedule=CRON)))))
    assert len(history.state.children) == 500
    assert list(records(from_pieces(list(snapshot_pieces(history.state))))) == list(records(history.state))
    ring = PutTasks(NOW_US, (Put(packed("t0", after=["t500"])),))
    assert "..." in history.do(ring).detail
