"""Finds which members may run a task, in which order, and why."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from hashing.succession import succession
from hashing.view import Slot, Task

Verdict = Literal["down", "draining", "vacant", "group", "kind", "full", "chosen"]


class Reason(NamedTuple):
    """The verdict on one member in the walk to a task's owner. `member` is None for a vacant slot."""

    member: str | None
    verdict: Verdict


def obstacle(slot: Slot, kind: str, group: Iterable[tuple[str, str]]) -> Verdict | None:
    """Return why the member in `slot` may not run tasks of this kind and group; None if it is eligible."""
    if slot.member is None:
        return "vacant"
    if slot.status != "up":
        return slot.status
    if not set(group).issubset(slot.labels):
        return "group"
    return None if kind in slot.kinds else "kind"


def seats(slots: Sequence[Slot]) -> dict[str, int]:
    """Return the slot of each member."""
    return {slot.member: position for position, slot in enumerate(slots) if slot.member is not None}


def walk(slots: Sequence[Slot], task: Task) -> Iterator[int | str]:
    """Yield the slots of the task's pin, its incumbent, then its succession: each slot once, eligible or not.

    If a pin or an incumbent is in no slot (it was removed, or has not joined yet), its id is yielded instead.
    """
    by_member = seats(slots)
    before: list[int | str] = []
    for member in (task.pin, task.incumbent):
        if member is not None and (place := by_member.get(member, member)) not in before:
            before.append(place)
    yield from before
    yield from (slot for slot in succession(task.key64, len(slots)) if slot not in before)


def preference(slots: Sequence[Slot], task: Task) -> list[int]:
    """Return the slots of the members that may run the task, in the order in which they would take it."""
    return [
        place
        for place in walk(slots, task)
        if isinstance(place, int) and obstacle(slots[place], task.kind, task.group) is None
    ]


def because(slots: Sequence[Slot], task: Task, owner: int | None) -> list[Reason]:
    """Explain why slot `owner` (from `hashing.placement.place`) has the task. Returns the verdicts up to this slot.

    The last verdict is `chosen`. Eligible members before it are `full`. A pin or an incumbent that is no member (any
    more) is `vacant`. For a task without an owner, the verdicts on all slots are returned.
    """
    found: list[Reason] = []
    for place in walk(slots, task):
        if isinstance(place, str):
            found.append(Reason(place, "vacant"))
            continue
        member = slots[place].member
        if place == owner:
            found.append(Reason(member, "chosen"))
            break
        found.append(Reason(member, obstacle(slots[place], task.kind, task.group) or "full"))
    return found
