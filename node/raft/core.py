"""What the parts of a member's Raft know of one another: ports, which `consensus` and the parts themselves fill.

`elections`, `recovery`, `intake`, `inquiry`, `namesakes` and `transport` each need something of the others. Each of
them imports these ports, and only `consensus` imports them all and puts them together: no module imports in a circle.
"""

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from pysyncobj import SyncObjConf
from pysyncobj.node import Node

from node.identity.cluster_id import ClusterId
from node.raft.addresses import Book
from node.raft.encryption import Seal
from node.raft.founding import Founding
from node.raft.journal import SqliteJournal
from node.raft.messages import Message
from node.raft.ports import RaftTiming
from node.raft.prevote import Poll, Standing
from node.raft.snapshots import Snapshots


class ElectionsPort(Protocol):
    """When this member stands for election."""

    poll: Poll

    def gives_way(self, asking: str, standing: Standing) -> bool:
        """Whether another candidate goes first."""


class RecoveryPort(Protocol):
    """What this member may do, by what it remembers."""

    @property
    def votes(self) -> bool:
        """Whether it remembers all that it took part in."""

    @property
    def may_follow(self) -> bool:
        """Whether a leader may be heeded."""

    @property
    def may_stand(self) -> bool:
        """Whether it may ask for votes."""

    def now_votes(self) -> None:
        """It has caught up, or takes part in the first election."""

    def matches(self, term: int, index: int) -> None:
        """The log is that of the leader in `term`, up to `index`."""

    def asked(self, node: Node, message: Message) -> None:
        """A member asks how things stand."""

    def told(self, node: Node, message: Message) -> None:
        """A member has answered."""

    def question(self, message: Message) -> Message:
        """A request for votes, as it is sent."""

    def asked_for_vote(self, node: Node, message: Message) -> None:
        """A member asks for this one's vote."""

    def stamped(self, node: Node, vote: Message) -> Message:
        """A vote, as it is sent."""

    def counts(self, node: Node, vote: Message) -> bool:
        """Whether a vote that has come counts."""


class InquiryPort(Protocol):
    """What this member does towards founding."""

    founding: Founding

    @property
    def first_election(self) -> bool:
        """Whether this member may take part in the first election."""

    def same(self, message: Message) -> bool:
        """Whether a candidate stands in the founding to which this member is bound."""

    def asked(self, node: Node, message: Message) -> None:
        """A connected member asks."""

    def answer(self, message: Message) -> Message:
        """What this member says to whoever asks."""

    def answered(self, node: Node, message: Message) -> None:
        """A connected member has answered."""

    def counted_on(self, member: str, cluster_id: str) -> None:
        """A member has called this one as one of its cluster."""


class IntakePort(Protocol):
    """Takes all messages from members."""

    leader_heard_s: float

    def take(self, node: Node, message: Message) -> None:
        """Take a message from a member."""


class TransportPort(Protocol):
    """The connections with other members."""

    unlisted: set[Node]

    def send(self, node: Node, message: Message) -> bool:
        """Send a message; says whether it was sent, or is kept until the journal is on the disk."""

    def hand_on(self, node: Node, message: Message) -> None:
        """Give a message to the library."""

    def reached(self, node: Node) -> bool:
        """Whether a member is connected, and known to be the one start of it."""

    def cluster_of(self, node: Node) -> str:
        """The cluster that a connected member says it is of; empty while it is of none."""

    def others(self) -> set[Node]:
        """All other members, by the log."""

    def dials(self, node: Node) -> bool:
        """Whether this member dials that one."""

    def is_ours(self, node: Node, theirs: str) -> bool:
        """Whether a member that says which cluster it is of may be of this one."""

    def hello(self, called: Node, *, asks: bool) -> Message:
        """What the caller says first."""

    def refused_s(self, node: Node) -> float:
        """When the last dial of that member began that was refused; -inf if none was."""

    def dial_soon(self, node: Node) -> None:
        """The next dial of that member need not wait."""


class Core(Protocol):
    """The log, the term and the role of this member, and its other parts."""

    me: str
    start_id: str
    timing: RaftTiming
    conf: SyncObjConf
    encryptor: Seal
    cluster: ClusterId
    book: Book
    journal: SqliteJournal
    snapshots: Snapshots
    raftCurrentTerm: int  # noqa: N815 - the library's names, here and below
    raftCommitIndex: int  # noqa: N815
    _poller: Any

    @property
    def elections(self) -> ElectionsPort:
        """When this member stands."""

    @property
    def recovery(self) -> RecoveryPort:
        """What it may do."""

    @property
    def inquiry(self) -> InquiryPort:
        """Founding."""

    @property
    def intake(self) -> IntakePort:
        """What comes from others."""

    @property
    def transport(self) -> TransportPort:
        """The connections."""

    @property
    def is_leader(self) -> bool:
        """Whether this member leads."""

    @property
    def is_candidate(self) -> bool:
        """Whether it has asked for votes, and has not heard what came of it."""

    def hears_leader(self) -> bool:
        """Whether it leads, or has heard who leads a moment ago."""

    def is_settled(self) -> bool:
        """Whether this start may take part in elections (`claim`)."""

    def fence(self) -> int:
        """The latest term in which another start of this member may have voted (`claim`)."""

    def leader_node(self) -> Node | None:
        """The leader that was heard last in this term."""

    def members(self) -> set[str]:
        """The ids of all members, by the log as it is here."""

    def standing(self) -> Standing:
        """How far the log is."""

    def voted_in(self, term: int) -> bool:
        """Whether this member has given its vote in a term."""

    def belong_to(self, cluster_id: str) -> None:
        """Be of a cluster from now on, unless this member is of one."""

    def agreed_members(self) -> Collection[str]:
        """The members by what is known to be committed: "id host port" each."""

    def begin_with(self, cluster: Iterable[str]) -> None:
        """Nothing is in the log here: it begins with these members ("id host port" each)."""

    def next_index(self, node: Node) -> int:
        """The index of the entry that a member is sent next."""

    def keep_next_index(self, node: Node, index: int) -> None:
        """Do not send again what is under way."""

    def adopt(self, term: int) -> None:
        """A later term is known: follow, and vote for nobody yet."""

    def lost(self, node: Node) -> None:
        """A member's connection has ended."""

    def tell_all(self, message: Message) -> None:
        """Send a message to all other members."""
