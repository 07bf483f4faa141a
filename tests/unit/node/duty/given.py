"""Small states to decide on, built by hand: so that a test reads as what is given and what follows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from immutables import Map

from hashing.view import Task
from node.duty.duty import Duty
from node.duty.room import KindTerms
from node.duty.step import LeaseView, Step
from node.state.value import Attempt, Member, Run, State, TaskRow
from tasks.definition.run import RunState
from tasks.definition.spec import Spec

S = 1_000_000
NOW = 1_000_000 * S
LEASE = LeaseView(incarnation=1, period=1)


class Owners:
    """Ownership as a table; a task that is not in it is `me`'s."""

    def __init__(
        self,
        other: Mapping[str, str | None] | None = None,
        me: str = "a",
        guards: Mapping[str, list[str]] | None = None,
        order: str = "abc",
    ) -> None:
        self._table = dict(other or {})
        self._me = me
        self._guards = dict(guards or {})
        self._order = order

    def owner(self, task: str, /) -> str | None:
        return self._table.get(task, self._me)

    def preference(self, task: str, /) -> list[str]:
        return list(self._order)

    def guards(self, task: str, holder: str, /) -> list[str]:
        return [member for member in self._guards.get(task, []) if member != holder]


def task(
    name: str,
    *,
    since_us: int = NOW,
    through_us: int | None = None,
    paused: bool = False,
    kind: str = "command",
    **spec: Any,
) -> TaskRow:
    full = Spec(name=name, kind=kind, **spec)
    return TaskRow(
        spec_packed=full.pack(),
        placing=Task(name, 0, kind, standbys=full.standbys),
        order=1,
        version=1,
        registered_at_us=since_us,
        since_us=since_us,
        through_us=since_us if through_us is None else through_us,
        paused=paused,
    )


def run(row: TaskRow, state: RunState, number: int = 1, node: str = "a", **fields: Any) -> Run:
    """An active run. A held one is the attempt of `node`, in incarnation 1, claimed at NOW, its token its number."""
    name = row.spec.name
    made = Run(f"{name}~{number}", name, "schedule", NOW + number, row.spec_packed, state, NOW, due_us=NOW)
    if state in ("claimed", "running"):
        attempt = Attempt(1, node, 1, number, state, claimed_at_us=NOW)
        made = replace(made, node=node, incarnation=1, token=number, attempts=(attempt,))
    return replace(made, **fields)


def world(*parts: TaskRow | Run, members: str = "abc") -> State:
    """A state with members that are up in incarnation 1, these tasks and these runs, oldest first."""
    state = State(
        members=Map({one: Member(one, slot, "h", 1, 2, "up", None, 1) for slot, one in enumerate(members)}),
        tasks=Map({part.spec.name: part for part in parts if isinstance(part, TaskRow)}),
        slots=tuple(members),
    )
    for part in parts:
        if isinstance(part, Run):
            ids = (*state.runs_of.get(part.task, ()), part.run_id)
            state = replace(state, runs=state.runs.set(part.run_id, part), runs_of=state.runs_of.set(part.task, ids))
    return state


def duty(
    state: State, owners: Owners | None = None, me: str = "a", kinds: Mapping[str, KindTerms] | None = None
) -> Duty:
    made = Duty(me, kinds)
    made.observe(state, owners or Owners(), None)
    return made


def first_step(state: State, owners: Owners | None = None, now_us: int = NOW, room: int = 8) -> Step:
    return duty(state, owners).step(now_us, LEASE, {}, room)
