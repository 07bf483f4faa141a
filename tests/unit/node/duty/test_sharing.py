"""Who begins what is due: its owner, or a member with more room."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from node.duty.room import KindTerms, places_told
from node.duty.sharing import DECLINED_US, OFFER_US, Loads
from node.duty.step import LocalAttempt
from node.state.claims import Claim
from node.state.entries import Entry
from node.state.offers import Offer
from node.state.places import Places
from node.state.value import Run, State, TaskRow
from tests.unit.node.duty.given import LEASE, NOW, Owners, S, duty, run, task, world

EVERY = {"every_s": 10}
DUE: dict[str, Any] = {"since_us": NOW - 10 * S, "schedule": EVERY}


def sharing(*parts: TaskRow | Run, places: int = 8, members: str = "abc", **changed: Any) -> State:
    """A world whose members have told their places. `changed`: fields of members by id."""
    state = world(*parts, members=members)
    for name in members:
        fields: dict[str, Any] = {"places": Places(places), **changed.get(name, {})}
        member = replace(state.members[name], **fields)
        state = replace(state, members=state.members.set(name, member))
    return state


def entries(
    state: State,
    owners: Owners | None = None,
    me: str = "a",
    now_us: int = NOW,
    kinds: Mapping[str, KindTerms] | None = None,
    places: int = 8,
) -> list[Entry]:
    held = {one.run_id: LocalAttempt(one.token, kind=one.spec.kind) for one in state.runs.values() if one.node == me}
    return list(duty(state, owners, me, kinds).step(now_us, LEASE, held, places - len(held)).entries)


def begun(found: list[Entry]) -> tuple[int, list[str]]:
    """How many are claimed, and to whom the others are offered."""
    return sum(isinstance(one, Claim) for one in found), sorted(one.member for one in found if isinstance(one, Offer))


def test_loads_follow_the_runs_of_changed_tasks() -> None:
    loads, row = Loads(), task("t", schedule=EVERY)
    steps: list[tuple[list[Run], dict[str, int]]] = [
        ([run(row, "waiting")], {}),
        ([replace(run(row, "waiting"), offered="b")], {"b": 1}),
        ([run(row, "claimed", node="b")], {"b": 1}),
        ([run(row, "running", node="b"), run(row, "claimed", number=2, node="a")], {"a": 1, "b": 1}),
        ([run(row, "orphaned")], {}),
        ([], {}),
    ]
    for runs, batch in steps:
        loads.feed(world(row, *runs), ["t"])
        assert (+loads.batch, +loads.kinds) == (batch, {(member, row.placing.kind): 1 for member in batch})


def test_ten_tasks_due_at_once_of_which_one_member_owns_six_and_one_none() -> None:
    state = sharing(*(task(f"t{number}", **DUE) for number in range(10)))
    owned = {f"t{number}": "a" for number in range(4)}
    assert begun(entries(state, Owners(owned, "b"), "a")) == (4, [])
    assert begun(entries(state, Owners(owned, "b", order="bac"), "b")) == (4, ["c", "c"])
    assert begun(entries(state, Owners(owned, "b"), "c")) == (0, [])


def test_a_member_keeps_what_is_due_while_it_works_in_no_more_than_a_quarter_of_its_places() -> None:
    busy, due = task("busy"), task("due", **DUE)
    assert begun(entries(sharing(busy, due, run(busy, "running")))) == (1, [])
    assert begun(entries(sharing(busy, due, run(busy, "running"), places=4), places=4)) == (0, ["b"])


def test_because_of_a_backfill_nothing_else_is_offered_unless_it_leaves_no_place() -> None:
    rows = [task(f"w{number}") for number in range(3)]
    works = [run(row, "running", number, backfill=1) for number, row in enumerate(rows, 1)]
    due = task("due", **DUE)
    assert begun(entries(sharing(*rows[:2], due, *works[:2], places=4), places=4)) == (1, [])
    assert begun(entries(sharing(*rows, due, *works, places=4), places=4)) == (0, ["b"])


def test_what_is_due_of_backfills_makes_no_share_greater_and_is_offered_to_nobody() -> None:
    busy, due = task("busy"), task("due", **DUE)
    rows = [task(f"w{number}") for number in range(3)]
    waiting = [run(row, "waiting", number, backfill=1) for number, row in enumerate(rows, 1)]
    assert begun(entries(sharing(busy, run(busy, "running"), *rows, due, *waiting, places=4), places=4)) == (0, ["b"])


def test_a_full_member_offers_what_waits_for_as_many_places_as_the_others_have() -> None:
    rows = [task(f"w{number}", overlap="allow") for number in range(6)]
    works = [run(row, "running", number, node) for row, node in zip(rows, "aaabbc", strict=True) for number in (1,)]
    due = [task(f"t{number}", **DUE) for number in range(9)]
    found = entries(sharing(*rows, *works, *due, places=4), places=4)
    assert begun(found) == (0, ["b", "c", "c"])


@pytest.mark.parametrize("kept", [{"pin": "a"}, {"key": "k"}, {"sticky": True}])
def test_what_is_kept_on_one_member_is_offered_to_nobody(kept: dict[str, Any]) -> None:
    rows = [task(f"w{number}") for number in range(3)]
    works = [run(row, "running", number) for number, row in enumerate(rows, 1)]
    state = sharing(*rows, *works, task("t", **DUE, **kept), places=4)
    assert begun(entries(state, places=4)) == (0, [])


def test_it_is_offered_only_to_who_may_run_it_is_up_and_has_told_its_places() -> None:
    rows = [task(f"w{number}") for number in range(3)]
    works = [run(row, "running", number) for number, row in enumerate(rows, 1)]
    parts: list[TaskRow | Run] = [*rows, *works, task("t", **DUE)]
    assert begun(entries(sharing(*parts, places=4), Owners(order="ac"), places=4)) == (0, ["c"])
    assert begun(entries(sharing(*parts, places=4, b={"status": "draining"}), places=4)) == (0, ["c"])
    assert begun(entries(sharing(*parts, places=4, b={"status": "down"}, c={"status": "down"}), places=4)) == (0, [])
    state = world(*parts)
    assert begun(entries(state, places=4)) == (1, []), "no member has told its places, and none is kept"


def test_who_is_offered_a_run_claims_it_and_its_owner_does_not_meanwhile() -> None:
    row = task("t")
    offered = run(row, "waiting", offered="b", offered_us=NOW)
    state = sharing(row, offered)
    assert entries(state, me="a") == []
    assert entries(state, Owners(me="a"), "b") == [Claim(NOW, "t", offered.fire_at_us, "b", 1, offered.run_id)]
    assert entries(state, Owners(me="a"), "c") == []


def test_after_a_second_its_owner_begins_it_or_offers_it_to_another() -> None:
    row = task("t")
    state = sharing(row, run(row, "waiting", offered="b", offered_us=NOW))
    later_us = NOW + OFFER_US
    assert begun(entries(state, now_us=later_us)) == (1, [])
    assert entries(state, Owners(me="a"), "b", later_us) == []
    rows = [task(f"w{number}") for number in range(3)]
    works = [run(one, "running", number) for number, one in enumerate(rows, 1)]
    full = sharing(row, run(row, "waiting", offered="b", offered_us=NOW), *rows, *works, places=4)
    assert begun(entries(full, now_us=later_us, places=4)) == (0, ["c"])
    assert begun(entries(full, now_us=NOW + DECLINED_US, places=4)) == (0, ["b"])


def test_an_offer_to_a_member_that_went_down_binds_nobody() -> None:
    row = task("t")
    state = sharing(row, run(row, "waiting", offered="b", offered_us=NOW), b={"status": "down"})
    assert begun(entries(state)) == (1, [])


def test_who_becomes_the_owner_of_what_it_was_offered_begins_it() -> None:
    row = task("t")
    state = sharing(row, run(row, "waiting", offered="b", offered_us=NOW - OFFER_US))
    one = duty(state, Owners(me="a"), "b")
    assert one.step(NOW, LEASE, {}, 8).entries == ()
    one.observe(state, Owners(me="b"), ())
    assert [type(entry) for entry in one.step(NOW, LEASE, {}, 8).entries] == [Claim]


def test_batch_work_leaves_a_quarter_of_the_places_to_failovers_and_continuous_work() -> None:
    rows = [task(f"w{number}") for number in range(6)]
    works = [run(row, "running", number) for number, row in enumerate(rows, 1)]
    others: dict[str, Any] = {"b": {"status": "down"}, "c": {"status": "down"}}
    lost, stream = task("lost"), task("stream", since_us=NOW - S, through_us=0, schedule={"continuous": True})
    batch = [task("batch", **DUE)]
    assert begun(entries(sharing(*rows, *works, *batch, **others))) == (0, [])
    found = entries(sharing(*rows, *works, *batch, lost, run(lost, "orphaned"), stream, **others))
    assert sorted(one.task for one in found if isinstance(one, Claim)) == ["lost", "stream"]


def test_of_a_bounded_kind_too() -> None:
    kinds = {"etl": KindTerms(bound="SPARK", most=4), "ingest": KindTerms(bound="SPARK", most=4)}
    rows = [task(f"w{number}", kind="etl") for number in range(3)]
    works = [run(row, "running", number) for number, row in enumerate(rows, 1)]
    due = task("due", **DUE, kind="ingest")
    stream = task("stream", kind="etl", since_us=NOW - S, through_us=0, schedule={"continuous": True})
    told = {"places": places_told(8, kinds)}
    alone = sharing(*rows, *works, due, stream, members="a", a=told)
    assert [one.task for one in entries(alone, kinds=kinds) if isinstance(one, Claim)] == ["stream"]
    shared = sharing(*rows, *works, due, members="ab", a=told, b=told)
    assert begun(entries(shared, kinds=kinds)) == (0, ["b"])
    full = [run(row, "running", number, "b") for number, row in enumerate(rows, 1)]
    assert begun(entries(sharing(*rows, *full, due, members="ab", a=told, b=told), kinds=kinds)) == (1, [])


def test_a_larger_member_has_a_larger_share() -> None:
    state = sharing(*(task(f"t{number}", **DUE) for number in range(8)), c={"capacity": 2})
    assert begun(entries(state, Owners(order="abc"))) == (2, ["b", "b", "c", "c", "c", "c"])


def test_of_two_places_one_is_kept_where_there_is_continuous_work() -> None:
    works, stream = task("works"), task("stream", schedule={"continuous": True})
    due = task("due", **DUE)
    alone: dict[str, Any] = {"members": "a", "places": 2}
    assert begun(entries(sharing(works, run(works, "running"), due, **alone), places=2)) == (1, [])
    waits = run(stream, "waiting", 2)
    found = entries(sharing(works, run(works, "running"), due, stream, waits, **alone), places=2)
    assert [one.task for one in found if isinstance(one, Claim)] == ["stream"]
