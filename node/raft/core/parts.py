"""The protocols through which the parts of a member's Raft use one another; `consensus` and the parts implement them.

`elections`, `amnesia_recovery`, `inbound`, `inquiry`, `duplicate_starts`, `callers` and `transport` all call one
another. To avoid circular imports, each of them imports these protocols only, and `consensus` imports and combines all.
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
"""A monotonic clock: a function that returns the seconds since some moment in the past."""


class ElectionsPort(Protocol):
    """Decides when this member stands for election."""

    poll: Poll

    def gives_way(self, asking: str, standing: Standing) -> bool:
        """Whether this member lets the candidate `asking` go first."""


class RecoveryPort(Protocol):
    """Decides whether this member may vote, follow and stand for election, after it may have lost its log."""

    @property
    def votes(self) -> bool:
        """Whether this member remembers all its votes and acknowledgements, so that it may vote."""

    @property
    def may_follow(self) -> bool:
        """Whether this member may accept a leader's entries and snapshots."""

    @property
    def may_stand(self) -> bool:
        """Whether this member may ask for votes."""

    def become_voter(self) -> None:
        """Note that this member has caught up, or takes part in the cluster's first election, and votes from now on."""

    def log_matches(self, term: int, index: int) -> None:
        """Note that the log equals the log of the leader in `term`, up to `index`."""

    def answer(self, node: Node, message: Message) -> None:
        """Answer a member that has lost its log."""

    def answered(self, node: Node, message: Message) -> None:
        """Handle the answer of a member that this one asked after losing its log."""

    def vote_request(self, message: Message) -> Message:
        """Add the fields for `vote` to a request for votes that is to be sent."""

    def note_candidate(self, node: Node, message: Message) -> None:
        """Note that a member has asked for this one's vote."""

    def vote(self, node: Node, vote: Message) -> Message:
        """Add the fields for `counts` to a vote that is to be sent."""

    def counts(self, node: Node, vote: Message) -> bool:
        """Whether a received vote counts."""


class InquiryPort(Protocol):
    """This member's part in founding a cluster."""

    @property
    def founding_id(self) -> str:
        """The id of the founding to which this member is bound; empty if it is not bound."""

    @property
    def first_election(self) -> bool:
        """Whether this member may take part in the first election."""

    def same_founding(self, message: Message) -> bool:
        """Whether a candidate is bound to the same founding as this member."""

    def asked(self, node: Node, message: Message) -> None:
        """Answer a connected member's question about founding."""

    def answer(self, message: Message) -> Message:
        """Return the answer to a node's question about founding: this member's statement."""

    def answered(self, node: Node, message: Message) -> None:
        """Handle the statement of a connected member."""

    def called_by_member(self, member: str, cluster_id: str) -> None:
        """Note that a member of a cluster has connected, and regards this node as a member of the same cluster."""


class InboundPort(Protocol):
    """Handles all messages from members."""

    leader_heard_s: float

    def take(self, node: Node, message: Message) -> None:
        """Handle a message from a member."""


class SingleCallsPort(Protocol):
    """Connections that carry one question (`single_call`)."""

    def ask(self, node: Node, question: Message, now_s: float, again_s: float) -> None:
        """Call a node, unless a call is under way, or the last one began less than `again_s` ago."""

    def soon(self, node: Node) -> None:
        """Let the next call to a node begin without a pause."""

    def under_way(self, node: Node) -> Any:
        """Return the connection of the call to a node, if a call is under way."""

    def called(self) -> list[Node]:
        """Return the nodes to which a call is under way."""

    def begun_s(self, node: Node) -> float:
        """Return when the last call to a node began; -inf before the first call."""

    def refused_s(self, node: Node) -> float:
        """Return when the last call to a node that got "connection refused" began; -inf if there was no such call."""

    def hang_up(self, node: Node) -> None:
        """End the call to a node, if a call is under way."""

    def close(self) -> None:
        """End all calls."""


