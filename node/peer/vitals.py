"""The facts about a member that only it knows. It sends them to other members on request.

A vital is a field of `MemberVitals`. The views of the API and the function that reads them are derived from the fields.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict


@dataclass(frozen=True, slots=True)
class MemberVitals:
    """The facts that a member reports about itself.

    A field that is added later has a default, because members of earlier versions do not send it.
    """

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
    #: A sentence for each confinement of tasks that is missing, and for each limit that is not enforced.
    not_kept: Sequence[str] = ()


TYPES: Final[Mapping[str, Any]] = get_type_hints(MemberVitals)
"""The type of each vital, by name, in the order of the fields."""

if TYPE_CHECKING:

    class PeerVitalsView(TypedDict):
        """The vitals as they are sent. mypy knows none of the fields, since they are derived below."""

else:
    PeerVitalsView = TypedDict("PeerVitalsView", TYPES)
    PeerVitalsView.__doc__ = "The facts about this member that only it knows (`node.peer.vitals`)."


def read_vitals(answer: Any) -> MemberVitals | None:
    """Read vitals from JSON; None if the member sent none. Raises `TypeError`, or `ValueError` for a wrong type.

    A vital that only a later version knows is left out. One that the other member does not know yet has its default.

    >>> read_vitals({"vitals": {"version": "1", "lease_held": True, "moon": "full"}}).version, read_vitals({})
    ('1', None)
    """
    told = answer.get("vitals")
    return None if told is None else MemberVitals(**{name: _read(name, told[name]) for name in TYPES if name in told})


def _read(name: str, value: Any) -> Any:
    try:
        return _reader(name).validate_python(value, strict=True)
    except ValidationError as error:
        raise ValueError(f"vitals.{name}: {error.errors()[0]['msg']}") from error


@cache
def _reader(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(TYPES[name])
