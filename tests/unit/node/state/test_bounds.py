"""What the replicated state holds at the most, and that a log of before is applied as it was."""

from dataclasses import replace

import pytest
from immutables import Map

from node.duty.decide import needs
from node.state import attempts, bounds, occurrences
from node.state.attempts import Cancel, Checkpoint, Finish
from node.state.claims import Claim
from node.state.codec import from_pieces, snapshot_pieces
from node.state.members import TakeLead
from node.state.occurrences import SkipOccurrences, Start
from node.state.registry import DeleteTask, Put, PutTasks
from node.state.value import RULES
from tests.unit.node.state.given import NOW_US, History, cluster, packed

S_US = 1_000_000
LATER_US = NOW_US + S_US
EVERY = {"every_s": 1}


def ruled() -> History:
    """A cluster whose leader is of this build."""
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    return history


def test_the_active_runs_of_a_task_are_bounded_and_so_is_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ACTIVE_MAX", 5)
    history = ruled()
    history.put("t", schedule={"every_s": 1}, overlap="allow")
    for second in range(1, 6):
        history.claim("t", LATER_US + second * S_US)
    refused = history.do(Claim(LATER_US + 6 * S_US, "t", LATER_US + 6 * S_US, "a", 1))
    assert (refused.code, "t has 5 active runs" in refused.detail) == ("full", True)
    assert history.do(Start(LATER_US, "t")).code == "full"
    asked = needs(history.state, "t", history.state.members["a"], LATER_US + 6 * S_US)
    assert not asked.wishes
    [entry] = asked.entries
    assert isinstance(entry, SkipOccurrences)
    history.must(entry)
    assert "t has 5 active runs" in (history.ended[-1].error or "")


def test_what_runs_may_hold_is_bounded_for_a_task_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "TASK_RUNS_BYTES_MAX", 300_000)
    monkeypatch.setattr(bounds, "RUNS_BYTES_MAX", 400_000)
    monkeypatch.setattr(attempts, "TASK_RUNS_BYTES_MAX", 300_000)
    history = ruled()
    for name in ("t", "u", "v"):
        history.put(name, overlap="allow", schedule=EVERY)
    large = {"x": "y" * 60_000}
    assert history.do(Start(LATER_US, "t", {"x": "y" * 70_000})).code == "too-large"
    for _ in range(4):
        history.must(Start(LATER_US, "t", large))
    assert history.do(Start(LATER_US, "t", large)).detail.startswith("the active runs of t hold")
    history.must(Start(LATER_US, "u", large))
    history.must(Start(LATER_US, "u", large))
    assert history.do(Start(LATER_US, "u", large)).detail.startswith("the active runs of all tasks hold")
    assert history.do(Start(LATER_US, "v", large)).code == "full"
    run = history.claim("v", LATER_US)  # the one run that it needs
    first = history.claim("t", LATER_US, run_id=min(history.state.runs_of["t"]))
    second = history.claim("t", LATER_US, run_id=max(history.state.runs_of["t"]))
    history.must(Checkpoint(LATER_US, first.run_id, first.token, bytes(50_000)))
    assert history.do(Checkpoint(LATER_US, second.run_id, second.token, bytes(65_000))).code == "full"
    history.must(Checkpoint(LATER_US, run.run_id, run.token, bytes(65_000)))
    assert from_pieces(snapshot_pieces(history.state)) == history.state
    for run_id in list(history.state.runs):
        history.must(Cancel(LATER_US, run_id))
        if (held := history.state.runs.get(run_id)) is not None:
            history.must(Finish(LATER_US, run_id, held.token, "cancelled"))
    assert history.state.runs_bytes == 0
    history.must(Start(LATER_US, "u", large))


def test_tasks_and_their_definitions_are_bounded_and_can_be_made_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "TASKS_MAX", 3)
    monkeypatch.setattr(bounds, "SPECS_BYTES_MAX", 10_000)
    history = ruled()
    for name in ("t", "u", "v"):
        history.put(name)
    assert history.do(PutTasks(NOW_US, (Put(packed("w")),))).code == "full"
    history.put("t", params={"x": "y" * 9_000})
    large = PutTasks(NOW_US, (Put(packed("u", params={"x": "y" * 2_000})),))
    assert history.do(large).code == "full"
    history.put("t", params={"x": "y" * 8_000})
    history.must(DeleteTask(NOW_US, "v"))
    assert history.state.specs_bytes == sum(len(row.spec_packed) for row in history.state.tasks.values())
    assert history.state == from_pieces(snapshot_pieces(history.state))


def test_what_is_remembered_of_starts_by_hand_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occurrences, "REQUESTS_BYTES_MAX", 2_000)
    history = ruled()
    for name in ("t", "u"):
        history.put(name, overlap="allow")
    for number in range(20):
        history.must(Start(LATER_US, "t", key=f"{number}" * 100))
        assert history.state.requests_bytes < 2_300
    assert len(history.state.tasks["t"].requests) < 20
    known = history.must(Start(LATER_US, "t", key="19" * 100))["run_id"]
    assert history.must(Start(LATER_US, "t", key="19" * 100)) == {"run_id": known}
    history.must(DeleteTask(LATER_US, "t"))
    assert history.state.requests_bytes == 0


def test_a_log_of_an_earlier_build_is_applied_by_the_rules_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a snapshot of that build holds, and what its log comes to here, must be the same."""
    monkeypatch.setattr(bounds, "ACTIVE_MAX", 1)
    monkeypatch.setattr(bounds, "TASKS_MAX", 1)
    history = cluster("a")
    history.put("t", overlap="allow", schedule={"every_s": 1})
    history.put("u")
    history.must(Start(LATER_US, "t", {"x": "y" * 70_000}))
    history.claim("t", LATER_US)
    assert history.state.tasks["t"].series is None
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    assert history.do(Start(LATER_US, "t")).code == "full"
    history.must(TakeLead(NOW_US, "a", 2))
    assert history.do(Start(LATER_US, "t")).code == "full", "rules are not taken back"
    of_before = {name: replace(run, params_bytes=0) for name, run in history.state.runs.items()}
    assert from_pieces(snapshot_pieces(replace(history.state, runs=Map(of_before)))) == history.state
