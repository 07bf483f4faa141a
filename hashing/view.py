"""The input of placement: slots, with or without a member, and tasks. Plain values, made from the replicated state."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Status = Literal["up", "down", "draining"]

NO_LABELS: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Slot:
    """One position in the hash space."""

    #: The member in the slot; None: the slot is vacant.
    member: str | None
    #: The status of the member.
    status: Status = "up"
    #: The labels of the member as sorted pairs.
    labels: tuple[tuple[str, str], ...] = NO_LABELS
    #: The capacity of the member, an integer from 1 to 1,000,000.
    capacity: int = 1
    #: The kinds that the member offers.
    kinds: frozenset[str] = frozenset()

    @property
    def zone(self) -> str | None:
        """The value of the label `zone`, if there is one."""
        return next((value for name, value in self.labels if name == "zone"), None)


class Task(NamedTuple):
    """The values of one task that placement needs."""

    #: The task's name.
    name: str
    #: `hashing.key.key64` of the task's key or name.
    key64: int
    #: The task's kind.
    kind: str
    #: The labels that a member must have, as sorted pairs.
    group: tuple[tuple[str, str], ...] = NO_LABELS
    #: The preferred member; None: no preference.
    pin: str | None = None
    #: The member that made the last claim, if the task is sticky; None: no claim yet, or the task is not sticky.
    incumbent: str | None = None
    #: Its weight, an integer from 1 to 1,000,000; 0: it burdens no member.
    weight: int = 1
    #: How many standbys it has.
    standbys: int = 0
