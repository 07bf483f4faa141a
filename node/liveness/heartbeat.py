"""The heartbeat thread: sends and answers heartbeats, probes ports, and reports leases and verdicts to the node.

It has a thread, a port and connections of its own, and blocks only in its selector: never on work, the disk, DNS, the
event loop or Raft. `Pulse` decides. The protocol: docs/explanation/leases-and-claims.md.
"""

import logging
import os
import selectors
import threading
import time
from dataclasses import dataclass
from typing import Final, Protocol

from node.identity.cluster_id import ClusterId
from node.identity.member_key import member_key
from node.liveness.client import HeartbeatClient
from node.liveness.detector import Detector, LivenessVerdict
from node.liveness.evidence import Evidence
from node.liveness.lease import Lease, LeaseNow
from node.liveness.link import Credentials, Link
from node.liveness.message import Beat, HeartbeatAnswer
from node.liveness.port_probe import PortProber
from node.liveness.pulse import Pulse, PulseOwner
from node.liveness.server import HeartbeatServer
from node.liveness.view import Peer, View
from node.liveness.wire import Message
from node.runtime.boottime import boottime_s
from node.runtime.dns import Resolver
from node.telemetry.thread_lag import Worst

LOG_AGAIN_S: Final = 30.0
"""The shortest time between two log lines about one address."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """Which member sends heartbeats, and where it listens."""

    #: The member's id.
    me: str
    #: The address to listen on.
    host: str
    #: The port to listen on; 0: the kernel chooses one.
    port: int
    #: The members' secret.
    secret: str
    #: Identifies this start of the process.
    start_id: str = ""


class HeartbeatOwner(PulseOwner, Protocol):
    """The node's callbacks, which the heartbeat thread calls. No method may block."""

    def on_failure(self, error: BaseException) -> None:
        """The heartbeat thread has failed, so the node must end its process."""


