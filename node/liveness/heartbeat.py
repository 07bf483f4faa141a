"""The heartbeat thread: listens, beats, answers, knocks, and tells the node what follows (design, section 7).

It has a thread, a port and connections of its own, and waits for nothing but its selector: not for work, disk,
DNS, the event loop or Raft. The decisions are `Lease`'s, `Detector`'s and `Evidence`'s.
"""

import logging
import os
import selectors
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from node.cluster_id import ClusterId
from node.lateness import Worst
from node.liveness.callers import Callers
from node.liveness.clocks import Clocks
from node.liveness.detector import Detector, Verdict
from node.liveness.dial import Dialler
from node.liveness.evidence import Evidence
from node.liveness.knock import Knocker
from node.liveness.lease import Lease, LeaseNow
from node.liveness.link import Link, Passport
from node.liveness.message import BEAT_S, Answer, Beat
from node.liveness.names import Names
from node.liveness.view import View
from node.liveness.wire import Message

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
    process. `wall_us` is the machine's wall clock; `on_clock` gets what most members' clocks say, when the heartbeat
    that asked was sent, and when the answer came. The sockets stay open until the process ends, so that nobody takes it
    for dead while its workers live. Who is of another cluster than `cluster` is hung up on.
    Raises PortInUseError.
    """

    def __init__(
        self,
        me: str,
        host: str,
        port: int,
        secret: bytes,
        on_lease: Callable[[LeaseNow], None],
        on_verdict: Callable[[Verdict], None],
        on_failure: Callable[[BaseException], None],
        cluster: ClusterId | None = None,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        on_clock: Callable[[int, float, float], None] = lambda *_: None,
    ) -> None:
        if not secret:
            raise ValueError("heartbeats need a secret: set ROTA_SECRET or ROTA_SECRET_FILE")
        self._on_lease, self._on_verdict, self._on_failure = on_lease, on_verdict, on_failure
        self._wall_us, self._on_clock = wall_us, on_clock
        self._selector = selectors.DefaultSelector()
        passport = Passport(secret, me, cluster or ClusterId())
        self._callers = Callers(host, port, self._selector, passport, self)
        self.port = self._callers.port
        self.lateness, self.answers = Worst(), Worst()
        self._evidence = Evidence()
        self._lease, self._detector = Lease(), Detector(self._evidence)
        self._clocks = Clocks()
        self._names = Names(self._wake)
        self._dialler = Dialler(self._selector, passport, self._names, self)
        self._knocker = Knocker(self._selector)
        self._complained_s: dict[str, float] = {}
        self._told: View | None = None
        self._view: View | None = None
        self._next_beat_s = 0.0
        self._woken_s = float("inf")
        self._stopping = False
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waking = threading.Lock()
        self._awake = True
        self._selector.register(self._waker, selectors.EVENT_READ, lambda _: os.eventfd_read(self._waker))
        self._thread = threading.Thread(target=self._run, name="rota-heartbeat", daemon=True)

    @property
    def lease(self) -> LeaseNow:
        """The lease as it stands; may be read from any thread."""
        return self._lease.now

    def look(self, view: View) -> None:
        """What the node knows now. Any thread, but one at a time; it counts from the moment this returns."""
        if view != self._told:
            self._told = view
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
            self._next_beat_s = 0.0

    def came(self, link: Link, message: Message) -> None:
        """A member said something."""
        now_s = boottime_s()
        self._adopt(now_s)
        link.heard_s = now_s
        if isinstance(message, Beat) and not link.dialled and self._callers.is_of(link, message.member):
            self._evidence.heard(message.member, message.incarnation, link.number, now_s)
            answer = self._answer(message, now_s)
            if answer is not None:
                link.send(answer)
        elif isinstance(message, Answer) and link.dialled and self._callers.is_of(link, message.leader):
            self._dialler.answered(now_s)
            self.answers.note(now_s - message.sent_s, time.monotonic())
            self._evidence.heard(message.leader, message.leader_incarnation, link.number, now_s)
            self._answered(message, now_s)

    def ended(self, link: Link, *, by_peer: bool) -> None:
        """A connection is closed."""
        self._callers.ended(link)
        if by_peer:
            self._evidence.ended(link.number, boottime_s())
        else:
            self._evidence.parted(link.number)

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
        due_s = self._due_s()
        ready = self._selector.select(max(0.0, due_s - boottime_s()))
        woken_s = boottime_s()
        # What is due at once is due since the turn before.
        self.lateness.note(woken_s - max(due_s, self._woken_s), time.monotonic())
        self._woken_s = woken_s
        for key, mask in ready:
            key.data(mask)
        now_s = boottime_s()
        self._adopt(now_s)
        self._dialler.tick(now_s)
        self._knocker.tick(now_s)
        if now_s >= self._next_beat_s:
            self._next_beat_s = max(self._next_beat_s + BEAT_S, now_s + BEAT_S / 2)
            self._beat(now_s)
            self._callers.tick(now_s)
        self._judge(now_s)

    def _due_s(self) -> float:
        if self._view is None:
            return self._next_beat_s
        extra = (self._evidence.next_s(self._view.peers), self._detector.next_s(boottime_s()))
        return min([self._next_beat_s, *(at_s for at_s in extra if at_s is not None)])

    def _adopt(self, now_s: float) -> None:
        """Read before each message is judged: an answer in a term that this node has left must not be taken."""
        view, before = self._told, self._view
        if view is None or view is before:
            return
        self._view = view
        dropped = self._lease.look(view, now_s)
        self._detector.look(view, now_s)
        leader = view.peers.get(view.leader) if view.leader is not None and not view.leading else None
        self._dialler.to((leader.host, leader.port) if leader is not None and leader.port else None, now_s)
        if before is None or _stance(before) != _stance(view):
            self._next_beat_s = now_s
        if dropped is not None:
            self._on_lease(dropped)

    def _beat(self, now_s: float) -> None:
        beat = self._lease.beat(now_s)
        if beat is None or self._view is None:
            return
        beat = replace(beat, wall_us=self._wall_us())
        if not self._view.leading:
            self._dialler.send(beat)
        elif (answer := self._answer(beat, now_s)) is not None:
            self._answered(answer, now_s)

    def _answer(self, beat: Beat, now_s: float) -> Answer | None:
        answer = self._detector.beat(beat, now_s)
        if answer is None or self._view is None:
            return None
        if beat.wall_us is not None:
            self._clocks.heard(beat.member, beat.wall_us, beat.echo_s, now_s)
        return replace(answer, wall_us=self._clocks.agreed_us(self._view.peers, now_s))

    def _answered(self, answer: Answer, now_s: float) -> None:
        """The first answer in a term is echoed at once: the leader's majority waits for it."""
        if answer.wall_us is not None:
            self._on_clock(answer.wall_us, answer.sent_s, now_s)
        echoed = self._lease.echoed
        lease = self._lease.answered(answer, now_s)
        if lease is not None:
            self._on_lease(lease)
        if self._lease.echoed and not echoed:
            self._next_beat_s = now_s

    def _judge(self, now_s: float) -> None:
        view = self._view
        if view is None:
            return
        for verdict in self._detector.tick(now_s):
            self._on_verdict(verdict)
        if view.settings.refusal_is_death:
            for member in self._evidence.to_knock(view.peers, now_s):
                self._knock(member, view, now_s)

    def _knock(self, member: str, view: View, now_s: float) -> None:
        peer = view.peers[member]

        def answer(refused: bool) -> None:
            self._evidence.knocked(member, peer.incarnation, refused, boottime_s())

        address = self._names.address(peer.host)
        if address is None:
            answer(False)
        else:
            self._knocker.knock(address, peer.port, now_s, answer)

    def _wake(self) -> None:
        """From any thread, also after the end: Raft ends later, and a look-up of a name may take its time."""
        with self._waking:
            if self._awake:
                os.eventfd_write(self._waker, 1)


def _stance(view: View) -> tuple[object, ...]:
    """What makes a heartbeat worth sending at once when it changes."""
    return (view.term, view.leader, view.incarnation, view.lead_applied)
