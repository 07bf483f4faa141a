"""What an update of the cluster means to clients that follow it: member, owner, run and deadline events. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from node.http.node_port import ClusterUpdate, PlacementComputed
from node.http.views import breach_view, ended_view, held_by_member, member_view, run_view
from node.replication.state_machine import StateChange
from node.state.times import rfc3339
from node.state.value import DeadlineEvent, State


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Something that happened. `name` is member, owner, run or deadline; `index` is that of the state that shows it."""

    name: str
    index: int
    data: dict[str, Any]


def events_of(update: ClusterUpdate) -> Iterator[ClusterEvent]:
    """The events of one update."""
    if isinstance(update, PlacementComputed):
        yield from _owner_events(update)
        return
    if update.before.members is not update.after.members:
        yield from _member_events(update.before, update.after)
    yield from _run_events(update)
    for index, judged in update.deadlines:
        yield ClusterEvent("deadline", index, _deadline_data(judged))


def event_bytes(event_id: str, event: ClusterEvent) -> bytes:
    """An event in the text/event-stream format.

    >>> event_bytes("7-b-1", ClusterEvent("owner", 7, {"task": "a"})).splitlines()
    [b'id: 7-b-1', b'event: owner', b'data: {"task":"a"}', b'']
    """
    data = to_json(event.data, inf_nan_mode="null").decode()
    return f"id: {event_id}\nevent: {event.name}\ndata: {data}\n\n".encode()


def _member_events(before: State, after: State) -> Iterator[ClusterEvent]:
    held = held_by_member(after.runs.values())
    for name, member in sorted(after.members.items()):
        if before.members.get(name) != member:
            view: dict[str, Any] = {**member_view(member, {}, held, {})}
            del view["load"]  # the placement is computed later, and has events of its own
            del view["bootstrap"]  # not a part of the state
            yield ClusterEvent("member", after.index, view)
    for name, member in sorted(before.members.items()):
        if name not in after.members:
            yield ClusterEvent("member", after.index, {"id": name, "slot": member.slot, "status": "left"})


def _run_events(change: StateChange) -> Iterator[ClusterEvent]:
    before, after = change.before, change.after
    touched = change.touched if change.touched is not None else {*before.runs_of, *after.runs_of}
    for _, ended in change.ended:
        yield ClusterEvent("run", after.index, _summary(dict(ended_view(ended))))
    for task in sorted(touched):
        for run_id in after.runs_of.get(task, ()):
            run = after.runs[run_id]
            if before.runs.get(run_id) is not run:
                yield ClusterEvent("run", after.index, _summary(dict(run_view(run))))


def _deadline_data(judged: DeadlineEvent) -> dict[str, Any]:
    """A deadline that was breached, or is no more."""
    return {
        "task": judged.task,
        "change": judged.change,
        "at": rfc3339(judged.at_us),
        **breach_view(judged.breach),
    }


def _summary(run: dict[str, Any]) -> dict[str, Any]:
    """A run without its long fields (attempts, checkpoint) and what only its member knows (its progress)."""
    left_out = ("attempts", "checkpoint", "progress", "frozen_since")
    return {name: value for name, value in run.items() if name not in left_out}


def _owner_events(update: PlacementComputed) -> Iterator[ClusterEvent]:
    before, after = update.before, update.after
    if before is None:
        return
    state = after.state
    tasks = list(state.tasks)
    deleted = set(before.state.tasks).difference(tasks) if before.state.tasks is not state.tasks else set()
    tasks += sorted(deleted)
    # Each placement compares the owners of all tasks: `map` spares a step of Python for each.
    for task, old, new in zip(tasks, map(before.owner, tasks), map(after.owner, tasks), strict=True):
        if old != new:
            yield ClusterEvent("owner", state.index, {"task": task, "from": old, "to": new, "epoch": state.epoch})
