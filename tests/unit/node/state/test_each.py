"""Tasks with `each`: a run for each member, which it alone may claim; what holds up one holds up no other."""

from typing import Any

import pytest

from node.state.attempts import Began, Cancel, Finish
from node.state.backfills import StartBackfill
from node.state.claims import Claim
from node.state.codec import from_pieces, snapshot_pieces
from node.state.deadlines import Breached
from node.state.fan_out import FanOut, MissRun
from node.state.members import Drain, MarkDown, RemoveMember, TakeLead
from node.state.occurrences import Enqueue, SkipOccurrences, Start
from node.state.registry import DeleteTask, Put, PutTasks
from node.state.saved import lines, read
from node.state.settings import ChangeSettings
from node.state.telling import PutChannel
from node.state.value import RULES, OpenRound, Run, TaskRow
from tests.unit.node.state.given import NOW_US, History, cluster, hook, packed
from tests.unit.node.state.test_saved import kept, put_back

S = 1_000_000
EVERY = {"every_s": 60}
FIRST = NOW_US + 60 * S


def on_each(members: str = "abc", **fields: Any) -> History:
    """A cluster in which `clean` runs on each member that has the label `disk`: on all."""
    history = cluster(*members)
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    for member in members:
        history.back(member, labels=(("disk", "yes"),))
    spec: dict[str, Any] = {"schedule": EVERY, "each": True, "group": {"disk": "yes"}} | fields
    history.put("clean", **spec)
    return history


def runs(history: History, task: str = "clean") -> dict[str, Run]:
    """The runs of each member; the latest if it has several. A snapshot restores the state as it is."""
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state
    return {run.member: run for run in map(history.state.runs.__getitem__, history.state.runs_of.get(task, ()))}


def fan_out(history: History, number: int = 1, task: str = "clean") -> dict[str, Run]:
    history.must(FanOut(NOW_US + number * 60 * S, task, NOW_US + number * 60 * S))
    return runs(history, task)


def take(history: History, run: Run, member: str | None = None) -> str:
    member = member or run.member or "a"
    incarnation = history.state.members[member].incarnation
    return history.do(Claim(run.created_at_us, run.task, run.fire_at_us, member, incarnation, run.run_id)).code


def finish(history: History, run: Run, end: str = "succeeded", retry: bool = False) -> None:
    if (held := history.state.runs[run.run_id]).node is None:
        assert take(history, run) == "ok"
        held = history.state.runs[run.run_id]
    history.must(Finish(held.attempts[-1].claimed_at_us + S, run.run_id, held.token, end, retry=retry))  # type: ignore[arg-type]


def down(history: History, member: str, at_us: int = FIRST) -> None:
    found = history.state.members[member]
    history.must(MarkDown(at_us, member, found.incarnation, "silent", 1))


def row(history: History, task: str = "clean") -> TaskRow:
    return history.state.tasks[task]


def ended(history: History) -> list[tuple[str, str]]:
    return [(one.run.member, one.state) for one in history.ended]


def test_an_occurrence_is_a_run_for_each_member_which_no_other_may_claim() -> None:
    history = on_each()
    made = fan_out(history)
    assert {name: run.run_id for name, run in made.items()} == {
        name: f"clean~20241004T000100.000000Z@{name}" for name in "abc"
    }
    assert take(history, made["b"], "a") == "held"
    assert take(history, made["b"]) == "ok"
    assert history.do(FanOut(FIRST, "clean", FIRST)).code == "occurrence-taken"
    down(history, "b")
    assert runs(history)["b"].state == "orphaned"
    assert take(history, made["b"], "a") == "held"
    history.back("b", labels=(("disk", "yes"),))
    assert take(history, made["b"]) == "ok"


def test_members_without_the_labels_or_the_kind_or_that_leave_or_never_joined_take_no_part() -> None:
    history = on_each("abcde")
    history.back("b")
    history.back("c", labels=(("disk", "yes"),), kinds=("other",))
    history.must(RemoveMember(NOW_US, "d"))
    down(history, "e", NOW_US)
    assert sorted(fan_out(history)) == ["a", "e"]
    history.back("b", labels=(("disk", "yes"),))
    assert sorted(runs(history)) == ["a", "e"]
    assert sorted(fan_out(history, 2)) == ["a", "b", "e"]


