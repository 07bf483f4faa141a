"""Computes which tasks would move, and which no member could run, if members were down or drained ones were back. Pure.

The answer follows from the replicated state alone, by the function that places tasks.
"""

from dataclasses import dataclass, replace
from typing import Final

from hashing.moves import Move
from node.duty.advice import why_unowned
from node.duty.forecast import Forecast, forecast
from node.duty.held_times import HeldTime, held_time
from node.duty.ownership import Ownership
from node.duty.room_ahead import RoomAhead, room_ahead
from node.duty.timetable import TimeSpan, UpcomingTask
from node.state.parts import takes_part
from node.state.value import State
from tasks.definition.run import HELD

REASONS_MAX: Final = 100
"""The most tasks that no member could run that are listed with reasons."""


@dataclass(frozen=True, slots=True)
class Supposition:
    """A supposition: the members in `without` are down, and the members in `back`, now drained or down, are up."""

    without: frozenset[str] = frozenset()
    back: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.without or self.back)


@dataclass(frozen=True, slots=True)
class MajorityOutlook:
    """The members, the votes needed for a majority, and the members that can vote: now, and under the supposition."""

    members: int
    needed: int
    now: int
    then: int

    @property
    def left(self) -> bool:
        """Whether the remaining members are a majority. Without a majority no run is claimed and no change accepted."""
        return self.then >= self.needed


@dataclass(frozen=True, slots=True)
class InterruptedRun:
    """A run that its member would lose, and the member that would continue it; None: no member could."""

    run_id: str
    task: str
    source: str
    target: str | None


@dataclass(frozen=True, slots=True)
class UnownedTask:
    """A task that no member could run, with a code and a sentence of `node.duty.advice`. `now`: no member can now."""

    task: str
    code: str
    detail: str
    now: bool


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answer to a supposition."""

    #: The supposition.
    supposition: Supposition
    #: The index of the state that it was computed from.
    index: int
    #: The epoch of that state.
    epoch: int
    #: The time at which it was computed, in microseconds since the epoch.
    now_us: int
    #: How many members can vote, now and under the supposition.
    majority: MajorityOutlook
    #: Every task that changes its owner.
    moves: tuple[Move, ...]
    #: The number of tasks that no member could run.
    unowned_count: int
    #: The first `REASONS_MAX` of these tasks, with reasons.
    unowned: tuple[UnownedTask, ...]
    #: The runs that their members would lose.
    interrupted: tuple[InterruptedRun, ...]
    #: The weight of the tasks that each member owns now, by member.
    load_now: dict[str, int]
    #: The weight of the tasks that each member would own, by member.
    load_then: dict[str, int]
    #: The occurrences that each member would begin within the span.
    ahead: Forecast
    #: How many of those of the next hour would have a place and their pools at once.
    room: RoomAhead


def supposed(state: State, supposition: Supposition) -> State:
    """Return the state with the supposed status of members. Unknown names change nothing."""
    members = state.members
    for name, member in state.members.items():
        if name in supposition.without:
            members = members.set(name, replace(member, status="down", reason=None, aside=""))
        elif name in supposition.back:
            members = members.set(name, replace(member, status="up", reason=None, aside="", drained=False))
    return replace(state, members=members)


def majority(state: State, then: State) -> MajorityOutlook:
    """Count the votes of `state`, and those of the supposed state `then`."""
    members = len(state.members)
    return MajorityOutlook(members, members // 2 + 1, _votes(state), _votes(then))


def _votes(state: State) -> int:
    return sum(member.status != "down" for member in state.members.values())


def _on_each(now: State, then: State) -> dict[str, list[tuple[str | None, str | None]]]:
    """Return who begins each task with `each`, as pairs of the members that do so then (None: it waits) and now."""
    found: dict[str, list[tuple[str | None, str | None]]] = {}
    for task in now.each:
        row, members = now.tasks[task], now.members
        able = [name for name in sorted(members) if takes_part(row, members[name])]
        found[task] = [(_if_up(then, name), _if_up(now, name)) for name in able]
    return found


def _if_up(state: State, member: str) -> str | None:
    return member if state.members[member].status == "up" else None


def suppose(
    state: State, ownership: Ownership, supposition: Supposition, upcoming: list[UpcomingTask], span: TimeSpan
) -> WhatIf:
    """Compute the consequences of a supposition. `upcoming` has the tasks due within `span`.

    A task that was registered after `ownership` was computed has no owner yet.
    """
    supposed_state = supposed(state, supposition)
    then = ownership.supposing(supposed_state) if supposition else ownership
    unowned_now = {task for task in ownership.state.tasks if ownership.owner(task) is None}
    unowned = [task for task in ownership.state.tasks if then.owner(task) is None] if supposition else unowned_now
    # Tasks that have an owner now come first, since these are the consequences of the supposition.
    listed = sorted((task in unowned_now, task) for task in unowned if task in state.tasks)
    held = (run for run in state.runs.values() if run.state in HELD and run.node in supposition.without)
    # Nobody takes over the run of a task with `each`: it waits for its member.
    lost = [
        InterruptedRun(run.run_id, run.task, run.node or "", None if run.member else then.owner(run.task))
        for run in held
    ]

    def held_of(task: str, at_us: int) -> HeldTime | None:
        row = state.tasks.get(task)
        return None if row is None else held_time(state, row, at_us)

    on_each = _on_each(state, supposed_state)
    up = [name for name, member in supposed_state.members.items() if member.status == "up"]
    return WhatIf(
        supposition=supposition,
        index=state.index,
        epoch=ownership.state.epoch,
        now_us=span.from_us,
        majority=majority(state, supposed_state),
        moves=tuple(move for move in ownership.moves_to(then) if move.task not in state.each) if supposition else (),
        unowned_count=len(listed),
        unowned=tuple(
            UnownedTask(task, *why_unowned(supposed_state, state.tasks[task], {}), now)
            for now, task in listed[:REASONS_MAX]
        ),
        interrupted=tuple(sorted(lost, key=lambda run: run.run_id)),
        load_now=ownership.load(),
        load_then=then.load(),
        ahead=forecast(upcoming, span, ownership.owner, then.owner, on_each, held_of),
        room=room_ahead(state, then, up, upcoming, span, on_each),
    )
