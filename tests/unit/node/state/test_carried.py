"""Params by occurrence: what a claim carries and a run keeps, and what is copied of parents' results until then."""

from typing import Any

import pytest

from node.duty.backfills import next_time_us
from node.duty.decide import needs
from node.duty.occurrence_params import NOT_MADE, made_params, times_of
from node.state.attempts import Finish
from node.state.awaiting import AwaitParents
from node.state.backfills import AdvanceBackfill, StartBackfill
from node.state.bounds import PARAMS_BYTES_MAX
from node.state.carried import CARRIED_MAX, carried_bytes
from node.state.claims import Claim
from node.state.codec import from_pieces, snapshot_pieces
from node.state.members import MarkDown, TakeLead
from node.state.occurrences import Enqueue, Start
from node.state.registry import DeleteTask, Pause, Put, PutTasks
from node.state.value import RULES, Run
from tasks.definition.template import FIELDS_BYTES_MAX
from tests.unit.node.state.given import NOW_US, History, cluster, packed
from tests.unit.node.state.test_joins import CRON, MINUTE, ONCE, S, after, outcome, pass_all, waiting

DAY = {"argv": ["load", "{{ window_start | '%H:%M' }}-{{ window_end | '%H:%M' }}"]}
ROWS = {"argv": ["check", "{{ after.a.rows | text }}"], "n": "{{ after.a.rows }}"}


def alone(**fields: Any) -> History:
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    given: dict[str, Any] = {"schedule": CRON, "template": True, "params": DAY, "overlap": "allow"}
    history.put("t", **(given | fields))
    return history


def wish(history: History, task: str, minute: int, member: str = "a") -> Claim:
    """The claim that the owner proposes at this minute."""
    found = needs(history.state, task, history.state.members[member], NOW_US + minute * MINUTE)
    return found.wishes[0].claim


def begun(history: History, task: str, minute: int) -> Run:
    value = history.must(wish(history, task, minute))
    return history.state.runs[value["run_id"]]


def root(history: History, task: str, minute: int) -> Run:
    return history.claim(task, NOW_US + minute * MINUTE)


def end(history: History, run: Run, result: dict[str, Any] | None = None, at_us: int = NOW_US) -> None:
    history.must(Finish(at_us, run.run_id, run.token, "succeeded", result))


def again(history: History) -> None:
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state


def test_the_first_claim_carries_the_params_and_the_run_keeps_them() -> None:
    history = alone(retry={"attempts": 3, "backoff_s": 0})
    run = begun(history, "t", 1)
    assert run.params == {"argv": ["load", "00:00-00:01"]}
    assert run.params_bytes and history.state.runs_bytes
    again(history)
    history.put("t", schedule=CRON, template=True, params={"argv": ["other"]}, overlap="allow")
    history.must(Finish(NOW_US, run.run_id, run.token, "failed"))
    retry = wish(history, "t", 1)
    assert (retry.run_id, retry.params) == (run.run_id, None), "what is made once is not made again"
    assert history.do(Claim(**{**as_fields(retry), "params": {"argv": ["forged"]}, "fault": "forged"})).ok
    assert history.state.runs[run.run_id].params == run.params
    history.must(MarkDown(NOW_US + 60 * MINUTE, "a", 1, "silent", 1))
    assert history.state.runs[run.run_id].params == run.params, "nor by a failover"


def as_fields(claim: Claim) -> dict[str, Any]:
    return {name: getattr(claim, name) for name in Claim.__dataclass_fields__}


def test_a_claim_without_the_params_is_refused_and_so_are_too_many() -> None:
    history = alone()
    bare = Claim(NOW_US + MINUTE, "t", NOW_US + MINUTE, "a", 1)
    assert history.do(bare).code == "stale"
    large = {"argv": ["x" * PARAMS_BYTES_MAX]}
    assert history.do(Claim(**{**as_fields(bare), "params": large})).code == "stale", "of another version"
    assert history.do(Claim(**{**as_fields(bare), "params": large, "version": 1})).code == "too-large"
    assert not history.state.runs and history.state.tasks["t"].through_us == NOW_US
    history.put("plain", schedule=CRON)
    value = history.must(Claim(**{**as_fields(bare), "task": "plain", "params": {"argv": ["forged"]}, "fault": "no"}))
    assert history.state.runs[value["run_id"]].params is None, "a task without a template has no params of its own"