def test_what_is_longer_than_a_folders_name_names_the_slot() -> None:
    history = on_each(("a", "b" * 100))  # type: ignore[arg-type]
    assert [run.run_id[-3:] for run in fan_out(history).values()] == ["Z@a", "@.1"]


def test_occurrences_are_fanned_out_and_neither_claimed_nor_queued() -> None:
    history = on_each()
    assert history.do(Claim(FIRST, "clean", FIRST, "a", 2)).code == "not-due"
    assert history.do(Enqueue(FIRST, "clean", (FIRST,))).code == "not-due"
    history.put("other", schedule=EVERY)
    assert history.do(FanOut(FIRST, "other", FIRST)).code == "stale"
    history.must(SkipOccurrences(FIRST, "clean", "missed", (FIRST,)))
    assert row(history).missed == 1


def test_overlap_is_by_member() -> None:
    history = on_each()
    made = fan_out(history)
    assert take(history, made["b"]) == "ok"
    finish(history, made["a"])
    finish(history, made["c"])
    later = fan_out(history, 2)
    assert [later[name].fire_at_us - FIRST for name in "abc"] == [60 * S, 0, 60 * S]
    assert ended(history)[-1] == ("b", "skipped")
    fan_out(history, 3)
    series = history.ended[-1].series if history.ended[-1].run.member == "b" else history.ended[-2].series
    assert row(history).skipped == 2
    assert series is not None and series.count == 2 and series.blocked_by == made["b"].run_id


@pytest.mark.parametrize(("overlap", "second"), [("queue", "overlap"), ("allow", "ok"), ("replace", "overlap")])
def test_other_overlaps(overlap: str, second: str) -> None:
    history = on_each("a", overlap=overlap)
    first = fan_out(history)["a"]
    assert take(history, first) == "ok"
    later = fan_out(history, 2)["a"]
    assert len(history.state.runs_of["clean"]) == 2
    assert (history.state.runs[first.run_id].cancelling == "replaced") == (overlap == "replace")
    assert take(history, later) == second
    finish(history, first, "cancelled" if overlap == "replace" else "succeeded")
    if overlap != "allow":
        assert take(history, later) == "ok"


def test_a_member_that_is_not_up_keeps_the_latest_run_or_all() -> None:
    history = on_each("ab")
    down(history, "b", NOW_US)
    for number in (1, 2, 3):
        made = fan_out(history, number)
        finish(history, made["a"])
    assert history.state.runs_of["clean"] == (made["b"].run_id,)
    assert row(history).missed == 2
    [*_, last] = [one for one in history.ended if one.run.member == "b"]
    assert last.state == "missed" and last.series is not None and last.series.count == 2
    assert last.run.run_id == "clean~20241004T000100.000000Z@b"
    history.put("clean", schedule=EVERY, each=True, catch_up="all")
    for number in range(4, 110):
        made = fan_out(history, number)
        finish(history, made["a"])
    assert len(history.state.runs_of["clean"]) == 100
    history.back("b")
    oldest = history.state.runs[history.state.runs_of["clean"][0]]
    assert take(history, oldest) == "ok"


def test_what_a_member_was_not_up_for_in_time_is_missed() -> None:
    history = on_each("ab", catch_up="skip")
    down(history, "b", NOW_US)
    made = fan_out(history)
    late = FIRST + 10 * S
    assert history.do(MissRun(late - 1, "clean", made["b"].run_id)).code == "not-due"
    assert history.do(MissRun(late + S, "clean", made["a"].run_id)).code == "not-due"
    history.back("b", late + S, labels=(("disk", "yes"),))
    history.must(MissRun(late + S, "clean", made["b"].run_id))
    assert sorted(runs(history)) == ["a"]
    down(history, "b", late + 2 * S)
    made = fan_out(history, 2)
    history.back("b", FIRST + 65 * S)
    assert history.do(MissRun(FIRST + 600 * S, "clean", made["b"].run_id)).code == "not-due"
    assert history.do(MissRun(FIRST, "clean", "none")).code == "no-such-run"


def test_the_run_of_a_removed_member_is_cancelled_and_does_not_count_for_the_tasks_after() -> None:
    history = on_each()
    history.put("report", after="clean", at_us=NOW_US)
    made = fan_out(history)
    for name in "ac":
        finish(history, made[name])
    down(history, "b")
    assert "report" not in history.state.runs_of
    history.must(RemoveMember(FIRST, "b"))
    assert ended(history)[-1] == ("b", "cancelled")
    assert [part.member for part in history.state.each["clean"].parts] == ["a", "c"]
    assert len(history.state.runs_of["report"]) == 1


