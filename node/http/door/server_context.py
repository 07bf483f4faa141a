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

    #: The most bytes of a body.
    body_bytes: int = 1024 * 1024
    #: The most bytes of a body whose sender is not authenticated.
    stranger_bytes: int = 4096
    #: The most bytes of an entry of the Raft log.
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
    #: Seconds until a member sends more of an attempt's log, or checks params.
    peer_log_s: float = 2.0
    #: Seconds that a request to follow a run's log waits for the run's first attempt.
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
    """The node, and the objects that the requests to its HTTP server share."""

    #: The node.
    node: NodePort
    #: The client that asks other members.
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
    #: The objects of `keep` and `kept`, by class.
    _kept: dict[type, Any] = field(default_factory=dict)

    def keep(self, value: object) -> None:
        """Keep an object under its class, for `kept`, which could not construct it without arguments."""
        self._kept[type(value)] = value

    def kept(self, of: type[T]) -> T:
        """Return this server's one object of the class `of`, constructed at the first call.

        Topics keep data between requests in such objects.
        """
        if of not in self._kept:
            self._kept[of] = of()
        found: T = self._kept[of]
        return found


SERVER: Final = web.AppKey("server", ServerContext)
"""Where the aiohttp application keeps its `ServerContext`."""
