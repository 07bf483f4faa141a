"""The ports by which the parts of a member's Raft know one another; `consensus` and the parts implement them.

`elections`, `amnesia_recovery`, `inbound`, `inquiry`, `duplicate_starts`, `callers` and `transport` each need something
of the others. Each of them imports these ports, and only `consensus` imports them all and puts them together: no module
imports in a circle.
"""

from collections.abc import Callable, Collection, Iterable
from random import Random
from typing import Any, Protocol

from pysyncobj import SyncObjConf
from pysyncobj.node import Node

from node.identity.cluster_id import ClusterId
from node.identity.mismatches import Mismatches
from node.raft.core.prevote import Poll, Standing
from node.raft.log.journal import SqliteJournal
from node.raft.log.snapshots import Snapshots
from node.raft.ports import RaftTiming
from node.raft.wire.addresses import AddressBook
from node.raft.wire.encryption import CallerClaim, Seal
from node.raft.wire.messages import Message

Clock = Callable[[], float]
"""Returns the seconds since some moment in the past; never goes back."""


class ElectionsPort(Protocol):
    """When this member stands for election."""

    poll: Poll

    def gives_way(self, asking: str, standing: Standing) -> bool:
        """Whether another candidate goes first."""


class RecoveryPort(Protocol):
    """Whether this member may vote, follow and stand: it may not while it may have lost its log."""

    @property
    def votes(self) -> bool:
        """Whether it remembers all that it took part in."""

    @property
    def may_follow(self) -> bool:
        """Whether it may accept what a leader sends."""

    @property
    def may_stand(self) -> bool:
        """Whether it may ask for votes."""

    def become_voter(self) -> None:
        """Note that it has caught up, or takes part in the first election."""

    def log_matches(self, term: int, index: int) -> None:
        """Note that the log equals that of the leader in `term`, up to `index`."""

    def answer(self, node: Node, message: Message) -> None:
        """Answer a member that has lost its log."""

    def answered(self, node: Node, message: Message) -> None:
        """Take a member's answer."""

    def vote_request(self, message: Message) -> Message:
        """A request for votes, as it is sent."""

    def note_candidate(self, node: Node, message: Message) -> None:
        """Note that a member asks for this one's vote."""

    def vote(self, node: Node, vote: Message) -> Message:
        """A vote, as it is sent."""

    def counts(self, node: Node, vote: Message) -> bool:
        """Whether a vote that has arrived counts."""


class InquiryPort(Protocol):
    """What this member does towards founding a cluster."""

    @property
    def founding_id(self) -> str:
        """The founding to which this member is bound; empty if it is bound to none."""

    @property
    def first_election(self) -> bool:
        """Whether this member may take part in the first election."""

    def same_founding(self, message: Message) -> bool:
        """Whether a candidate stands in the founding to which this member is bound."""

    def asked(self, node: Node, message: Message) -> None:
        """Answer a connected member's question about founding."""

    def answer(self, message: Message) -> Message:
        """This member's statement, for any node that asks."""

    def answered(self, node: Node, message: Message) -> None:
        """Take the statement of a connected member."""

    def called_by_member(self, member: str, cluster_id: str) -> None:
        """Note that a member of a cluster has connected, and takes this node for one of that cluster."""


class InboundPort(Protocol):
    """Takes all messages from members."""

    leader_heard_s: float

    def take(self, node: Node, message: Message) -> None:
        """Take a message from a member."""


class SingleCallsPort(Protocol):
    """Connections that carry one question (`single_call`)."""

    def ask(self, node: Node, question: Message, now_s: float, again_s: float) -> None:
        """Call a node, unless a call is under way, or the last one began less than `again_s` ago."""

    def soon(self, node: Node) -> None:
        """Let the next call to that node begin without a pause."""

    def under_way(self, node: Node) -> Any:
        """The connection of the call to that node, if there is one."""

    def called(self) -> list[Node]:
        """The nodes to which a call is under way."""

    def begun_s(self, node: Node) -> float:
        """When the last call to that node began; -inf if there was none."""

    def refused_s(self, node: Node) -> float:
        """When the last call to that node began that was answered with "connection refused"; -inf if none was."""

    def hang_up(self, node: Node) -> None:
        """End the call to that node, if there is one."""

    def close(self) -> None:
        """End all calls."""


