"""A node's statement for founding a cluster, and the promises that it keeps on its disk (pure; see `founding`)."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Statement:
    """A node's statement about itself. Below, "it" is the node. The names are those of the message's fields."""

    #: The node's id.
    member: str
    #: The number of its data folder's life: a folder that replaces a lost one has a greater number.
    life: int
    #: A digest of its list of members and of the nodes left out by hand.
    roll: str
    #: Whether it is blank (no log, no vote, no news of a cluster), and would bind itself.
    free: bool
    #: The founding to which it is bound; "": it is not bound.
    founding: str = ""
    #: Whether it knows that all nodes of its founding are bound to it.
    complete: bool = False
    #: The cluster to which it belongs (`belongs`), or one that it has heard of; "": no cluster.
    cluster_id: str = ""
    #: A member of that cluster: this node if it belongs to the cluster; "": no cluster.
    told_by: str = ""
    #: Whether it belongs to the cluster itself.
    belongs: bool = False
    #: Its list, or the members of its cluster by its log; empty in a question.
    members: tuple[str, ...] = ()
    #: The nodes left out by hand; empty in a question.
    without: tuple[str, ...] = ()

    def question(self) -> dict[str, Any]:
        """Return the fields of a question. It has no lists, so that an unidentified caller may send it."""
        return {**self.message(), "members": [], "without": []}

    def message(self) -> dict[str, Any]:
        """Return the fields of an answer."""
        return {**asdict(self), "members": list(self.members), "without": list(self.without)}


def read_statement(message: Mapping[str, Any]) -> Statement:
    """Return the statement in a message. Raises KeyError, TypeError or ValueError if the message has none."""
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
    """A cluster that a node has heard of: its id, and the member that the node heard of."""

    cluster_id: str
    by: str

    def note(self) -> str:
        """Return the text of the journal's note."""
        return f"{self.cluster_id} {self.by}"


def read_known_cluster(note: str) -> KnownCluster | None:
    """Parse the text of `KnownCluster.note`. Returns None for an empty note."""
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
        """Return the text of the journal's note."""
        return json.dumps([self.founding, sorted(self.listed), sorted(self.without)])


def read_binding(note: str) -> Binding | None:
    """Parse the text of `Binding.note`. Returns None for an empty note."""
    if not note:
        return None
    founding, listed, without = json.loads(note)
    return Binding(founding, frozenset(listed), frozenset(without))
