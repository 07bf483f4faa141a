"""The difference between two placements: which tasks move, and the load of each member."""

from collections.abc import Sequence
from typing import NamedTuple

from hashing.placement import Placement
from hashing.view import Slot, Task


class Move(NamedTuple):
    """A task whose owner changes from `source` to `target`. None: no owner, because no member is eligible."""

    task: str
    source: str | None
    target: str | None


def moves(tasks: Sequence[Task], before: Placement, after: Placement, slots: Sequence[Slot]) -> list[Move]:
    """Return the tasks whose owner changes, in the order of `tasks`.

    Both placements must be of these `tasks` over these `slots`. Only the members' status and labels may differ, as in
    the preview of a failure. Raises `ValueError` if a placement is of another number of tasks.
    """
    return [
        Move(task.name, _member(slots, source), _member(slots, target))
        for task, source, target in zip(tasks, before.owners, after.owners, strict=True)
        if source != target
    ]


def _member(slots: Sequence[Slot], slot: int | None) -> str | None:
    return None if slot is None else slots[slot].member


def load_of(placement: Placement, slots: Sequence[Slot]) -> dict[str, int]:
    """Return the weight of the tasks that each member owns, by its id."""
    return {slot.member: load for slot, load in zip(slots, placement.load, strict=True) if slot.member is not None}
