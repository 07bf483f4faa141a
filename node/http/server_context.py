"""The objects that all requests to one node share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from aiohttp import web

from node.http.endpoint import Endpoint
from node.http.event_hub import EventHub
from node.http.metrics import Metrics
from node.http.node_port import NodePort
from node.http.request_limits import RequestLimits
from node.http.session import SessionSigner
from node.http.streaming import StreamLimit
from node.http.task_names import TaskNames
from node.http.wrong_tokens import WrongTokens
from node.peer.client import PeerClient
from node.peer.signing import SignatureVerifier

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
    metrics: Metrics
    #: The latest events, for those who follow them.
    events: EventHub
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
    #: The names of tasks, sorted for lists.
    task_names: TaskNames = field(default_factory=TaskNames)
    #: Counts wrong tokens, by sender.
    wrong_tokens: WrongTokens = field(default_factory=WrongTokens)
    #: The values of `kept`, by class.
    _kept: dict[type, Any] = field(default_factory=dict)

    def kept(self, of: type[T]) -> T:
        """The one `of` of this server, made when it is first asked for: what rooms above keep between requests."""
        if of not in self._kept:
            self._kept[of] = of()
        found: T = self._kept[of]
        return found


SERVER: Final = web.AppKey("server", ServerContext)
"""Where the aiohttp application keeps its `ServerContext`."""
