"""The heartbeat thread: listens, beats, answers, knocks, and tells the node what follows (design, section 7).

It has a thread, a port and connections of its own, and waits for nothing but its selector: not for work, disk,
DNS, the event loop or Raft. The decisions are `Pulse`'s.
"""

import logging
import os
import selectors
import threading
import time
from collections.abc import Callable
from typing import Final

from node.identity.cluster_id import ClusterId
from node.identity.member_key import member_key
from node.liveness.client import Dialler
from node.liveness.detector import Detector, LivenessVerdict
from node.liveness.evidence import Evidence
from node.liveness.lease import Lease, LeaseNow
from node.liveness.link import Link, Passport
from node.liveness.message import Beat, HeartbeatAnswer
from node.liveness.port_probe import Knocker
from node.liveness.pulse import Pulse
from node.liveness.server import Callers
from node.liveness.view import Peer, View
from node.liveness.wire import Message
from node.runtime.dns import Resolver
from node.telemetry.thread_lag import Worst

COMPLAIN_S: Final = 30.0
"""Between two complaints about one address."""

_log = logging.getLogger(__name__)


def boottime_s() -> float:
    """This machine's clock since its start, in seconds; it goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Heartbeat:
    """This node's heartbeats, lease, and, while it leads, verdicts.

    It listens on `host` and `port` (0: the kernel chooses; see `port`) from the start. `on_lease` gets each renewal,
    and a lease that is over when it is dropped; nothing is sent when a lease is refused, it runs out. `on_verdict`
    gets each member to be marked down, and again every second until the view shows it. All callbacks run in the
    heartbeat thread and must not wait. `on_failure` is told if the thread cannot go on: the node must then end its
    process. `raft_turns` tells how often Raft's thread has come round: while it stands still for long, there are no
    heartbeats. `wall_us` is the machine's wall clock; `on_clock` gets what most members' clocks say, when the heartbeat
    that asked was sent, and when the answer came.
    The sockets stay open until the process ends, so that nobody takes it for dead while its workers live. `start_id`
    tells this start of the member from every other. Who is of another cluster than `cluster` is hung up on.
    Raises PortInUseError.
    """

    def __init__(
        self,
        me: str,
        host: str,
        port: int,
        secret: str,
        on_lease: Callable[[LeaseNow], None],
        on_verdict: Callable[[LivenessVerdict], None],
        on_failure: Callable[[BaseException], None],
        raft_turns: Callable[[], int],
        cluster: ClusterId | None = None,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        on_clock: Callable[[int, float, float], None] = lambda *_: None,
        start_id: str = "",
    ) -> None:
        if not secret:
            raise ValueError("heartbeats need a secret: set ROTA_SECRET or ROTA_SECRET_FILE")
        self.on_lease, self.on_verdict, self.on_clock = on_lease, on_verdict, on_clock
        self.wall_us, self.raft_turns = wall_us, raft_turns
        self._on_failure = on_failure
        self._selector = selectors.DefaultSelector()
        passport = Passport(member_key(secret, "heartbeats"), me, cluster or ClusterId(), start_id)
        self._callers = Callers(host, port, self._selector, passport, self)
        self.port = self._callers.port
        self.lateness, self.answers = Worst(), Worst()
        evidence = Evidence()
        self._pulse = Pulse(self, Lease(), Detector(evidence), evidence)
        self._resolver = Resolver(self._wake)
        self._dialler = Dialler(self._selector, passport, self._resolver, self)
        self._knocker = Knocker(self._selector)
        self._complained_s: dict[str, float] = {}
        self._woken_s = float("inf")
        self._stopping = False
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waking = threading.Lock()
        self._awake = True
        self._selector.register(self._waker, selectors.EVENT_READ, lambda _: os.eventfd_read(self._waker))
        self._thread = threading.Thread(target=self._run, name="rota-heartbeat", daemon=True)

    def look(self, view: View) -> None:
        """What the node knows now. Any thread, but one at a time; it counts from the moment this returns."""
        if self._pulse.look(view):
            self._wake()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, with a goodbye to the others, who then do not take the process for dead. Waits for the thread."""
        self._stopping = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        self._callers.close()
        self._dialler.close()
        self._knocker.close()
        self._selector.close()
        with self._waking:
            self._awake = False
            os.close(self._waker)

    # The owner of the links

    def opened(self, link: Link) -> None:
        """A connection is ready: the leader gets a heartbeat at once."""
        if link.dialled:
            self._pulse.hasten()

    def came(self, link: Link, message: Message) -> None:
        """A member said something."""
        now_s = boottime_s()
        self._pulse.adopt(now_s)
        link.heard_s = now_s
        if isinstance(message, Beat) and not link.dialled and self._callers.is_of(link, message.member):
            answer = self._pulse.heard_beat(message, link.number, now_s)
            if answer is not None:
                link.send(answer)
        elif isinstance(message, HeartbeatAnswer) and link.dialled and self._callers.is_of(link, message.leader):
            self._dialler.answered(now_s)
            self.answers.note(now_s - message.sent_s, time.monotonic())
            self._pulse.heard_answer(message, link.number, now_s)

    def ended(self, link: Link, *, by_peer: bool) -> None:
        """A connection is closed."""
        self._callers.ended(link)
        if by_peer:
            self._pulse.evidence.ended(link.number, boottime_s())
        else:
            self._pulse.evidence.parted(link.number)

    def refused(self, address: str, why: str) -> None:
        """Somebody called who is not a member."""
        now_s = boottime_s()
        if now_s - self._complained_s.get(address, float("-inf")) >= COMPLAIN_S:
            since_s = now_s - COMPLAIN_S
            self._complained_s = {known: at_s for known, at_s in self._complained_s.items() if at_s > since_s}
            self._complained_s[address] = now_s
            _log.warning("heartbeat connection with %s refused: %s", address, why)

    # The thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except BaseException as error:
            _log.critical("the heartbeat thread has failed: this node must end", exc_info=True)
            self._on_failure(error)
            raise

    def _turn(self) -> None:
        """Take in all that has arrived, then do what is due."""
        due_s = self._pulse.due_s(boottime_s())
        ready = self._selector.select(max(0.0, due_s - boottime_s()))
        woken_s = boottime_s()
        # What is due at once is due since the turn before.
        self.lateness.note(woken_s - max(due_s, self._woken_s), time.monotonic())
        self._woken_s = woken_s
        for key, mask in ready:
            key.data(mask)
        now_s = boottime_s()
        self._pulse.adopt(now_s)
        self._dialler.tick(now_s)
        self._knocker.tick(now_s)
        if self._pulse.turn(now_s):
            self._callers.tick(now_s)

    # What a pulse has done

    def follow(self, leader: Peer | None, now_s: float) -> None:
        """Hold a connection to the leader."""
        self._dialler.to((leader.host, leader.port) if leader is not None and leader.port else None, now_s)

    def send(self, beat: Beat, _leader: str | None) -> None:
        """A heartbeat for the leader, if there is a connection."""
        self._dialler.send(beat)

    def knock(self, member: str, peer: Peer, now_s: float) -> None:
        """Is the port of a member's process still open?"""

        def answer(refused: bool) -> None:
            self._pulse.evidence.knocked(member, peer.incarnation, refused, boottime_s())

        address = self._resolver.address(peer.host)
        if address is None:
            answer(False)
        else:
            self._knocker.knock(address, peer.port, now_s, answer)

    def _wake(self) -> None:
        """From any thread, also after the end: Raft ends later, and a look-up of a name may take its time."""
        with self._waking:
            if self._awake:
                os.eventfd_write(self._waker, 1)
