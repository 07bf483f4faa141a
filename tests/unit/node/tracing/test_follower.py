"""Which spans and events follow from changes of the state, and which member sends them."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from node.replication.state_machine import StateChange
from node.state.attempts import Began, Cancel, Checkpoint, Finish
from node.state.claims import Claim
from node.state.entries import Entry
from node.state.members import MarkDown, TakeLead
from node.state.occurrences import Enqueue, SkipOccurrences, Start
from node.state.settings import ChangeSettings
from node.state.value import RULES, Run
from node.tracing.follower import RunFollower
from node.tracing.lineage import LineageRecord
from node.tracing.spans import Progress, SpanRecord, span_id_of, trace_id_of, traceparent_of
from tests.unit.node.state.given import NOW_US, History, cluster, joining

S = 1_000_000
MINUTE = 60 * S
EVERY: dict[str, Any] = {"schedule": {"every_s": 60}, "retry": {"attempts": 1}}
DUE_US = NOW_US + MINUTE


@dataclass
class Followed:
    """A cluster of `a` (which leads) and `b`, and what each of them sends of each change."""

    history: History = field(default_factory=lambda: cluster("a", "b"))
    spans: list[tuple[str, SpanRecord]] = field(default_factory=list)
    events: list[tuple[str, LineageRecord]] = field(default_factory=list)
    late_us: int = 5_000

    def __post_init__(self) -> None:
        self.members = {name: RunFollower(name, lambda run_id: Progress(2, 4, "rows")) for name in ("a", "b")}
        self.do(TakeLead(NOW_US, "a", 1, RULES))

    def do(self, entry: Entry) -> dict[str, Any]:
        before = self.history.state
        value = self.history.must(entry)
        last = self.history.last
        ended = tuple((last.state.index, each) for each in last.ended)
        change = StateChange(before, last.state, last.touched, ended)
        for name, follower in self.members.items():
            spans, events = follower.follow([change], entry.at_us + self.late_us)
            self.spans += [(name, span) for span in spans]
            self.events += [(name, event) for event in events]
        return value

    def claim(self, task: str, at_us: int, member: str, run_id: str | None = None, fire_at_us: int = DUE_US) -> Run:
        incarnation = self.history.state.members[member].incarnation
        value = self.do(Claim(at_us, task, fire_at_us, member, incarnation, run_id))
        return self.history.state.runs[value["run_id"]]

    def told(self) -> list[tuple[str, str]]:
        """Who has sent which spans since the last call, by name."""
        found = [(name, span.name) for name, span in self.spans]
        self.spans.clear()
        return found

    def named(self, name: str) -> SpanRecord:
        [span] = [span for _, span in self.spans if span.name == name]
        return span


def test_a_run_is_told_by_the_member_that_holds_it_and_each_span_has_its_times() -> None:
    followed = Followed()
    followed.history.put("t", **EVERY)
    run = followed.claim("t", DUE_US + 2 * S, "b")
    followed.do(Began(DUE_US + 3 * S, run.run_id, run.token))
    followed.do(Finish(DUE_US + 9 * S, run.run_id, run.token, "succeeded"))
    late_us = followed.late_us
    times = {span.name: (span.start_us - DUE_US, span.end_us - DUE_US) for _, span in followed.spans}
    assert times == {
        "wait": (0, 2 * S),
        "claim": (2 * S, 2 * S + late_us),
        "attempt": (2 * S, 9 * S),
        "launch": (2 * S + late_us, 3 * S),
        "finish": (9 * S, 9 * S + late_us),
        "run t": (0, 9 * S + late_us),
    }
    assert {name for name, _ in followed.spans} == {"b"}
    assert [(name, event.event) for name, event in followed.events] == [("b", "START"), ("b", "COMPLETE")]
    root, attempt = followed.named("run t"), followed.named("attempt")
    assert root.parent_id is None
    assert {followed.named(name).parent_id for name in ("wait", "attempt", "finish")} == {root.span_id}
    assert {followed.named(name).parent_id for name in ("claim", "launch")} == {attempt.span_id}
    assert {span.trace_id for _, span in followed.spans} == {trace_id_of(run.run_id, "cluster")}


def test_the_leader_tells_of_the_attempt_of_a_lost_member_and_the_next_member_ends_the_run() -> None:
    followed = Followed()
    followed.history.put("t", **EVERY)
    run = followed.claim("t", DUE_US, "b")
    followed.do(Began(DUE_US, run.run_id, run.token))
    followed.told()
    followed.do(MarkDown(DUE_US + S, "b", 1, "gone", 1))
    assert followed.spans[0][1].error == "b was lost"
    assert followed.told() == [("a", "attempt"), ("a", "launch")]
    again = followed.claim("t", DUE_US + 9 * S, "a", run.run_id)
    assert followed.told() == [("a", "wait after a loss"), ("a", "claim")]
    followed.do(Finish(DUE_US + 10 * S, run.run_id, again.token, "succeeded"))
    assert followed.told() == [("a", "attempt"), ("a", "finish"), ("a", "run t")]
    assert [event.event for _, event in followed.events] == ["START", "RUNNING", "COMPLETE"]


def test_the_leader_ends_a_run_whose_last_holder_is_lost() -> None:
    followed = Followed()
    followed.history.put("t", failover={"max": 1}, **EVERY)
    run = followed.claim("t", DUE_US, "b")
    followed.do(Cancel(DUE_US, run.run_id))
    followed.told()
    followed.do(MarkDown(DUE_US + S, "b", 1, "gone", 1))
    assert followed.told() == [("a", "attempt"), ("a", "finish"), ("a", "run t")]
    assert followed.events[-1][1].event == "ABORT"


def test_a_member_that_joins_anew_leaves_its_lost_attempts_to_the_leader() -> None:
    followed = Followed()
    followed.history.put("t", **EVERY)
    run = followed.claim("t", DUE_US, "b")
    followed.told()
    followed.do(joining("b", DUE_US + S, after=1))
    assert followed.told() == [("a", "attempt")]
    assert followed.history.state.runs[run.run_id].state == "orphaned"


@pytest.mark.parametrize(("end", "error", "event"), [("failed", "no", "FAIL"), ("timed_out", None, "FAIL")])
def test_failures_are_errors_of_the_attempt_and_of_the_run(end: Any, error: str | None, event: str) -> None:
    followed = Followed()
    followed.history.put("t", **EVERY)
    run = followed.claim("t", DUE_US, "b")
    followed.do(Finish(DUE_US + S, run.run_id, run.token, end, error=error))
    for name in ("attempt", "run t"):
        span = followed.named(name)
        assert (span.error, span.attributes["error.type"]) == (error or end, end)
    assert (followed.events[-1][1].event, followed.events[-1][1].error) == (event, error or "it failed")


def test_a_retry_waits_and_a_claim_that_is_given_back_is_no_error() -> None:
    followed = Followed()
    followed.history.put("t", schedule={"every_s": 60}, retry={"attempts": 2, "backoff_s": 3})
    run = followed.claim("t", DUE_US, "b")
    followed.do(Finish(DUE_US + S, run.run_id, run.token, "failed", error="no"))
    assert followed.named("attempt").error == "no"
    followed.told()
    again = followed.claim("t", DUE_US + 5 * S, "a", run.run_id)
    waited = followed.named("wait for a retry")
    assert (waited.start_us, waited.end_us) == (DUE_US + S, DUE_US + 5 * S)
    followed.do(Finish(DUE_US + 6 * S, run.run_id, again.token, "not_started", error="no room"))
    attempt = followed.named("attempt")
    assert (attempt.error, attempt.attributes["rota.note"]) == (None, "no room")


def test_checkpoints_are_spans_of_a_second_at_least() -> None:
    followed = Followed()
    followed.history.put("t", **EVERY)
    run = followed.claim("t", DUE_US, "b")
    followed.do(Began(DUE_US, run.run_id, run.token))
    followed.told()
    for tenths in (4, 8, 12, 16, 30):
        followed.do(Checkpoint(DUE_US + tenths * S // 10, run.run_id, run.token, bytes([tenths])))
    found = [(span.start_us - DUE_US, span.end_us - DUE_US, span.attributes) for _, span in followed.spans]
    late_us = followed.late_us
    progress = {"rota.progress.done": 2, "rota.progress.unit": "rows", "rota.progress.total": 4}
    assert found == [
        (0, 12 * S // 10 + late_us, {"rota.checkpoints": 3, **progress}),
        (12 * S // 10 + late_us, 3 * S + late_us, {"rota.checkpoints": 2, **progress}),
    ]
    assert len({span.span_id for _, span in followed.spans}) == 2


def test_what_nobody_claimed_is_not_told() -> None:
    followed = Followed()
    followed.history.put("t", **EVERY)
    followed.do(SkipOccurrences(DUE_US, "t", "missed", (DUE_US,)))
    run_id = followed.do(Start(DUE_US, "t"))["run_id"]
    followed.do(Cancel(DUE_US, run_id))
    action = followed.do(Start(DUE_US, "t", action="preview"))["run_id"]
    run = followed.claim("t", DUE_US, "b", action)
    followed.do(Finish(DUE_US, action, run.token, "succeeded"))
    assert (followed.told(), followed.events) == ([], [])


def test_a_run_that_came_after_others_waits_for_them_from_its_time_on_and_follows_from_them() -> None:
    followed = Followed()
    followed.history.put("first", **EVERY)
    followed.history.put("second", after=["first"], retry={"attempts": 1})
    first = followed.claim("first", DUE_US, "a")
    followed.do(Finish(DUE_US + 4 * S, first.run_id, first.token, "succeeded"))
    [run_id] = followed.history.state.runs_of["second"]
    followed.told()
    followed.claim("second", DUE_US + 6 * S, "b", run_id)
    waits = [(span.name, span.start_us - DUE_US, span.end_us - DUE_US) for _, span in followed.spans[:2]]
    assert waits == [("wait for parents", 0, 4 * S), ("wait", 4 * S, 6 * S)]
    parent = (trace_id_of(first.run_id, "cluster"), span_id_of(first.run_id, "cluster", "run"))
    assert followed.named("claim").links == (parent,)
    assert followed.events[-1][1].parents == (("first", first.run_id),)


def test_a_run_that_waited_for_a_pool_says_for_which() -> None:
    followed = Followed()
    followed.do(ChangeSettings(NOW_US, {"pools": {"dumps": 1}}))
    for name in ("one", "two"):
        followed.history.put(name, uses={"dumps": 1}, **EVERY)
    one = followed.claim("one", DUE_US, "a")
    followed.do(Enqueue(DUE_US, "two", (DUE_US,)))
    [run_id] = followed.history.state.runs_of["two"]
    followed.do(Finish(DUE_US + 3 * S, one.run_id, one.token, "succeeded"))
    followed.told()
    followed.claim("two", DUE_US + 4 * S, "b", run_id)
    waited = followed.named("wait for a pool")
    assert (waited.end_us - waited.start_us, waited.attributes) == (4 * S, {"rota.pools": ("dumps",)})


def test_nothing_is_told_of_a_snapshot_and_what_is_held_goes_on() -> None:
    followed = Followed()
    followed.history.put("t", **EVERY)
    run = followed.claim("t", DUE_US, "b")
    followed.told()
    state = followed.history.state
    for follower in followed.members.values():
        assert follower.follow([StateChange(state, state, None)], DUE_US) == ([], [])
    followed.do(Began(DUE_US + S, run.run_id, run.token))
    followed.do(Finish(DUE_US + S, run.run_id, run.token, "succeeded"))
    assert followed.named("launch").start_us == DUE_US + followed.late_us


def test_ids_are_functions_of_the_run_and_a_traceparent_names_the_attempt() -> None:
    assert trace_id_of("t@1", "c") == trace_id_of("t@1", "c") != trace_id_of("t@1", "d")
    trace_id, span_id = trace_id_of("t@1", "c"), span_id_of("t@1", "c", "attempt", 7)
    assert traceparent_of("t@1", "c", 7) == f"00-{trace_id:032x}-{span_id:016x}-01"
    assert traceparent_of("t@1", "c", 7, sampled=False).endswith("-00")
