"""How runs end is counted and timed, by all members alike."""

from dataclasses import replace

import pytest

from node.state.attempts import Began, Cancel, Finish
from node.state.codec import from_pieces, snapshot_pieces
from node.state.members import MarkDown, TakeLead
from node.state.occurrences import Start
from node.state.registry import DeleteTask
from node.state.run_times import RULES_TOOK
from node.state.snapshot import records
from node.state.value import COUNTED, RULES, Run
from tests.unit.node.state.given import NOW_US, History, cluster

S = 1_000_000


def counting(*members: str) -> History:
    history = cluster(*members)
    history.must(TakeLead(NOW_US, members[0], 1, RULES))
    return history


def run_once(history: History, end: str, at_us: int, took_us: int = 5 * S) -> Run:
    run_id = history.must(Start(at_us, "a"))["run_id"]
    run = history.claim("a", history.state.runs[run_id].fire_at_us, run_id=run_id)
    history.must(Began(at_us, run_id, run.token))
    history.must(Finish(at_us + took_us, run_id, run.token, end))  # type: ignore[arg-type]
    return run


def counts(endings: tuple[int, ...]) -> dict[str, int]:
    return {state: count for state, count in zip(COUNTED, endings, strict=True) if count}


def test_endings_are_counted_for_the_task_and_for_all() -> None:
    history = counting("a", "b")
    history.put("a", retry={"attempts": 1})
    run_once(history, "succeeded", NOW_US + 10 * S)
    run_once(history, "failed", NOW_US + 20 * S, took_us=7 * S)
    run_once(history, "timed_out", NOW_US + 30 * S, took_us=-1)
    row = history.state.tasks["a"]
    assert counts(row.endings) == {"succeeded": 1, "failed": 1, "timed_out": 1}
    assert row.succeeded_at_us == NOW_US + 15 * S
    assert row.last is not None
    assert (row.last.state, row.last.took_us) == ("timed_out", 0), "a clock was put back meanwhile"

    run_id = history.must(Start(NOW_US + 40 * S, "a"))["run_id"]
    history.must(Cancel(NOW_US + 40 * S, run_id, "by hand"))
    last = history.state.tasks["a"].last
    assert last is not None
    assert (last.state, last.took_us) == ("cancelled", None), "no attempt of it began"

    history.must(DeleteTask(NOW_US + 50 * S, "a"))
    assert counts(history.state.endings) == {"succeeded": 1, "failed": 1, "timed_out": 1, "cancelled": 1}


@pytest.mark.parametrize(("rules", "took_us"), [(RULES, 65 * S), (RULES_TOOK - 1, 5 * S)])
def test_a_run_takes_from_its_first_claim_to_its_end_and_by_earlier_rules_as_its_last_attempt(
    rules: int, took_us: int
) -> None:
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "a", 1, rules))
    history.put("a")
    run_id = history.must(Start(NOW_US, "a"))["run_id"]
    run = history.claim("a", history.state.runs[run_id].fire_at_us, run_id=run_id)
    claimed_us = run.attempts[0].claimed_at_us
    history.must(Began(claimed_us + S, run_id, run.token))
    history.must(Finish(claimed_us + 50 * S, run_id, run.token, "handed_over"))
    run = history.claim("a", run.fire_at_us, member="b", run_id=run_id)
    history.must(Began(claimed_us + 60 * S, run_id, run.token))
    history.must(Finish(claimed_us + 65 * S, run_id, run.token, "succeeded"))
    last = history.state.tasks["a"].last
    assert last is not None
    assert last.took_us == took_us


def test_an_attempt_that_is_retried_or_lost_ends_no_run() -> None:
    history = counting("a", "b")
    history.put("a", retry={"attempts": 2}, failover={"max": 1})
    run = run_once(history, "failed", NOW_US)
    assert counts(history.state.endings) == {}
    history.claim("a", run.fire_at_us, run_id=run.run_id)
    history.must(MarkDown(NOW_US + 99 * S, "a", 1, "gone", 1))
    assert counts(history.state.endings) == {"abandoned": 1}


def test_what_counts_is_in_snapshots_and_old_ones_can_be_read() -> None:
    history = counting("a")
    history.put("a")
    run_once(history, "succeeded", NOW_US)
    again = from_pieces(snapshot_pieces(history.state))
    assert (again.endings, again.tasks["a"]) == (history.state.endings, history.state.tasks["a"])
    not_yet = replace(history.state, endings=())
    assert len(next(records(not_yet))) == 5, "as versions before wrote it"
    assert from_pieces(snapshot_pieces(not_yet)).endings == ()


def test_nothing_is_counted_before_a_version_that_counts_leads() -> None:
    # Members start from snapshots of their own, written at different entries by a version that did not count: each
    # applies what came after its own. They must not come to different counts.
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "a", 1))
    history.put("a")
    run_once(history, "succeeded", NOW_US)
    row = history.state.tasks["a"]
    assert (history.state.endings, row.endings, row.succeeded_at_us) == ((), (), None)
    history.must(TakeLead(NOW_US, "b", 2, RULES))
    run_once(history, "succeeded", NOW_US + S)
    assert counts(history.state.endings) == counts(history.state.tasks["a"].endings) == {"succeeded": 1}
    history.must(TakeLead(NOW_US, "a", 3, RULES))
    assert counts(history.state.endings) == {"succeeded": 1}
