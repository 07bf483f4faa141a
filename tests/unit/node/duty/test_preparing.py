"""For what a member has processes prepared, and how many attempts of a kind it begins at once."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from immutables import Map

from node.duty.duty import Duty
from node.duty.preparing import KEEP_US
from node.duty.room import KindTerms
from node.duty.step import LocalAttempt, Step, Wanted
from node.state.claims import Claim
from node.state.value import OccurrenceEnd, Outcome, PendingJoin, State, TaskRow
from tasks.definition.after import ParentEnd
from tasks.definition.run import RunState
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


def following(*parents: str | dict[str, str], **of_child: Any) -> TaskRow:
    """A task of a kind that is prepared, after others."""
    return task("child", kind="load", after=[*parents], **of_child)


def working(name: str, took_s: float | None = 100, state: RunState = "running", fire_at_us: int = NOW + 1) -> State:
    """A state in which a task without preparation works since NOW; its last run took `took_s`."""
    row = task(name, since_us=NOW - 1)
    took_us = None if took_s is None else round(took_s * S)
    row = replace(row, last=Outcome(f"{name}~0", "succeeded", NOW - S, NOW - S, took_us=took_us))
    return world(row, run(row, state, fire_at_us=fire_at_us))


def beside(state: State, child: TaskRow, *others: State) -> State:
    """One state of several, with a child of their tasks."""
    for other in others:
        runs, runs_of = state.runs.update(other.runs), state.runs_of.update(other.runs_of)
        state = replace(state, tasks=state.tasks.update(other.tasks), runs=runs, runs_of=runs_of)
    children = {one.task: ("child",) for one in child.spec.after}
    return replace(state, tasks=state.tasks.set("child", child), children=Map(children))


def test_a_process_is_prepared_by_the_time_at_which_the_run_before_a_task_is_expected_to_end() -> None:
    one = loading(beside(working("p"), following("p")))
    early = step(one, 80)
    assert (wanted(early), early.wake_us) == ((0, 1), NOW + 90 * S)
    assert wanted(step(one, 90)) == (1, 1)
    assert wanted(step(one, 159)) == (1, 1), "it lasts longer than expected"
    assert wanted(step(one, 160)) == (0, 0), "much longer"


def test_a_process_is_prepared_once_all_runs_before_a_task_work_or_have_succeeded() -> None:
    def of(child: TaskRow, *states: State) -> tuple[int, int]:
        return wanted(step(loading(beside(states[0], child, *states[1:])), 95))

    child = following("p", "q")
    assert of(child, working("p"), working("q")) == (1, 1)
    assert of(child, working("p"), working("q", 300)) == (0, 1), "the later end counts"
    assert of(child, working("p"), working("q", None)) == (0, 0), "nobody knows how long it takes"
    assert of(child, working("p"), working("q", state="waiting")) == (0, 0)
    assert of(child, working("p"), working("q", fire_at_us=NOW + 2)) == (0, 0), "these are two occurrences"
    assert of(replace(child, paused=True), working("p"), working("q")) == (0, 0)
    assert of(replace(child, after_us=NOW + 1), working("p"), working("q")) == (0, 0)
    assert of(following({"task": "p", "on": "failed"}), working("p")) == (0, 0)

    def joined(end: ParentEnd) -> tuple[int, int]:
        join = PendingJoin("child", NOW + 1, ends=(OccurrenceEnd("q", NOW + 1, 0, end),))
        state = beside(working("p"), child, world(task("q")))
        return wanted(step(loading(replace(state, joins=state.joins.set("child", (join,)))), 95))

    assert joined("succeeded") == (1, 1)
    assert joined("failed") == (0, 0)


def test_a_task_with_times_of_its_own_is_expected_only_while_it_waits_for_the_run_before_it() -> None:
    child = following("p", schedule=Every(every_s=36000))
    assert wanted(step(loading(beside(working("p"), child)), 95)) == (0, 0)

    def waiting_for(nominal_us: int) -> tuple[int, int]:
        join = PendingJoin("child", NOW + 5, times=(("p", nominal_us),), until_us=NOW + 3600 * S)
        state = beside(working("p"), child)
        return wanted(step(loading(replace(state, joins=state.joins.set("child", (join,)))), 95))

    assert waiting_for(NOW + 1) == (1, 1)
    assert waiting_for(NOW + 2) == (0, 0), "that one has not begun"


def test_what_was_prepared_is_given_up_when_the_run_before_the_task_has_failed() -> None:
    state = beside(working("p"), following("p"))
    one = loading(state)
    assert wanted(step(one, 95)) == (1, 1)
    one.observe(replace(state, runs=Map(), runs_of=Map()), Owners(), {"p"})
    assert wanted(step(one, 96)) == (0, 0)
