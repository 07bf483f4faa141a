"""What a client asks a kind to do beside the task's work: it blocks nothing, and counts for nothing."""

import pytest

from node.state.attempts import Began, Finish
from node.state.codec import from_pieces, snapshot_pieces
from node.state.members import MarkDown, TakeLead
from node.state.occurrences import Start
from node.state.registry import DeleteTask
from node.state.value import Run
from tests.unit.node.state.given import NOW_US, History, cluster

FIRST_US = NOW_US + 1_000_000
SECOND_US = NOW_US + 2_000_000
EVERY = {"every_s": 1}


def asked(history: History, at_us: int = FIRST_US, key: str | None = None) -> Run:
    run_id = history.must(Start(at_us, "t", key=key, action="preview", args={"rows": 3}))["run_id"]
    return history.state.runs[run_id]


@pytest.mark.parametrize("overlap", ["skip", "queue", "replace", "allow"])
def test_an_action_runs_beside_a_run_and_a_run_beside_an_action(overlap: str) -> None:
    history = cluster("a", "b")
    history.put("t", schedule=EVERY, overlap=overlap)
    run = history.claim("t", FIRST_US)
    action = asked(history)
    assert (action.action, action.args, action.trigger) == ("preview", {"rows": 3}, "manual")
    assert history.state.runs[run.run_id].cancelling is None, "it replaces nothing"
    held = history.claim("t", FIRST_US, "b", action.run_id)
    assert held.token > run.token
    history.must(Finish(FIRST_US, run.run_id, run.token, "succeeded"))
    assert history.claim("t", SECOND_US).state == "claimed"


def test_what_an_action_has_done_says_nothing_about_the_task() -> None:
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, rules=1))
    history.put("t", schedule=EVERY)
    action = history.claim("t", FIRST_US, run_id=asked(history).run_id)
    history.must(Finish(FIRST_US, action.run_id, action.token, "succeeded", {"rows": []}))
    row = history.state.tasks["t"]
    assert (row.last, row.succeeded_at_us, row.endings, sum(history.state.endings)) == (None, None, (), 0)
    assert history.ended[-1].result == {"rows": []}
    assert history.state.runs_bytes == 0


@pytest.mark.parametrize("end", ["failed", "away"])
def test_an_action_that_fails_is_not_tried_again(end: str) -> None:
    history = cluster("a")
    history.put("t")
    action = history.claim("t", FIRST_US, run_id=asked(history).run_id)
    history.must(Began(FIRST_US, action.run_id, action.token))
    history.must(Finish(FIRST_US, action.run_id, action.token, end, error="no"))  # type: ignore[arg-type]
    assert (history.ended[-1].state, history.ended[-1].error) == ("failed", "no")


def test_an_action_whose_member_is_lost_goes_to_another_one() -> None:
    history = cluster("a", "b")
    history.put("t")
    action = history.claim("t", FIRST_US, "b", asked(history).run_id)
    history.must(MarkDown(FIRST_US, "b", 1, "stopped", 0))
    again = history.claim("t", FIRST_US, "a", action.run_id)
    assert (again.action, again.token > action.token) == ("preview", True)


def test_the_same_key_gives_the_same_action_and_a_deleted_task_has_none() -> None:
    history = cluster("a")
    history.put("t")
    first = asked(history, key="k")
    assert asked(history, SECOND_US, key="k").run_id == first.run_id
    history.must(DeleteTask(SECOND_US, "t"))
    assert not history.state.runs
    assert history.do(Start(SECOND_US, "t", action="preview")).code == "no-such-task"


def test_an_action_survives_a_snapshot() -> None:
    history = cluster("a")
    history.put("t")
    asked(history)
    assert from_pieces(snapshot_pieces(history.state)) == history.state


def test_actions_are_bounded_as_runs_are() -> None:
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, rules=1))
    history.put("t", overlap="replace")
    large = {"text": "x" * 65_536}
    assert history.do(Start(FIRST_US, "t", action="preview", args=large)).code == "too-large"
    assert history.do(Start(FIRST_US, "t", action="a" * 65)).code == "invalid"
    for number in range(1000):
        history.must(Start(FIRST_US + number, "t", action="preview"))
    assert history.do(Start(SECOND_US, "t", action="preview")).code == "full"