class TransportPort(Protocol):
    """The connections with other members."""

    unlisted: set[Node]

    def send(self, node: Node, message: Message) -> bool:
        """Send a message. Returns whether it was sent, or is kept until the journal is on the disk."""

    def pass_to_library(self, node: Node, message: Message) -> None:
        """Give a message to the library."""

    def reached(self, node: Node) -> bool:
        """Whether a member is connected, by a process that is known to be the only one of that member."""

    def cluster_of(self, node: Node) -> str:
        """The cluster to which a connected member says that it belongs; empty while it belongs to none."""

    def others(self) -> set[Node]:
        """All other members, by the log."""

    def dials(self, node: Node) -> bool:
        """Whether this member dials that member, instead of being dialled by it."""

    def is_ours(self, node: Node, cluster_id: str) -> bool:
        """Whether a member that names this cluster may belong to this member's."""

    def hello(self, called: Node, *, asks: bool) -> Message:
        """The first message of a dialler."""

    def refused_s(self, node: Node) -> float:
        """When the last dial of that member began whose connection was refused; -inf if none was."""

    def dial_soon(self, node: Node) -> None:
        """Let the next dial of that member begin without a pause."""


class RaftCore(Protocol):
    """The log, the term and the role of this member, its other parts, and what it takes from outside."""

    me: str
    start_id: str
    version: str
    mismatches: Mismatches
    timing: RaftTiming
    conf: SyncObjConf
    encryptor: Seal
    cluster: ClusterId
    book: AddressBook
    journal: SqliteJournal
    snapshots: Snapshots
    raftCurrentTerm: int  # noqa: N815 - the library's names, here and below
    raftCommitIndex: int  # noqa: N815
    _poller: Any

    @property
    def claim(self) -> CallerClaim:
        """What this member says of itself to those that it calls, before either side has proved anything."""

    @property
    def clock(self) -> Clock:
        """The monotonic clock, in seconds, of all times in this package."""

    @property
    def rng(self) -> Random:
        """The source of randomness."""

    @property
    def elections(self) -> ElectionsPort:
        """When this member stands for election."""

    @property
    def recovery(self) -> RecoveryPort:
        """Whether this member may vote, follow and stand."""

    @property
    def inquiry(self) -> InquiryPort:
        """The questions to other members about founding the cluster."""

    @property
    def inbound(self) -> InboundPort:
        """Takes the messages of other members."""

    @property
    def transport(self) -> TransportPort:
        """The connections to the other members."""

    @property
    def is_leader(self) -> bool:
        """Whether this member leads."""

    @property
    def is_candidate(self) -> bool:
        """Whether it has asked for votes, and the election is still open."""

    def single_calls(
        self, on_answer: Callable[[Node, Any, Message], None], on_end: Callable[[Node], None] = ...
    ) -> SingleCallsPort:
        """Connections that carry one question; the arguments are those of `single_call.SingleCalls`."""

    def hears_leader(self) -> bool:
        """Whether it leads, or has heard the leader within `timing.quorum_s`."""

    def is_settled(self) -> bool:
        """Whether this start may take part in elections (`start_claim`)."""

    def fence(self) -> int:
        """The latest term in which another start of this member may have voted (`start_claim`)."""

    def leader_node(self) -> Node | None:
        """The leader that was heard last in this term."""

    def members(self) -> set[str]:
        """The ids of all members, by the log as it is here."""

    def standing(self) -> Standing:
        """How far the log reaches."""

    def voted_in(self, term: int) -> bool:
        """Whether this member has given its vote in a term."""

    def join_cluster(self, cluster_id: str) -> None:
        """Belong to a cluster from now on, unless this member belongs to one."""

    def agreed_members(self) -> Collection[str]:
        """The members by what is known to be committed: "id host port" each."""

    def begin_with(self, cluster: Iterable[str]) -> None:
        """Let the log, which is empty, begin with these members ("id host port" each)."""

    def next_index(self, node: Node) -> int:
        """The index of the entry that a member is sent next."""

    def keep_next_index(self, node: Node, index: int) -> None:
        """Keep the index of the entry that a member is sent next from moving back to entries that are under way."""

    def adopt_term(self, term: int) -> None:
        """Follow in a later term, without a vote in it yet."""

    def connection_lost(self, node: Node) -> None:
        """Note that a member's connection has ended."""

    def send_to_all(self, message: Message) -> None:
        """Send a message to all other members."""
