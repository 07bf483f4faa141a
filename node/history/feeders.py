"""Decides which member feeds one that lacks finished runs: the owner of the task `bootstrap/MEMBER`. Pure.

The rule is that of tasks (`hashing.succession`): the key's succession over the slots, without the member itself and
members that are down. Draining members come last, because they may leave before they have sent their runs. Room and
labels play no part.
"""

from collections.abc import Container, Iterator, Sequence

from hashing.key import key64
from hashing.preference import Reason, Verdict
from hashing.succession import succession
from hashing.view import Slot
from node.peer.bootstrap import task_of


def feeders(slots: Sequence[Slot], member: str) -> list[str]:
    """Return the members that may feed `member`, in their order. The first is the owner of its bootstrap.

    >>> slots = [Slot("a"), Slot("b"), Slot("c", "down"), Slot("d")]
    >>> feeders(slots, "d"), feeders([Slot("a"), Slot("b", "draining"), *slots[2:]], "d"), feeders(slots[2:], "d")
    (['b', 'a'], ['a', 'b'], [])
    """
    order = [(name, slot.status) for name, slot in _others(slots, member) if name is not None]
    return [name for wanted in ("up", "draining") for name, status in order if status == wanted]


def next_feeder(slots: Sequence[Slot], member: str, asked: Container[str]) -> str | None:
    """Return the first feeder that has not been asked yet; None if all have been asked."""
    return next((feeder for feeder in feeders(slots, member) if feeder not in asked), None)


def why_feeder(slots: Sequence[Slot], member: str) -> list[Reason]:
    """Explain the owner of a member's bootstrap, as for a task: the verdicts on it and on the members before it.

    >>> [tuple(reason) for reason in why_feeder([Slot("a"), Slot("b", "down"), Slot("d")], "d")]
    [('b', 'down'), ('a', 'chosen')]
    """
    chosen = next(iter(feeders(slots, member)), None)
    reasons: list[Reason] = []
    for name, slot in _others(slots, member):
        if name is not None and name == chosen:
            return [*reasons, Reason(name, "chosen")]
        reasons.append(Reason(name, _obstacle(slot)))
    return reasons


def _others(slots: Sequence[Slot], member: str) -> Iterator[tuple[str | None, Slot]]:
    """Return the slots in the order of the succession, without the member's own."""
    order = (slots[position] for position in succession(key64(task_of(member)), len(slots)))
    return ((slot.member, slot) for slot in order if slot.member != member)


def _obstacle(slot: Slot) -> Verdict:
    if slot.member is None:
        return "vacant"
    return "down" if slot.status == "down" else "draining"
