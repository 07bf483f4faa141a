"""For what a member has processes prepared, and how many attempts of a kind it begins at once."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from node.duty.duty import Duty
from node.duty.preparing import KEEP_US
from node.duty.room import KindTerms
from node.duty.step import LocalAttempt, Step, Wanted
from node.state.claims import Claim
from node.state.value import State, TaskRow
from tasks.definition.spec import Every
from tests.unit.node.duty.given import LEASE, NOW, Owners, S, duty, run, task, world

NAME = "engines:start"
LEADS = {NAME: 10 * S}
KINDS = {"load": KindTerms(NAME, "ROTA_ENGINES", 2), "copy": KindTerms(NAME, "ROTA_ENGINES", 2)}


def every(name: str, every_s: float, kind: str = "load", **more: Any) -> TaskRow:
    """A task that is due every so many seconds, counted from NOW."""
    return task(name, kind=kind, schedule=Every(every_s=every_s), **more)


def loading(state: State, owners: Owners | None = None, kinds: Mapping[str, KindTerms] = KINDS) -> Duty:
    return duty(state, owners, kinds=kinds)


def step(one: Duty, after_s: float, held: Mapping[str, LocalAttempt] | None = None, room: int = 8) -> Step:
    return one.step(NOW + round(after_s * S), LEASE, held or {}, room, LEADS)


def wanted(found: Step) -> tuple[int, int]:
    return found.wanted[NAME].start, found.wanted[NAME].keep


def claimed(found: Step) -> list[str]:
    return sorted(entry.task for entry in found.entries if isinstance(entry, Claim))


def test_a_process_is_prepared_by_the_lead_time_before_a_task_is_due() -> None:
    one = loading(world(every("t", 3600)))
    early = step(one, 3500)
    assert wanted(early) == (0, 0)
    assert early.wake_us == NOW + 3600 * S - LEADS[NAME] - KEEP_US
    assert wanted(step(one, 3589)) == (0, 1), "one that is there stays"
    assert step(one, 3589).wake_us == NOW + 3590 * S
    assert wanted(step(one, 3590)) == (1, 1)


def test_without_kinds_that_prepare_nothing_is_wanted() -> None:
    assert step(loading(world(every("t", 10)), kinds={}), 1).wanted == {}
    assert wanted(step(loading(world(every("t", 10, kind="command"))), 1)) == (0, 0)


def test_nothing_is_prepared_for_the_tasks_of_others_or_for_a_paused_one() -> None:
    assert wanted(step(loading(world(every("t", 10)), Owners({"t": "b"})), 1)) == (0, 0)
    assert wanted(step(loading(world(every("t", 10, paused=True))), 1)) == (0, 0)


def test_what_was_prepared_is_given_up_when_the_task_is_another_members_or_gone() -> None:
    state = world(every("t", 10))
    one = loading(state)
    assert wanted(step(one, 1)) == (1, 1)
    one.observe(state, Owners({"t": "b"}), ())
    assert wanted(step(one, 2)) == (0, 0)
    one.observe(state, Owners(), ())
    assert wanted(step(one, 3)) == (1, 1)
    one.observe(world(), Owners(), {"t"})
    assert wanted(step(one, 4)) == (0, 0)


def test_there_are_no_more_prepared_processes_and_attempts_than_the_bound() -> None:
    one = loading(world(*(every(name, 10) for name in "pqrs")))
    assert wanted(step(one, 1)) == (2, 2)
    assert wanted(step(one, 1, {"x~1": LocalAttempt(1, kind="copy")})) == (1, 1)
    assert wanted(step(one, 1, {"x~1": LocalAttempt(1, kind="command")})) == (2, 2)
    assert wanted(step(one, 1, room=0)) == (0, 2), "nothing begins here now; what is there stays"


def test_a_drained_member_prepares_nothing() -> None:
    state = world(every("t", 10))
    one = loading(state)
    assert wanted(step(one, 1)) == (1, 1)
    members = state.members
    drained = replace(state, members=members.set("a", replace(members["a"], status="draining")))
    one.observe(drained, Owners(), ())
    assert step(one, 2).wanted == {NAME: Wanted(0, 0)}


def test_a_standby_is_prepared_while_the_run_works_on_another_member() -> None:
    row = every("t", 36000, standbys=1)
    working = world(row, run(row, "running", node="b"))
    theirs = {"t": "b"}
    assert wanted(step(loading(working, Owners(theirs, guards={"t": ["a"]})), 1)) == (1, 1)
    assert wanted(step(loading(working, Owners(theirs, guards={"t": ["c"]})), 1)) == (0, 0)
    assert wanted(step(loading(world(row), Owners(theirs, guards={"t": ["a"]})), 1)) == (0, 0)
    alone = every("t", 36000)
    without = world(alone, run(alone, "running", node="b"))
    assert wanted(step(loading(without, Owners(theirs, guards={"t": ["a"]})), 1)) == (0, 0)


def test_a_standby_is_given_up_when_the_run_has_ended() -> None:
    row = every("t", 36000, standbys=1)
    owners = Owners({"t": "b"}, guards={"t": ["a"]})
    one = loading(world(row, run(row, "running", node="b")), owners)
    assert wanted(step(one, 1)) == (1, 1)
    one.observe(world(row), owners, {"t"})
    assert wanted(step(one, 2)) == (0, 0)


def test_attempts_beyond_the_bound_wait_and_say_which_bound_it_is() -> None:
    rows = [task(name, kind="load") for name in "pqr"]
    one = loading(world(*rows, *(run(row, "waiting") for row in rows)))
    found = step(one, 0)
    assert claimed(found) == ["p", "q"]
    assert [(wait.task, wait.bound) for wait in found.waiting_for_room] == [("r", "ROTA_ENGINES")]
    assert found.full == {"ROTA_ENGINES"}
    assert claimed(step(one, 0)) == [], "two claims are under way"


def test_those_that_wait_for_their_bound_do_not_hold_up_others() -> None:
    loads, other = [task(name, kind="load") for name in "pqrs"], task("z")
    held = {f"{name}~9": LocalAttempt(1, kind="load") for name in "xy"}
    one = loading(world(*loads, other, *(run(row, "waiting") for row in (*loads, other))))
    assert claimed(step(one, 0, held, room=1)) == ["z"]
    crowded = loading(world(*loads, other, *(run(row, "waiting") for row in (*loads, other))))
    assert claimed(step(crowded, 0, held, room=0)) == []
    found = step(crowded, 1, held, room=1)
    assert claimed(found) == ["z"]
    assert {wait.task for wait in found.waiting_for_room} == set("pqrs")


def test_the_next_begins_when_one_has_ended() -> None:
    row = task("t", kind="load")
    one = loading(world(row, run(row, "waiting")))
    both = {f"{name}~9": LocalAttempt(1, kind="load") for name in "xy"}
    assert claimed(step(one, 0, both)) == []
    assert claimed(step(one, 1, {"x~9": LocalAttempt(1, kind="load")})) == ["t"]


def test_a_task_that_is_deleted_while_many_have_changed_is_not_looked_for() -> None:
    """The next due times of many changed tasks are computed in portions: a deleted one may still be on the agenda."""
    rows = {f"t{number}": every(f"t{number}", 10) for number in range(100)}
    one = loading(world(*rows.values()))
    for _ in range(5):
        step(one, 1)
    one.observe(world(), Owners(), set(rows))
    assert wanted(step(one, 1.5))[0] <= 2
    for _ in range(5):
        found = step(one, 2)
    assert wanted(found) == (0, 0)


def test_nothing_is_prepared_for_a_task_of_another_user() -> None:
    assert wanted(step(loading(world(every("t", 10, run_as="deploy"))), 1)) == (0, 0)
    assert wanted(step(loading(world(every("t", 10))), 1)) == (1, 1)
