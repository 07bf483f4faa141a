"""The checker finds what it is there for: each kind of violation is fed to it once, and what is well is not one."""

from typing import Any

import pytest

from bench.chaos.checker import members, promises, work
from bench.chaos.clients import Promises
from bench.chaos.records import Records
from testkit.agreement import differences, tokens

GOOD = (
    "a~1 1 begin 0",
    "a~1 1 saving 5",
    "a~1 1 saved 5",
    "a~1 1 saving 10",
    "a~1 3 begin 10",
    "a~1 3 end 20",
    "a~2 4 begin 0",
    "a~2 4 end 20",
)


def seen(*lines: str) -> Records:
    """Records of lines `run token what step`, a tenth of a second apart."""
    records = Records()
    for position, line in enumerate(lines):
        run, token, what, step = line.split()
        records.take(run.partition("~")[0], position, f"{run} {token} node-1 - {position / 10:.1f} {what} {step}")
    return records


def test_work_that_was_taken_over_in_order_is_well() -> None:
    assert work.overlaps(seen(*GOOD), ["a"], []) == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a~1 1 beat 9", "token 1 worked (line 9) after token 3"),
        ("a~1 3 beat 9", "a~1 worked (line 9) beside a~2"),
        ("a~3 2 begin 0", "token 2 began to work after token 4"),
        ("a~2 5 begin 6", "began at 6; saved before it was 0"),
    ],
)
def test_two_at_once_a_token_that_fell_and_a_lost_checkpoint_are_found(line: str, says: str) -> None:
    assert says in " ".join(work.overlaps(seen(*GOOD, line), ["a"], []))


def test_what_was_saved_may_not_be_lost() -> None:
    lines = ("a~1 1 begin 0", "a~1 1 saving 5", "a~1 1 saved 5", "a~1 2 begin 0")
    assert "saved before it was 5" in " ".join(work.overlaps(seen(*lines), ["a"], []))
    assert work.overlaps(seen(*lines), ["a"], ["a"]) == []  # it is to begin anew


def told(state: str, token: int) -> dict[str, Any]:
    return {"state": state, "cancelling": None, "token": token, "error": None, "task": "by-hand"}


def test_work_without_a_claim_is_found() -> None:
    found = work.against(seen(*GOOD), {"a~1": told("succeeded", 3)}, {"a~1": {1, 3}, "a~2": set()})
    assert found == ["a~2: token 4 worked, and history knows no such claim"]


def test_a_success_that_never_came_to_its_end_is_found() -> None:
    found = work.against(seen(*GOOD[:4]), {"a~1": told("succeeded", 1)}, {"a~1": {1}})
    assert "never came to its end" in found[0]


def test_a_success_at_which_nobody_worked_is_found() -> None:
    found = work.against(seen(*GOOD[:6]), {"a~9": told("succeeded", 9)}, {"a~1": {1, 3}})
    assert found == ["a~9 succeeded, and nobody was seen to work at it"]


def test_a_token_is_given_once() -> None:
    runs = [
        {"run_id": "a~1", "attempts": [{"token": 1}, {"token": 3}]},
        {"run_id": "a~2", "attempts": [{"token": 3}]},
    ]
    assert tokens(runs) == ["token 3 was given to a~1 and to a~2"]


def test_tokens_grow_from_attempt_to_attempt() -> None:
    assert tokens([{"run_id": "a~1", "attempts": [{"token": 1}, {"token": 3}]}]) == []
    assert "the tokens [3, 1]" in tokens([{"run_id": "a~1", "attempts": [{"token": 3}, {"token": 1}]}])[0]


def promised(**more: Any) -> Promises:
    told = Promises(there={"note-1": 1}, gone={"note-2"}, counted=5, tried=7, runs={"key": "by-hand~1"}, keys=1)
    for name, value in more.items():
        setattr(told, name, value)
    return told


def there(name: str, marker: int) -> dict[str, dict[str, Any]]:
    return {name: {"params": {"marker": marker}}}


KEPT = there("note-1", 1) | there("counter", 6)
MADE = {"by-hand~1": told("succeeded", 1)}


def test_what_was_promised_and_kept_is_well() -> None:
    assert promises.promises(promised(), KEPT, MADE) == []


