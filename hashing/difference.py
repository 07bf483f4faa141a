"""What changes from one placement to another: which tasks move, and who carries how much."""

from collections.abc import Sequence
from typing import NamedTuple

from hashing.placement import Placement
from hashing.view import Slot, Task


class Move(NamedTuple):
    """A task whose owner changes. None: nobody could run it before, or can after."""

    task: str
    source: str | None
    target: str | None


def moves(tasks: Sequence[Task], before: Placement, after: Placement, slots: Sequence[Slot]) -> list[Move]:
    """The tasks whose owner is another one after than before, in the order of `tasks`.

    Both placements are of these `tasks`, over `slots` (members' status and labels apart, as for the preview of
    a failure). Raises `ValueError` if the placements are not of as many tasks.
    """
    return [
        Move(task.name, _member(slots, source), _member(slots, target))
        for task, source, target in zip(tasks, before.owners, after.owners, strict=True)
        if source != target
    ]


def _member(slots: Sequence[Slot], slot: int | None) -> str | None:
    return None if slot is None else slots[slot].member


def load_of(placement: Placement, slots: Sequence[Slot]) -> dict[str, int]:
    """The weight that each member has been given, by its id."""
    return {slot.member: load for slot, load in zip(slots, placement.load, strict=True) if slot.member is not None}
