"""The owner of each task, for one state: the placement is computed once, and then read many times.

An `Ownership` is immutable, like the state that it comes from: it is made off the event loop and read from any thread.
The placement without a member is computed when it is requested. Values derived from the tasks are kept from one epoch
to the next, so that after a member's death only the placement is computed anew.
"""

from collections.abc import Collection
from dataclasses import replace
from itertools import islice
from operator import attrgetter, itemgetter
from typing import NamedTuple

from hashing.chunked import dict_in_chunks, list_in_chunks, sorted_in_chunks
from hashing.columns import Columns
from hashing.moves import Move, load_of, moves
from hashing.placement import limits, place, standbys
from hashing.preference import Reason, because, preference
from hashing.view import Slot, Task
from node.state.value import State


class _Entry(NamedTuple):
    """A task's place in the roll. `order` distinguishes a task from a deleted one that had the same name."""

    order: int
    placing: Task


_Roll = dict[str, _Entry]
"""All tasks by name, in the order in which they were registered."""


class Ownership:
    """The owners of all tasks in `state`. Immutable. Make the first by `Ownership.of`, and later ones by `follow`."""

    def __init__(self, state: State, roll: _Roll, columns: Columns, slots: tuple[Slot, ...]) -> None:
        self.state = state
        self._roll = roll
        self._columns = columns
        self._slots = slots
        self._placement = place(slots, columns, state.settings.balance_slack_milli)
        self._owners = dict_in_chunks(zip(map(itemgetter(0), columns.tasks), self._placement.owners, strict=True))
        self._without: dict[str, Ownership] = {}

    @classmethod
    def of(cls, state: State) -> "Ownership":
        """Compute the ownership of a state from scratch."""
        rows = sorted_in_chunks(state.tasks.values(), key=attrgetter("order"))
        roll = {row.placing.name: _Entry(row.order, row.placing) for row in rows}
        return cls(state, roll, Columns(_tasks(roll)), state.seats())

    def follow(self, state: State, touched: Collection[str] | None = None) -> "Ownership":
        """Return the ownership of a later state; it is this object if no input of placement has changed since.

        `touched` must contain every task that was registered, changed or deleted between the two states, and may
        contain others; None: all tasks may have changed.
        """
        if state.epoch == self.state.epoch:
            return self
        if touched is None:
            return Ownership.of(state)
        roll = _updated(self._roll, state, touched)
        columns = self._columns if roll is self._roll else self._columns.followed_by(_tasks(roll))
        return Ownership(state, roll, columns, state.seats())

    def without(self, members: Collection[str]) -> "Ownership":
        """Compute the ownership as if these members were down. Unknown names change nothing."""
        slots = tuple(replace(slot, status="down") if slot.member in members else slot for slot in self._slots)
        return Ownership(self.state, self._roll, self._columns, slots)

    def supposing(self, state: State) -> "Ownership":
        """Compute the ownership as if the members were as they are in `state`."""
        return Ownership(self.state, self._roll, self._columns, state.seats())

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots among which the tasks are placed."""
        return self._slots

    def owner(self, task: str, /) -> str | None:
        """Return the task's owner; None if no member may run it, or the task is not known."""
        return self._member(self._owners.get(task))

    def first(self, count: int) -> list[str]:
        """Return the names of the first `count` tasks that were registered."""
        return list(islice(self._roll, count))

    def explain(self, task: str) -> list[Reason]:
        """Say why the task has this owner: the verdict on its pin, its incumbent, and each successor up to the owner.

        This method, `preference` and `standbys` raise `KeyError` for a task that is not known.
        """
        return because(self._slots, self._roll[task].placing, self._owners[task])

    def preference(self, task: str) -> list[str]:
        """Return the members that may run the task, in the order in which they would take it."""
        return self._members(preference(self._slots, self._roll[task].placing))

    def standbys(self, task: str) -> list[str]:
        """Return the members that stand by for the task's owner."""
        return self._members(standbys(self._slots, self._roll[task].placing, self._owners[task]))

    def guards(self, task: str, holder: str, /) -> list[str]:
        """Return the members that should be ready to take over a run of `task` from `holder`: as many as its standbys.

        The first of them would own the task if `holder` were down. It need not be the next member by preference, since
        members may be full. The others are standbys. Empty if the task is not known, or no member may run it.
        """
        if self._owners.get(task) is None:
            return []
        if holder not in self._without:
            self._without[holder] = self.without({holder})
        names = dict.fromkeys([self._without[holder].owner(task), *self.standbys(task)])
        able = [name for name in names if name is not None and name != holder]
        return able[: self._roll[task].placing.standbys]

    def load(self) -> dict[str, int]:
        """Return the weight of the tasks that each member owns."""
        return load_of(self._placement, self._slots)

    def limits(self) -> dict[str, int]:
        """Return the load up to which each member has room. Only tasks whose eligible members are full exceed it."""
        found = limits(self._slots, self._columns.weight, self.state.settings.balance_slack_milli)
        return {slot.member: limit for slot, limit in zip(self._slots, found, strict=True) if slot.member is not None}

    def moves_to(self, after: "Ownership") -> list[Move]:
        """Return the tasks that have another owner in `after`, which must be a preview of this ownership or vice versa.

        Raises `ValueError` if `after` is an ownership of other tasks.
        """
        if after._columns is not self._columns:
            raise ValueError("moves are between two placements of the same tasks: compare with a preview (without)")
        return moves(self._columns.tasks, self._placement, after._placement, self._slots)

    def _member(self, slot: int | None) -> str | None:
        return None if slot is None else self._slots[slot].member

    def _members(self, slots: list[int]) -> list[str]:
        return [member for slot in slots if (member := self._slots[slot].member) is not None]


def _tasks(roll: _Roll) -> tuple[Task, ...]:
    return tuple(list_in_chunks(map(itemgetter(1), roll.values())))


def _updated(roll: _Roll, state: State, touched: Collection[str]) -> _Roll:
    """Return the roll with the touched tasks as they are in `state`; the same object if no task differs."""
    now = {name: state.tasks.get(name) for name in touched}
    entries = {name: None if row is None else _Entry(row.order, row.placing) for name, row in now.items()}
    changed = {name: entry for name, entry in entries.items() if entry != roll.get(name)}
    if not changed:
        return roll
    updated = dict(roll)
    for name, entry in changed.items():
        known = updated.get(name)
        if entry is not None and known is not None and entry.order == known.order:
            updated[name] = entry  # the task keeps its place
        else:
            updated.pop(name, None)
    # Registration numbers only grow: a new task comes after all others.
    fresh = [entry for name, entry in changed.items() if entry is not None and name not in updated]
    updated.update((entry.placing.name, entry) for entry in sorted(fresh, key=itemgetter(0)))
    return updated