def test_params_that_cannot_be_made_fail_the_run_by_name() -> None:
    history = alone()
    history.must(Start(NOW_US + S, "t"))
    claim = wish(history, "t", 0)
    assert claim.params is None
    value = history.must(claim)
    assert value["state"] == "failed" and not history.state.runs
    state, error = outcome(history, "t") or ("", "")
    assert state == "failed" and error is not None
    assert error.startswith("params.argv[1]: {{ window_start | '%H:%M' }} has no value, because this occurrence has no")


def test_params_that_would_be_too_large_fail_the_run() -> None:
    history = alone(params={"argv": ["{{ nominal }}" * 900 + "x" * PARAMS_BYTES_MAX]})
    assert history.must(wish(history, "t", 1))["state"] == "failed"
    assert "65536 at most" in str(outcome(history, "t"))


def test_a_scheduled_run_keeps_its_nominal_time_where_another_has_taken_that_moment() -> None:
    history = alone(params={"at": "{{ nominal }}"}, overlap="queue")
    history.must(Start(NOW_US, "t", fire_at_us=NOW_US + MINUTE))
    history.must(Enqueue(NOW_US + MINUTE, "t", (NOW_US + MINUTE,)))
    history.must(Start(NOW_US + MINUTE, "t", fire_at_us=NOW_US + MINUTE))
    for run_id in history.state.runs_of["t"]:
        assert times_of(history.state, history.state.runs[run_id]).nominal_us == NOW_US + MINUTE
    run = history.state.runs[history.state.runs_of["t"][1]]
    assert (run.fire_at_us, run.nominal_us) == (NOW_US + MINUTE + 1, NOW_US + MINUTE)


def test_a_template_needs_a_leader_of_this_version() -> None:
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, RULES - 1))
    entry = PutTasks(NOW_US, (Put(packed("t", template=True, schedule=CRON)),))
    assert history.do(entry).detail == "t: `template` needs a leader of this version"
    history.must(TakeLead(NOW_US, "a", 2, RULES))
    assert history.do(entry).ok


def family(**child: Any) -> History:
    return after(a=[], b={"after": ["a"], "template": True, "params": ROWS} | child)


def test_fields_of_a_parents_result_are_put_into_the_childs_run() -> None:
    history = family()
    end(history, root(history, "a", 1), {"rows": 7, "other": "x" * 10_000})
    (run_id,) = history.state.runs_of["b"]
    assert history.state.runs[run_id].fields == {"a": {"rows": 7}}
    assert not history.state.carried
    again(history)
    run = begun(history, "b", 2)
    assert (run.params, run.fields) == ({"argv": ["check", "7"], "n": 7}, None)
    end(history, run)
    assert history.state.runs_bytes == 0


def test_they_are_kept_until_the_last_parent_has_ended() -> None:
    history = after(a=[], z=[], b={"after": ["a", "z"], "template": True, "params": ROWS})
    end(history, root(history, "a", 1), {"rows": 7})
    (kept,) = history.state.carried["b"]
    assert (kept.parent, kept.nominal_us, kept.why) == ("a", NOW_US + MINUTE, "")
    assert history.state.runs_bytes == carried_bytes(kept)
    again(history)
    end(history, root(history, "z", 1), {"rows": 9})
    assert not history.state.carried
    assert begun(history, "b", 2).params == {"argv": ["check", "7"], "n": 7}


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (None, "its params need {{ after.a.rows }}, and a has left no such field"),
        ({"lines": 7}, "its params need {{ after.a.rows }}, and a has left no such field"),
        ({"rows": "x" * FIELDS_BYTES_MAX}, f"{FIELDS_BYTES_MAX} at most are copied"),
    ],
)
def test_what_is_missing_or_too_much_fails_the_run_in_the_entry_in_which_it_is_due(result: Any, why: str) -> None:
    history = after(a=[], b={"after": ["a"], "template": True, "params": ROWS}, c=["b"])
    end(history, root(history, "a", 1), result)
    state, error = outcome(history, "b") or ("", "")
    assert state == "failed" and why in (error or "")
    assert history.state.tasks["b"].failing
    pass_all(history)
    assert outcome(history, "c") == ("upstream_failed", "b failed")
    assert not history.state.runs and not history.state.carried and history.state.runs_bytes == 0


def test_all_fields_together_have_a_limit() -> None:
    most = {"rows": "x" * (FIELDS_BYTES_MAX - 100)}
    params = {"argv": ["{{ after.a.rows }}{{ after.z.rows }}"]}
    history = after(a=[], z=[], b={"after": ["a", "z"], "template": True, "params": params})
    end(history, root(history, "a", 1), most)
    end(history, root(history, "z", 1), most)
    assert f"{FIELDS_BYTES_MAX} at most are copied" in str(outcome(history, "b"))