class TransportPort(Protocol):
    """The connections with other members."""

    unlisted: set[Node]

    def send(self, node: Node, message: Message) -> bool:
        """Send a message, or keep it until the journal is on the disk. Returns False if neither was possible."""

    def pass_to_library(self, node: Node, message: Message) -> None:
        """Pass a message to the library."""

    def reached(self, node: Node) -> bool:
        """Whether a member is connected, and the connected process is known to be the only one of that member."""

    def cluster_of(self, node: Node) -> str:
        """Return the id of the cluster to which a connected member says that it belongs; empty without a cluster."""

    def others(self) -> set[Node]:
        """Return all other members, by the log."""

    def dials(self, node: Node) -> bool:
        """Whether this member dials `node`, and not the other way round."""

    def is_ours(self, node: Node, cluster_id: str) -> bool:
        """Whether a node that names `cluster_id` as its cluster may belong to this member's cluster."""

    def hello(self, called: Node, *, asks: bool) -> Message:
        """Return the first message of a dialler."""

    def refused_s(self, node: Node) -> float:
        """Return when the last dial of a member that got "connection refused" began; -inf if there was no such dial."""

    def dial_soon(self, node: Node) -> None:
        """Let the next dial of a member begin without a pause."""


class RaftCore(Protocol):
    """The log, the term and the role of this member, its other parts, and its environment."""

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
        """This member's id and version, as sent to a called node before either side is authenticated."""

    @property
    def clock(self) -> Clock:
        """The clock for Raft's timing."""

    @property
    def rng(self) -> Random:
        """The source of randomness."""

    @property
    def elections(self) -> ElectionsPort:
        """Decides when this member stands for election."""

    @property
    def recovery(self) -> RecoveryPort:
        """Decides whether this member may vote, follow and stand for election."""

    @property
    def inquiry(self) -> InquiryPort:
        """This member's part in founding a cluster."""

    @property
    def inbound(self) -> InboundPort:
        """Handles the messages of other members."""

    @property
    def transport(self) -> TransportPort:
        """The connections with other members."""

    @property
    def is_leader(self) -> bool:
        """Whether this member leads."""

    @property
    def is_candidate(self) -> bool:
        """Whether this member has asked for votes, and the election is still open."""

    def single_calls(
        self, on_answer: Callable[[Node, Any, Message], None], on_end: Callable[[Node], None] = ...
    ) -> SingleCallsPort:
        """Make connections that carry one question each; the arguments are those of `single_call.SingleCalls`."""

    def hears_leader(self) -> bool:
        """Whether this member leads, or has heard the leader within `timing.quorum_s`."""

    def is_settled(self) -> bool:
        """Whether this process may take part in elections, since it is the member's only one (`start_claim`)."""

    def fence(self) -> int:
        """Return the latest term in which another process of this member may have voted (`start_claim`)."""

    def leader_node(self) -> Node | None:
        """Return the leader that was heard last in this term."""

    def members(self) -> set[str]:
        """Return the ids of all members, by this member's log."""

    def standing(self) -> Standing:
        """Return the term and index of the log's last entry."""

    def voted_in(self, term: int) -> bool:
        """Whether this member has given its vote in a term."""

    def join_cluster(self, cluster_id: str) -> None:
        """Note this member's cluster, unless it is known already."""

    def agreed_members(self) -> Collection[str]:
        """Return the members as of the last entry that is known to be committed, each as "id host port"."""

    def begin_with(self, cluster: Iterable[str]) -> None:
        """Set the initial members of the empty log, each as "id host port"."""

    def next_index(self, node: Node) -> int:
        """Return the index of the next entry to send to a member."""

    def keep_next_index(self, node: Node, index: int) -> None:
        """Move a member's next index to `index` at least, so that entries under way are not sent again."""

    def adopt_term(self, term: int) -> None:
        """Become a follower in a later term, without having voted in it."""

    def connection_lost(self, node: Node) -> None:
        """Note that a member's connection has ended."""

    def send_to_all(self, message: Message) -> None:
        """Send a message to all other members."""