class Heartbeat:
    """This node's heartbeats, its lease, and, while it leads, its verdicts.

    It listens from its construction (see `port`), and refuses connections of other clusters than `cluster`. Until
    `stop`, the sockets stay open as long as the process lives: members must not think it dead while its workers live.
    Raises PortInUseError.
    """

    def __init__(self, settings: HeartbeatSettings, owner: HeartbeatOwner, cluster: ClusterId | None = None) -> None:
        if not settings.secret:
            raise ValueError("heartbeats need a secret: set ROTA_SECRET or ROTA_SECRET_FILE")
        self._owner = owner
        self._selector = selectors.DefaultSelector()
        key = member_key(settings.secret, "heartbeats")
        credentials = Credentials(key, settings.me, cluster or ClusterId(), settings.start_id)
        self._server = HeartbeatServer(settings.host, settings.port, self._selector, credentials, self)
        self.port = self._server.port
        self.lateness, self.answers = Worst(), Worst()
        evidence = Evidence()
        self._pulse = Pulse(self, Lease(), Detector(evidence), evidence)
        self._resolver = Resolver(self._wake)
        self._client = HeartbeatClient(self._selector, credentials, self._resolver, self)
        self._prober = PortProber(self._selector)
        self._logged_s: dict[str, float] = {}
        self._woken_s = float("inf")
        self._stopping = False
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waking = threading.Lock()
        self._awake = True
        self._selector.register(self._waker, selectors.EVENT_READ, lambda _: os.eventfd_read(self._waker))
        self._thread = threading.Thread(target=self._run, name="rota-heartbeat", daemon=True)

    def observe(self, view: View) -> None:
        """Set a new view, which counts as soon as this method has returned. Any thread may call it, one at a time."""
        if self._pulse.observe(view):
            self._wake()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the thread. A goodbye tells members that closed connections are no evidence of death."""
        self._stopping = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        self._server.close()
        self._client.close()
        self._prober.close()
        self._selector.close()
        with self._waking:
            self._awake = False
            os.close(self._waker)

    # -- LinkOwner

    def opened(self, link: Link) -> None:
        """Send the leader a heartbeat at once when the connection to it is ready."""
        if link.dialled:
            self._pulse.hasten()

    def received(self, link: Link, message: Message) -> None:
        """Handle a message that has arrived."""
        now_s = boottime_s()
        self._pulse.adopt(now_s)
        link.heard_s = now_s
        if isinstance(message, Beat) and not link.dialled and self._server.is_of(link, message.member):
            answer = self._pulse.heard_beat(message, link.number, now_s)
            if answer is not None:
                link.send(answer)
        elif isinstance(message, HeartbeatAnswer) and link.dialled and self._server.is_of(link, message.leader):
            self._client.answered(now_s)
            self.answers.note(now_s - message.sent_s, time.monotonic())
            self._pulse.heard_answer(message, link.number, now_s)

    def ended(self, link: Link, *, by_peer: bool) -> None:
        """Note that a connection is closed, which is evidence of a death if the other side closed it."""
        self._server.ended(link)
        if by_peer:
            self._pulse.evidence.ended(link.number, boottime_s())
        else:
            self._pulse.evidence.parted(link.number)

    def refused(self, address: str, why: str) -> None:
        """Log that a connection of a process that is not a member was refused."""
        now_s = boottime_s()
        if now_s - self._logged_s.get(address, float("-inf")) >= LOG_AGAIN_S:
            since_s = now_s - LOG_AGAIN_S
            self._logged_s = {known: at_s for known, at_s in self._logged_s.items() if at_s > since_s}
            self._logged_s[address] = now_s
            _log.warning("heartbeat connection with %s refused: %s", address, why)

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except BaseException as error:
            _log.critical("the heartbeat thread has failed; the node ends", exc_info=True)
            self._owner.on_failure(error)
            raise

    def _turn(self) -> None:
        """Handle all received messages, then the heartbeats, verdicts and probes that are due."""
        due_s = self._pulse.due_s(boottime_s())
        ready = self._selector.select(max(0.0, due_s - boottime_s()))
        woken_s = boottime_s()
        # A due time in the past means "at once", so the lateness counts from the last turn on.
        self.lateness.note(woken_s - max(due_s, self._woken_s), time.monotonic())
        self._woken_s = woken_s
        for key, mask in ready:
            key.data(mask)
        now_s = boottime_s()
        self._pulse.adopt(now_s)
        self._client.tick(now_s)
        self._prober.tick(now_s)
        if self._pulse.turn(now_s):
            self._server.tick(now_s)

    # -- PulsePort

    def on_lease(self, lease: LeaseNow) -> None:
        """Report to the node that the lease was renewed or dropped."""
        self._owner.on_lease(lease)

    def on_verdict(self, verdict: LivenessVerdict) -> None:
        """Give the node a verdict, so that it marks a member down."""
        self._owner.on_verdict(verdict)

    def on_clock(self, agreed_us: int, sent_s: float, now_s: float) -> None:
        """Report to the node the wall clock that most members agree on."""
        self._owner.on_clock(agreed_us, sent_s, now_s)

    def wall_us(self) -> int:
        """This machine's wall clock."""
        return self._owner.wall_us()

    def raft_turns(self) -> int:
        """Return the number of turns of Raft's thread so far."""
        return self._owner.raft_turns()

    def follow(self, leader: Peer | None, now_s: float) -> None:
        """Keep a connection to the leader; None: close the connection."""
        self._client.follow((leader.host, leader.port) if leader is not None and leader.port else None, now_s)

    def send(self, beat: Beat, _leader: str | None) -> None:
        """Send a heartbeat to the leader, if there is a connection."""
        self._client.send(beat)

    def probe(self, member: str, peer: Peer, now_s: float) -> None:
        """Probe whether the port of a member's process is still open."""

        def answer(refused: bool) -> None:
            self._pulse.evidence.probed(member, peer.incarnation, refused, boottime_s())

        address = self._resolver.address(peer.host)
        if address is None:
            answer(False)
        else:
            self._prober.probe(address, peer.port, now_s, answer)

    def _wake(self) -> None:
        """Wake the thread. Any thread may call it, even after `stop`, because Raft and DNS look-ups may end later."""
        with self._waking:
            if self._awake:
                os.eventfd_write(self._waker, 1)