def test_what_no_run_will_take_is_dropped() -> None:
    both: dict[str, Any] = {"after": ["a", "z"], "template": True, "params": ROWS}
    for drop in ("pause", "change", "delete", "plain"):
        history = after(a=[], z=[], b=both)
        end(history, root(history, "a", 1), {"rows": 7})
        assert history.state.carried
        match drop:
            case "pause":
                history.must(Pause(NOW_US, "b", True))
            case "change":
                history.put("b", **(both | {"after": ["a"]}), overlap="allow", retry=ONCE)
            case "delete":
                history.must(DeleteTask(NOW_US, "b"))
            case "plain":
                history.put("b", after=["a", "z"], overlap="allow", retry=ONCE)
        assert (drop, dict(history.state.carried), history.state.runs_bytes) == (drop, {}, 0)


def test_reruns_have_fields_of_their_own() -> None:
    history = family()
    history.must(Start(NOW_US + S, "a", downstream=True))
    history.must(Start(NOW_US + S, "a", downstream=True))
    for rows in (1, 2):
        end(history, begun(history, "a", 0), {"rows": rows})
    runs = [history.state.runs[run_id] for run_id in history.state.runs_of["b"]]
    assert [run.fields for run in runs] == [{"a": {"rows": 1}}, {"a": {"rows": 2}}]
    assert not history.state.carried
    assert times_of(history.state, runs[0]).window_start_us is None


def test_a_child_without_a_schedule_has_the_window_of_its_root() -> None:
    history = after(a=[], b=["a"], c={"after": ["b"], "template": True, "params": DAY})
    end(history, root(history, "a", 1))
    end(history, begun(history, "b", 2))
    assert waiting(history, "c") == [1]
    assert begun(history, "c", 3).params == {"argv": ["load", "00:00-00:01"]}


def test_a_child_with_a_schedule_takes_the_fields_of_the_occurrence_that_it_waits_for() -> None:
    history = family(schedule={"every_s": 600})
    for minute in (8, 9, 10):
        end(history, root(history, "a", minute), {"rows": minute})
    history.must(AwaitParents(NOW_US + 10 * MINUTE, "b", NOW_US + 10 * MINUTE, (("a", NOW_US + 9 * MINUTE),)))
    (run_id,) = history.state.runs_of["b"]
    assert history.state.runs[run_id].fields == {"a": {"rows": 9}}
    again(history)
    for minute in range(11, CARRIED_MAX + 20):
        end(history, root(history, "a", minute), {"rows": minute})
    kept = [(one.nominal_us - NOW_US) // MINUTE for one in history.state.carried["b"]]
    assert kept == [*range(20, CARRIED_MAX + 20)], "the latest ones"


def test_made_params_asks_nothing_of_a_task_without_a_template() -> None:
    history = cluster("a")
    history.put("plain", schedule=CRON, params={"argv": ["{{ nominal }}"]})
    assert made_params(history.state, history.state.tasks["plain"], NOW_US) == NOT_MADE


def test_the_results_of_a_task_on_each_member_are_nobodys() -> None:
    history = after(a={"each": True, "schedule": CRON})
    entry = PutTasks(NOW_US, (Put(packed("b", after=["a"], template=True, params=ROWS)),))
    assert "b takes fields of the result of a, which runs on each member" in history.do(entry).detail
    history.put("r", schedule=CRON, overlap="allow")
    history.put("b", after=["r"], template=True, params={"argv": ["{{ after.r.rows | text }}"]}, each=True)
    end(history, root(history, "r", 1), {"rows": 7})
    (run_id,) = history.state.runs_of["b"]
    assert history.state.runs[run_id].fields == {"r": {"rows": 7}}
    assert begun(history, "b", 2).params == {"argv": ["7"]}


def test_a_backfills_run_has_the_window_of_its_time() -> None:
    history = alone()
    window = (NOW_US - 10 * MINUTE, NOW_US - 8 * MINUTE)
    number = history.must(StartBackfill(NOW_US, "t", *window, total=2))["backfill"]
    row = history.state.backfills[number]
    history.must(AdvanceBackfill(NOW_US, number, row.position_us, next_time_us(history.state.calendars, row) or 0))
    assert begun(history, "t", 0).params == {"argv": ["load", "23:49-23:50"]}
