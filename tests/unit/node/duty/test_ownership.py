"""Ownership is placement (docs/explanation/placement.md) of a state, kept up from epoch to epoch."""

import random
from dataclasses import replace

import pytest
from immutables import Map

from hashing.key import key64
from hashing.view import Task
from node.duty.ownership import Ownership
from node.state.value import Member, Settings, State, TaskRow
from tests.oracle import placement as oracle

KINDS = frozenset({"backup", "command"})


def row(name: str, order: int, **placing: object) -> TaskRow:
    fields = {"kind": "backup", **placing}
    return TaskRow(b"", Task(name, key64(name), **fields), order, 1, 0, 0, 0)  # type: ignore[arg-type]


def cluster(members: int = 3, tasks: int = 20, slack: int | None = 0) -> State:
    ids = tuple(f"node-{number}" for number in range(1, members + 1))
    return State(
        epoch=1,
        orders=tasks,
        settings=Settings(balance_slack_milli=slack),
        slots=ids,
        members=Map({id_: Member(id_, slot, "h", 1, 2, "up", None, 1, kinds=KINDS) for slot, id_ in enumerate(ids)}),
        tasks=Map({f"task-{n}": row(f"task-{n}", n) for n in range(1, tasks + 1)}),
    )


def with_status(state: State, member: str, status: str) -> State:
    changed = replace(state.members[member], status=status)  # type: ignore[arg-type]
    return replace(state, epoch=state.epoch + 1, members=state.members.set(member, changed))


def put(state: State, made: TaskRow) -> State:
    tasks = state.tasks.set(made.placing.name, made)
    return replace(state, epoch=state.epoch + 1, orders=max(state.orders, made.order), tasks=tasks)


def naive(state: State) -> dict[str, str | None]:
    tasks = [row.placing for row in sorted(state.tasks.values(), key=lambda row: row.order)]
    owners = oracle.owners(state.seats(), tasks, state.settings.balance_slack_milli)
    return {task.name: None if slot is None else state.slots[slot] for task, slot in zip(tasks, owners, strict=True)}


def all_of(ownership: Ownership, state: State) -> dict[str, str | None]:
    return {name: ownership.owner(name) for name in state.tasks}


def test_owners_are_those_of_section_4_in_the_order_of_registration() -> None:
    state = cluster()
    ownership = Ownership.of(state)
    assert ownership.state is state
    assert all_of(ownership, state) == naive(state)
    assert sorted(ownership.load().values()) == [6, 7, 7]


def test_an_unknown_task_has_no_owner_and_no_reasons() -> None:
    ownership = Ownership.of(cluster())
    assert ownership.owner("nobody-knows-it") is None
    for ask in (ownership.explain, ownership.preference, ownership.standbys):
        with pytest.raises(KeyError):
            ask("nobody-knows-it")


def test_an_ownership_without_members_or_tasks_answers() -> None:
    empty = Ownership.of(State())
    assert (empty.owner("t"), empty.load()) == (None, {})
    state = put(State(), row("t", 1))
    assert Ownership.of(state).owner("t") is None
    assert Ownership.of(state).explain("t") == []


def test_it_explains_in_members_names() -> None:
    state = put(cluster(), row("pinned", 21, pin="node-2", standbys=1))
    ownership = Ownership.of(with_status(state, "node-2", "draining"))
    first, second = ownership.preference("pinned")
    assert {first, second} == {"node-1", "node-3"}
    reasons = ownership.explain("pinned")
    assert reasons[0] == ("node-2", "draining")
    assert reasons[-1] == (ownership.owner("pinned"), "chosen")
    assert ownership.standbys("pinned") == ([second] if ownership.owner("pinned") == first else [])


def test_a_run_is_guarded_by_the_member_that_would_own_its_task() -> None:
    state = cluster()
    for number in range(1, 40):
        state = put(state, row(f"guarded-{number}", number, standbys=1))
    ownership, others = Ownership.of(state), 0
    for number in range(1, 40):
        task = f"guarded-{number}"
        owner = ownership.owner(task)
        assert owner is not None
        assert ownership.guards(task, owner) == [ownership.without({owner}).owner(task)]
        others += ownership.guards(task, owner) != ownership.standbys(task)
    assert others > 0, "with balanced loads, not always the next by preference has room"
    assert ownership.guards("unknown", "node-1") == []


