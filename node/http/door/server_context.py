"""The objects that all requests to one node share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from aiohttp import web

from node.http.door.endpoint import Endpoint
from node.http.door.request_metrics import RequestMetrics
from node.http.door.session import SessionSigner
from node.http.door.streaming import StreamLimit
from node.http.node_port import NodePort
from node.peer.client import PeerClient
from node.peer.signing import SignatureVerifier
from node.raft.ports import RaftTiming


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How much a client of the API may send, and how long each part of an answer may take."""

    #: The size of a body.
    body_bytes: int = 1024 * 1024
    #: The size of a body whose sender is not known.
    stranger_bytes: int = 4096
    #: The size of a log entry.
    entry_bytes: int = RaftTiming().entry_bytes
    #: Seconds until a body has arrived.
    body_s: float = 20.0
    #: Seconds until a proposal is committed.
    write_s: float = 5.0
    #: Seconds until an index is applied (`Rota-Index`).
    index_s: float = 5.0
    #: Seconds until a placement is computed.
    placement_s: float = 2.0
    #: Seconds until a member answers.
    peer_s: float = 0.5
    #: Seconds until a member sends more of a log.
    peer_log_s: float = 2.0
    #: Seconds until a followed run has an attempt.
    attempt_s: float = 5.0
    #: Seconds between two reads of a followed log.
    poll_log_s: float = 0.15
    #: Seconds between two comments in an idle event stream.
    ping_s: float = 10.0
    #: How many streams may be open at once.
    streams: int = 256


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The node, and what its HTTP server keeps beside it."""

    #: The node.
    node: NodePort
    #: Asks other members.
    peers: PeerClient
    #: The limits of requests.
    limits: RequestLimits
    #: Counts and times for `/metrics`.
    metrics: RequestMetrics
    #: Reads the wall clock, in microseconds since the epoch.
    now_us: Callable[[], int]
    #: Checks requests of other members.
    verifier: SignatureVerifier
    #: Signs and checks the sessions of browsers.
    signer: SessionSigner
    #: Counts the open streams.
    streams: StreamLimit
    #: The API's endpoints.
    endpoints: tuple[Endpoint, ...]
    #: The endpoints of the page.
    pages: tuple[Endpoint, ...] = ()
    #: The values of `keep` and `kept`, by class.
    _kept: dict[type, Any] = field(default_factory=dict)

    def keep(self, value: object) -> None:
        """Keep a value that cannot be made without knowing more, under its class."""
        self._kept[type(value)] = value

    def kept(self, of: type[T]) -> T:
        """The one `of` of this server, made when it is first asked for: what topics keep between requests."""
        if of not in self._kept:
            self._kept[of] = of()
        found: T = self._kept[of]
        return found


SERVER: Final = web.AppKey("server", ServerContext)
"""Where the aiohttp application keeps its `ServerContext`."""
