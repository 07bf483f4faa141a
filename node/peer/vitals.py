"""The facts about a member that only it knows. It sends them to other members on request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import TypedDict


@dataclass(frozen=True, slots=True)
class MemberVitals:
    """The facts that a member reports about itself."""

    #: The version of its build.
    version: str
    #: Whether it holds a lease.
    lease_held: bool
    #: The size of its disk; None: not measured yet.
    disk_total_bytes: int | None = None
    #: The free space of its disk; None: not measured yet.
    disk_free_bytes: int | None = None
    #: How far its machine's wall clock is ahead of the time that the members agree on, in microseconds; None: they have
    #: not agreed yet.
    clock_off_us: int | None = None
    #: Why it does not offer kinds, by kind.
    unoffered: Mapping[str, str] = field(default_factory=dict)
    #: Sentences about what the member does not keep its tasks from.
    not_kept: Sequence[str] = ()


class PeerVitalsView(TypedDict):
    """The facts about this member that only it knows (`node.peer.vitals`)."""

    version: str
    lease_held: bool
    disk_total_bytes: int | None
    disk_free_bytes: int | None
    clock_off_us: int | None
    unoffered: dict[str, str]
    not_kept: list[str]


def read_vitals(answer: Any) -> MemberVitals | None:
    """Vitals out of JSON; None if the member sent none. Raises `TypeError`.

    >>> read_vitals({"vitals": {"version": "1", "lease_held": True}}).version, read_vitals({})
    ('1', None)
    """
    told = answer.get("vitals")
    return None if told is None else MemberVitals(**told)