@pytest.mark.parametrize(
    ("tasks", "runs", "says"),
    [
        (there("counter", 6), MADE, "note-1 was acknowledged, and is not there"),
        (KEPT | there("note-1", 9), MADE, "note-1 was acknowledged with marker 1, and is"),
        (KEPT | there("note-2", 2), MADE, "note-2 was deleted, and is there"),
        (KEPT | there("counter", 4), MADE, "counter was acknowledged up to 5 of 7, and is at 4"),
        (KEPT | there("counter", 8), MADE, "counter was acknowledged up to 5 of 7, and is at 8"),
        (there("note-1", 1), MADE, "counter was acknowledged up to 5 of 7, and is at None"),
        (KEPT, {}, "by-hand~1 was promised (key key), and nobody knows of it"),
        (KEPT, {"by-hand~1": told("failed", 1)}, "by-hand~1 was promised, and failed"),
        (KEPT, MADE | {"by-hand~2": told("succeeded", 2)}, "1 runs of by-hand were asked for, and 2 made"),
    ],
)
def test_a_broken_promise_is_found(tasks: dict[str, Any], runs: dict[str, Any], says: str) -> None:
    assert says in " ".join(promises.promises(promised(), tasks, runs))


def test_a_client_that_was_promised_nothing_has_judged_nothing() -> None:
    whole = promised(long=1)
    assert promises.nothing_promised(whole, promises.LENGTH_S) == []
    assert promises.nothing_promised(Promises(), promises.LENGTH_S - 1) == []
    assert len(promises.nothing_promised(Promises(), promises.LENGTH_S)) == 5
    nothing: dict[str, Any] = {"gone": set(), "counted": 0, "runs": {}, "long": 0}
    for name, none in nothing.items():
        found = promises.nothing_promised(promised(**{"long": 1, name: none}), promises.LENGTH_S)
        assert len(found) == 1
        assert found[0].startswith("nothing was judged: no ")


def test_what_was_answered_and_must_not_be_is_found() -> None:
    assert promises.promises(promised(broken=["PUT note-3: 500"]), KEPT, MADE) == ["PUT note-3: 500"]


def test_members_that_tell_different_things_are_found() -> None:
    same = {"a": {"state": "succeeded"}, "b": {"state": "failed"}}
    assert differences({"node-1": same, "node-2": same}) == []
    for other in ({"a": {"state": "succeeded"}}, {**same, "b": {"state": "abandoned"}}, {**same, "c": {}}):
        found = differences({"node-1": same, "node-2": same, "node-3": other})
        assert len(found) == 1
        assert "node-1 tells" in found[0]
        assert "and node-3" in found[0]


def test_runs_that_have_not_ended_are_found() -> None:
    run = {"run_id": "a~1", "node": "node-1", "token": 3, "cancelling": None}
    ended = {**run, "state": "succeeded", "finished_at": "2026-11-21T06:00:00Z"}
    waiting = {**run, "run_id": "a~2", "state": "waiting", "finished_at": None}
    assert members.stuck([ended, waiting]) == ["stuck: a~2 waiting on node-1 token 3 cancelling None"]


LOG = """\
2026-11-21 10:47:34,000 INFO    rota: node-2 serves
2026-11-21 10:47:34,100 WARNING rota.member: node-3 is taken to be down: gone
2026-11-21 10:47:34,200 ERROR   rota.disk: it is full
Traceback (most recent call last):
OSError: full
"""


def test_what_is_expected_in_a_log_is_counted_with_its_traceback() -> None:
    patterns = {"is taken to be down": 0, "it is full": 2}
    expected, unexplained = members.alarms("node-2.log", LOG.splitlines(), patterns)
    assert (expected.total(), unexplained) == (2, [])


def test_what_is_expected_only_after_a_fault_is_found_before_it() -> None:
    patterns = {"is taken to be down": 0, "it is full": 3}
    unexplained = members.alarms("node-2.log", LOG.splitlines(), patterns)[1]
    assert [line.partition(" 2026")[0] for line in unexplained] == [
        "unexplained: node-2.log:3:",
        "unexplained: node-2.log:4: Traceback (most recent call last):",
    ]


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("2026-11-21 10:47:35,000 WARNING rota: what is this", 6),
        ("2026-11-21 10:47:35,000 CRITICAL rota: this node cannot go on: ...", 6),
        ("Traceback (most recent call last):", 6),
    ],
)
def test_what_nobody_expects_in_a_log_is_found(line: str, number: int) -> None:
    patterns = {"is taken to be down": 0, "it is full": 0}
    found = members.alarms("node-2.log", [*LOG.splitlines(), line], patterns)[1]
    assert found == [f"unexplained: node-2.log:{number}: {line}"]