@pytest.mark.parametrize(
    ("ends", "found"),
    [("sss", None), ("sfs", "upstream_failed"), ("css", "upstream_skipped"), ("csf", "upstream_failed")],
)
def test_the_tasks_after_it_wait_for_all_and_are_decided_once(ends: str, found: str | None) -> None:
    history = on_each()
    history.put("report", after="clean")
    made = fan_out(history)
    assert list(history.state.each["clean"].rounds) == [OpenRound(FIRST)]
    for name, end in zip("abc", ends, strict=True):
        assert "report" not in history.state.runs_of
        finish(history, made[name], {"s": "succeeded", "f": "failed", "c": "cancelled"}[end])
    assert not history.state.each["clean"].rounds
    told = [one.state for one in history.ended if one.run.task == "report"]
    assert (told, len(history.state.runs_of.get("report", ()))) == (([found], 0) if found else ([], 1))


def test_occurrences_that_all_members_skip_end_for_the_tasks_after() -> None:
    history = on_each("ab")
    history.put("report", after="clean")
    for run in fan_out(history).values():
        assert take(history, run) == "ok"
    fan_out(history, 2)
    assert [one.state for one in history.ended if one.run.task == "report"] == ["upstream_skipped"]
    for run in runs(history).values():
        finish(history, run)
    assert len(history.state.runs_of["report"]) == 1


def test_it_may_come_after_others_itself() -> None:
    history = on_each()
    history.put("first", schedule=EVERY)
    history.put("clean", after="first", each=True)
    run = history.claim("first", FIRST)
    finish(history, run)
    made = runs(history)
    assert sorted(made) == ["a", "b", "c"]
    assert {run.trigger for run in made.values()} == {"after"}


def test_its_state_is_that_of_its_worst_member() -> None:
    history = on_each()
    made = fan_out(history)
    finish(history, made["b"], "failed")
    finish(history, made["a"])
    finish(history, made["c"])
    found = row(history)
    assert found.failing and found.last is not None and found.last.run_id == made["b"].run_id
    assert [part.failing for part in history.state.each["clean"].parts] == [False, True, False]
    later = fan_out(history, 2)
    finish(history, later["a"])
    assert row(history).failing
    finish(history, later["b"])
    assert not row(history).failing
    assert row(history).succeeded_at_us == FIRST + S


def test_a_failure_is_made_up_for_by_the_same_member_only() -> None:
    history = on_each("ab", deadlines={"finish_within_s": 600})
    made = fan_out(history)
    finish(history, made["b"], "failed")
    finish(history, made["a"])
    later = fan_out(history, 2)
    finish(history, later["a"])
    assert row(history).unmet_us == FIRST
    finish(history, later["b"])
    assert row(history).unmet_us is None


def test_by_hand_it_runs_on_all_or_on_one() -> None:
    history = on_each()
    value = history.must(Start(FIRST, "clean", key="k"))
    assert len(value["run_ids"]) == 3 and value["run_id"] == value["run_ids"][0]
    assert history.must(Start(FIRST, "clean", key="k")) == {"run_id": value["run_id"]}
    for run in runs(history).values():
        if run.member != "c":
            finish(history, run)
    value = history.must(Start(FIRST + S, "clean"))
    assert (len(value["run_ids"]), value["busy"]) == (2, ["c"])
    assert history.do(Start(FIRST + S, "clean")).code == "overlap"
    for run in runs(history).values():
        finish(history, run)
    [run_id] = history.must(Start(FIRST + 2 * S, "clean", member="b"))["run_ids"]
    assert run_id.endswith("@b")
    assert history.do(Start(FIRST, "clean", member="z")).code == "invalid"
    history.put("other")
    assert history.do(Start(FIRST, "other", member="a")).code == "invalid"


def test_a_start_by_hand_with_the_tasks_after_it() -> None:
    history = on_each("ab")
    history.put("report", after="clean")
    history.must(Start(FIRST, "clean", downstream=True))
    for run in runs(history).values():
        assert "report" not in history.state.runs_of
        finish(history, run)
    [report] = runs(history, "report").values()
    assert report.generation
    finish(history, report)
    assert not history.state.reruns and not history.state.each["clean"].rounds


