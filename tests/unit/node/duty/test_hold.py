"""What holds a task on its owner: the first thing, in order."""

from dataclasses import replace
from typing import Any

from node.duty.hold import Hold, OwnerSelf, hold_of
from node.duty.room import KindTerms
from node.duty.step import LocalAttempt, WaitsForRoom

ENGINE = KindTerms(bound="ROTA_ENGINES", most=1)
ATTEMPTS = {"b@2": LocalAttempt(2, kind="engine"), "a@1": LocalAttempt(1, kind="command")}
EVERYTHING = OwnerSelf(
    "node-1",
    lease=False,
    max_runs=2,
    stopping=True,
    aside="no room on its disk",
    unreadable="no such time zone",
    undecided=True,
    waits=WaitsForRoom("t", None, 1, "ROTA_ENGINES"),
    full=frozenset({"ROTA_ENGINES"}),
    terms={"engine": ENGINE},
    attempts=ATTEMPTS,
    lacking=["secret 'pg': it is not there"],
)


def test_the_first_thing_that_holds_a_task_is_told() -> None:
    """Each is taken away in turn, and the next one shows."""
    owner, codes = EVERYTHING, []
    without: list[dict[str, Any]] = [
        {"stopping": False},
        {"lease": True},
        {"aside": ""},
        {"unreadable": ""},
        {"undecided": False},
        {"full": frozenset()},
        {"waits": None},
        {"lacking": ()},
    ]
    for gone in without:
        hold = hold_of(owner)
        assert hold is not None
        assert "node-1" in hold.detail
        codes.append(hold.code)
        owner = replace(owner, **gone)
    assert codes == ["stopping", "no_lease", "aside", "unreadable", "undecided", "bound", "max_runs", "secret"]
    assert hold_of(owner) is None


def test_the_runs_that_have_the_places_are_named() -> None:
    owner = OwnerSelf("node-1", True, 2, waits=EVERYTHING.waits, terms=EVERYTHING.terms, attempts=ATTEMPTS)
    assert hold_of(owner) == Hold("max_runs", "node-1 runs 2 attempts already (ROTA_MAX_RUNS)", ("a@1", "b@2"))
    assert hold_of(replace(owner, full=EVERYTHING.full)) == Hold(
        "bound", "node-1 has room for 1 attempt of such kinds at once (ROTA_ENGINES)", ("b@2",)
    )
