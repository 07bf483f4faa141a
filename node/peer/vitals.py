"""What a member alone knows of itself, and tells the others when it is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class MemberVitals:
    """What a member says of itself.

    `disk_*` None: its disk has not been measured yet. `clock_off_us` is how far its machine's wall clock is ahead of
    the time that the members agree on; None: they have not agreed yet. `unoffered` says of each kind why it does not
    offer it. `not_kept` are sentences about what tasks there are not kept from.
    """

    version: str
    lease_held: bool
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    clock_off_us: int | None = None
    unoffered: Mapping[str, str] = field(default_factory=dict)
    not_kept: Sequence[str] = ()


def read_vitals(answer: Any) -> MemberVitals | None:
    """Vitals out of JSON; None if a member of an earlier version sent none. Raises `KeyError` or `TypeError`.

    >>> read_vitals({"vitals": {"version": "1", "lease_held": True}}).version, read_vitals({})
    ('1', None)
    """
    told = answer.get("vitals")
    return None if told is None else MemberVitals(**told)