def test_runs_end_when_the_field_changes_and_when_the_task_is_deleted() -> None:
    history = on_each("ab")
    made = fan_out(history)
    assert take(history, made["a"]) == "ok"
    history.put("clean", schedule=EVERY)
    assert "clean" not in history.state.each
    assert ended(history) == [("b", "cancelled")]
    finish(history, made["a"])
    history.put("clean", schedule=EVERY, each=True)
    fan_out(history, 2)
    history.must(DeleteTask(FIRST, "clean"))
    assert not history.state.each and not history.state.runs


def test_it_is_refused_while_an_earlier_version_leads() -> None:
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, RULES - 1))
    refusal = history.do(PutTasks(NOW_US, (Put(packed("clean", each=True)),)))
    assert (refusal.code, refusal.detail) == ("invalid", "clean: `each` needs a leader of this version")


def test_a_draining_member_keeps_its_run_and_a_cancelled_run_ends() -> None:
    history = on_each("ab")
    history.must(Drain(NOW_US, "b", on=True))
    made = fan_out(history)
    assert take(history, made["b"]) == "not-up"
    history.must(Cancel(FIRST, made["b"].run_id))
    assert ended(history) == [("b", "cancelled")]


def test_each_run_counts_in_pools_and_waits_for_itself_while_its_member_is_up() -> None:
    history = on_each()
    history.must(ChangeSettings(NOW_US, {"pools": {"disk": 2}}))
    history.put("clean", schedule=EVERY, each=True, uses={"disk": 1})
    down(history, "c", NOW_US)
    made = fan_out(history)
    assert [one.run_id for one in history.state.pools["disk"].queue] == [made["a"].run_id, made["b"].run_id]
    assert (take(history, made["a"]), take(history, made["b"])) == ("ok", "ok")
    history.back("c")
    assert [one.run_id for one in history.state.pools["disk"].queue] == [made["c"].run_id]
    assert take(history, made["c"]) == "pool"
    later = fan_out(history, 2)
    assert later["c"].run_id == made["c"].run_id, "what a pool holds up is not missed for it"
    finish(history, made["a"])
    assert "clean" in history.last.touched
    assert take(history, made["c"]) == "ok"
    assert history.state.pools["disk"].used == 2
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state


def test_it_is_not_backfilled() -> None:
    history = on_each("ab")
    start = StartBackfill(FIRST + 600 * S, "clean", FIRST, FIRST + 300 * S, 5)
    assert "runs on each member" in history.do(start).detail
    history.put("first", schedule=EVERY)
    history.put("clean", after="first", each=True)
    start = StartBackfill(FIRST + 600 * S, "first", FIRST, FIRST + 300 * S, 5, downstream=True)
    assert "clean runs on each member" in history.do(start).detail


def test_a_run_that_is_lost_with_a_removed_member_makes_no_other_member_fail() -> None:
    history = on_each("ab", failover={"resume": "abandon"})
    made = fan_out(history)
    assert take(history, made["b"]) == "ok"
    history.must(RemoveMember(FIRST, "b"))
    down(history, "b")
    assert ended(history) == [("b", "abandoned")]
    assert not row(history).failing
    assert [part.member for part in history.state.each["clean"].parts] == ["a"]


def test_notices_name_the_member() -> None:
    history = on_each("ab", deadlines={"start_within_s": 30})
    history.must(PutChannel(NOW_US, "ops", hook().pack()))
    made = fan_out(history)
    finish(history, made["a"], "failed")
    finish(history, fan_out(history, 2)["a"])
    due_us = FIRST + 60 * S
    history.must(Breached(due_us + 30 * S, "clean", "start_within", due_us))
    assert [one.text for one in history.state.channels["ops"].notices] == [
        "clean on a failed, after 1 attempt",
        "clean on a succeeded again",
        "clean is late on b: what was due at 2024-10-04T00:02:00Z has not begun in time (start_within)",
    ]
    assert take(history, runs(history)["b"]) == "ok"
    held = runs(history)["b"]
    history.must(Began(due_us, held.run_id, held.token))
    assert not row(history).breaches


def test_it_comes_back_from_a_saved_cluster() -> None:
    old, new, earlier = on_each(), on_each("a"), cluster("a")
    new.must(DeleteTask(NOW_US, "clean"))
    saved = read(lines(old.state, NOW_US))
    new.must(put_back(saved, kept(saved)))
    assert "clean" in new.state.each
    assert sorted(fan_out(new)) == ["a"]
    assert "needs a leader of this version" in earlier.do(put_back(saved, kept(saved))).detail
