"""The input of placement: slots, with or without a member, and tasks. Plain values, made from the replicated state."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Status = Literal["up", "down", "draining"]

NO_LABELS: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Slot:
    """One position in the hash space. A vacant slot has `member` None.

    `labels` are sorted pairs; `capacity` is an integer from 1 to 1,000,000; `kinds` are the kinds that the member
    offers.
    """

    member: str | None
    status: Status = "up"
    labels: tuple[tuple[str, str], ...] = NO_LABELS
    capacity: int = 1
    kinds: frozenset[str] = frozenset()

    @property
    def zone(self) -> str | None:
        """The value of the label `zone`, if there is one."""
        return next((value for name, value in self.labels if name == "zone"), None)


class Task(NamedTuple):
    """The values of one task that placement needs. `key64` is `hashing.key.key64` of its key or name.

    `group` holds sorted label pairs, all of which a member must have. `incumbent` is, for sticky tasks only, the member
    that made the last claim.
    """

    name: str
    key64: int
    kind: str
    group: tuple[tuple[str, str], ...] = NO_LABELS
    pin: str | None = None
    incumbent: str | None = None
    weight: int = 1
    standbys: int = 0
