"""What a node says of itself towards founding a cluster, and what it promises on its disk (pure; `founding`)."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Statement:
    """What a node says of itself. The names are those of the message's fields."""

    #: The node's id.
    member: str
    #: The number of the life of its data folder.
    life: int
    #: A digest of its list and of the nodes left out by hand.
    roll: str
    #: Whether it has nothing, and would bind itself.
    free: bool
    #: The founding to which it is bound; "": it is bound to none.
    founding: str = ""
    #: Whether it knows that all are bound to that founding.
    complete: bool = False
    #: Its cluster (`belongs`), or one that it has heard of; "": neither.
    cluster_id: str = ""
    #: The member of the cluster that it has heard of; "": it has heard of none.
    told_by: str = ""
    #: Whether it belongs to the cluster itself.
    belongs: bool = False
    #: Its list, or the members of its cluster by its log; empty in a question.
    members: tuple[str, ...] = ()
    #: The nodes left out by hand; empty in a question.
    without: tuple[str, ...] = ()

    def question(self) -> dict[str, Any]:
        """The fields of a question: short enough for a caller that is not known, however long the list."""
        return {**self.message(), "members": [], "without": []}

    def message(self) -> dict[str, Any]:
        """The fields of an answer."""
        return {**asdict(self), "members": list(self.members), "without": list(self.without)}


def read_statement(message: Mapping[str, Any]) -> Statement:
    """The statement in a message. Raises KeyError, TypeError or ValueError if there is none."""
    return Statement(
        member=str(message["member"]),
        life=int(message["life"]),
        roll=str(message["roll"]),
        free=bool(message["free"]),
        founding=str(message["founding"]),
        complete=bool(message["complete"]),
        cluster_id=str(message["cluster_id"]),
        told_by=str(message["told_by"]),
        belongs=bool(message["belongs"]),
        members=tuple(str(one) for one in message["members"]),
        without=tuple(str(one) for one in message["without"]),
    )


@dataclass(frozen=True, slots=True)
class KnownCluster:
    """A cluster that a node has heard of: its id, and a member of it."""

    cluster_id: str
    by: str

    def note(self) -> str:
        """The text of the journal's note."""
        return f"{self.cluster_id} {self.by}"


def read_known_cluster(note: str) -> KnownCluster | None:
    """Reads what `KnownCluster.note` has written; None if it is empty."""
    cluster_id, _, by = note.partition(" ")
    return KnownCluster(cluster_id, by) if cluster_id else None


@dataclass(frozen=True, slots=True)
class Binding:
    """The founding to which a node is bound, its list, and the nodes left out of it by hand."""

    founding: str
    listed: frozenset[str]
    without: frozenset[str] = frozenset()

    @property
    def members(self) -> frozenset[str]:
        """The nodes that found the cluster."""
        return self.listed - self.without

    def note(self) -> str:
        """The text of the journal's note."""
        return json.dumps([self.founding, sorted(self.listed), sorted(self.without)])


def read_binding(note: str) -> Binding | None:
    """Reads what `Binding.note` has written; None if it is empty."""
    if not note:
        return None
    founding, listed, without = json.loads(note)
    return Binding(founding, frozenset(listed), frozenset(without))