def test_it_stays_the_same_object_while_the_epoch_does() -> None:
    state = cluster()
    ownership = Ownership.of(state)
    claimed = replace(state, index=9, tasks=state.tasks.set("task-1", replace(state.tasks["task-1"], through_us=5)))
    assert ownership.follow(claimed, {"task-1"}) is ownership
    assert ownership.follow(replace(state, epoch=2), set()) is not ownership


def test_it_follows_any_history_as_if_made_anew() -> None:
    seed = 7
    draw = random.Random(seed)
    state = cluster(members=4, tasks=12)
    ownership = Ownership.of(state)
    for step in range(150):
        touched: set[str] = set()
        for _ in range(draw.choice([1, 1, 1, 5])):
            name = f"task-{draw.randrange(1, 25)}"
            known = state.tasks.get(name)
            act = draw.choice(["member", "put", "put", "delete", "slack"])
            if act == "member":
                state = with_status(
                    state, draw.choice(state.slots) or "", draw.choice(["up", "up", "down", "draining"])
                )
            elif act == "put":
                order = state.orders + 1 if known is None else known.order
                state = put(state, row(name, order, weight=draw.choice([1, 3]), pin=draw.choice([None, "node-2"])))
                touched.add(name)
            elif act == "delete" and known is not None:
                state = replace(state, epoch=state.epoch + 1, tasks=state.tasks.delete(name))
                touched.add(name)
            else:
                settings = replace(state.settings, balance_slack_milli=draw.choice([None, 0, 250]))
                state = replace(state, epoch=state.epoch + 1, settings=settings)
        ownership = ownership.follow(state, touched if draw.random() < 0.9 else None)
        assert all_of(ownership, state) == naive(state), (seed, step)
        assert sum(ownership.load().values()) == sum(
            row.placing.weight for name, row in state.tasks.items() if ownership.owner(name) is not None
        ), (seed, step)


def test_a_task_that_was_deleted_and_registered_again_goes_to_the_end() -> None:
    state = cluster(members=2, tasks=3)
    ownership = Ownership.of(state)
    again = put(put(state, row("task-9", 4)), row("task-1", 5))
    followed = ownership.follow(again, {"task-1", "task-9"})
    assert all_of(followed, again) == naive(again)


def test_a_preview_is_what_the_failure_brings() -> None:
    state = cluster(members=5, tasks=50)
    now = Ownership.of(state)
    preview, then = now.without(frozenset({"node-2"})), Ownership.of(with_status(state, "node-2", "down"))
    assert all_of(preview, state) == all_of(then, state)
    assert preview.load() == then.load()
    assert preview.load()["node-2"] == 0
    lost = {move.task for move in now.moves_to(preview) if move.source == "node-2"}
    assert lost == {name for name in state.tasks if now.owner(name) == "node-2"}
    back = {(move.task, move.target, move.source) for move in preview.moves_to(now)}
    assert back == {(move.task, move.source, move.target) for move in now.moves_to(preview)}
    assert now.moves_to(now.without({"node-9"})) == []
    assert any(reason == ("node-2", "down") for name in state.tasks for reason in preview.explain(name))


def test_moves_to_the_ownership_of_other_tasks_are_refused() -> None:
    state = cluster()
    with pytest.raises(ValueError, match="same tasks"):
        Ownership.of(state).moves_to(Ownership.of(put(state, row("more", 21))))


def test_limits_say_up_to_which_load_members_have_room() -> None:
    ownership = Ownership.of(cluster(members=3, tasks=20, slack=0))
    assert ownership.limits() == {"node-1": 6, "node-2": 6, "node-3": 6}, "two of them have one more, for want of room"
    assert Ownership.of(cluster(members=3, tasks=20, slack=500)).limits()["node-1"] == 10
    assert Ownership.of(cluster(members=3, tasks=20, slack=None)).limits()["node-1"] == 20
