"""The decisions of the heartbeat thread: when to send heartbeats, what to answer, which leases and verdicts follow.

No sockets and no clock: the caller (`heartbeat`, or a simulation) passes in messages and the time, and carries out the
effects of `PulsePort`. The parts are `Lease`, `Detector`, `Evidence` and `Clocks`.
"""

from dataclasses import replace
from typing import Final, Protocol

from node.liveness.clocks import Clocks
from node.liveness.detector import Detector, LivenessVerdict
from node.liveness.evidence import Evidence
from node.liveness.lease import Lease, LeaseNow
from node.liveness.message import BEAT_S, Beat, HeartbeatAnswer
from node.liveness.view import Peer, View

EARLY_S: Final = BEAT_S / 4
"""A leader's heartbeat to itself may be this much early, if the thread is awake for the heartbeats of others."""

STILL_S: Final = 15.0
"""A member whose Raft thread has been blocked for this long sends no more heartbeats: its disk does not answer, and its
tasks would wait for ever. A disk that is only slow takes far less. The time is counted in heartbeats, so that a
suspension of the whole process does not count."""


class PulseOwner(Protocol):
    """The node's callbacks, which the heartbeat thread calls. No method may block."""

    def wall_us(self) -> int:
        """This machine's wall clock, in microseconds since the epoch."""

    def raft_turns(self) -> int:
        """Return the number of turns of Raft's thread. If it stays the same for `STILL_S`, heartbeats stop."""

    def on_lease(self, lease: LeaseNow) -> None:
        """The lease was renewed or dropped. A refused renewal is not reported: the lease then expires."""

    def on_verdict(self, verdict: LivenessVerdict) -> None:
        """Mark a member down. Repeated every second until the view shows it."""

    def on_clock(self, agreed_us: int, sent_s: float, now_s: float) -> None:
        """Most members agree on the time `agreed_us`: in an answer at `now_s` to a heartbeat sent at `sent_s`."""


class PulsePort(PulseOwner, Protocol):
    """The inputs and effects of a pulse. No method may block."""

    def follow(self, leader: Peer | None, now_s: float) -> None:
        """Connect to this leader; None: this member leads, or does not know the leader's address."""

    def send(self, beat: Beat, leader: str | None) -> None:
        """Send a heartbeat to the leader."""

    def probe(self, member: str, peer: Peer, now_s: float) -> None:
        """Probe whether a process listens on a member's port. The result goes to `Pulse.evidence.probed`."""


class Pulse:
    """One member's heartbeats. `now_s` is its own CLOCK_BOOTTIME. All methods but `observe` are for one thread."""

    def __init__(self, port: PulsePort, lease: Lease, detector: Detector, evidence: Evidence) -> None:
        self.lease, self.detector, self.evidence = lease, detector, evidence
        self._port = port
        self._clocks = Clocks()
        self._observed: View | None = None
        self._view: View | None = None
        self._next_beat_s = 0.0
        self._turns = self._blocked_beats = 0

    def observe(self, view: View) -> bool:
        """Set the view that counts from now on. Returns whether it differs. Any thread may call it, one at a time."""
        if view == self._observed:
            return False
        self._observed = view
        return True

    def hasten(self) -> None:
        """Make the next heartbeat due at once."""
        self._next_beat_s = 0.0

    def adopt(self, now_s: float) -> None:
        """Apply the observed view. Called before each message, since an answer of an ended term must not count."""
        view, before = self._observed, self._view
        if view is None or view is before:
            return
        self._view = view
        dropped = self.lease.observe(view, now_s)
        self.detector.observe(view, now_s)
        if view.leader:  # else the last connection stays open, because its end may still come, as evidence
            self._port.follow(None if view.leading else view.peers.get(view.leader), now_s)
        if before is None or _stance(before) != _stance(view):
            self._next_beat_s = now_s
        if dropped is not None:
            self._port.on_lease(dropped)

    def heard_beat(self, beat: Beat, link: int, now_s: float) -> HeartbeatAnswer | None:
        """Handle a member's heartbeat from the connection `link`. Returns the answer, if there is one."""
        self.adopt(now_s)
        self.evidence.heard(beat.member, beat.incarnation, link, now_s)
        return self._answer(beat, now_s)

    def heard_answer(self, answer: HeartbeatAnswer, link: int, now_s: float) -> None:
        """Handle the leader's answer from the connection `link`."""
        self.adopt(now_s)
        self.evidence.heard(answer.leader, answer.leader_incarnation, link, now_s)
        self._answered(answer, now_s)

    def turn(self, now_s: float) -> bool:
        """Do the work that is due, after all received messages are handled. Returns whether a heartbeat was due."""
        self.adopt(now_s)
        leads = self._view is not None and self._view.leading
        beats = now_s >= self._next_beat_s - (EARLY_S if leads else 0.0)
        if beats:
            self._next_beat_s = max(min(self._next_beat_s, now_s) + BEAT_S, now_s + BEAT_S / 2)
            self._beat(now_s)
        self._judge(now_s)
        return beats

    def due_s(self, now_s: float) -> float:
        """Return when the next turn is due if no message arrives before."""
        if self._view is None:
            return self._next_beat_s
        extra = (self.evidence.next_s(self._view.peers), self.detector.next_s(now_s))
        return min([self._next_beat_s, *(at_s for at_s in extra if at_s is not None)])

    def _beat(self, now_s: float) -> None:
        beat = self.lease.beat(now_s)
        if beat is None or self._view is None or self._raft_blocked():
            return
        beat = replace(beat, wall_us=self._port.wall_us())
        if not self._view.leading:
            self._port.send(beat, self._view.leader)
        elif (answer := self._answer(beat, now_s)) is not None:
            self._answered(answer, now_s)

    def _raft_blocked(self) -> bool:
        """Whether Raft's thread has made no turn for `STILL_S`. Call it once per heartbeat."""
        before, self._turns = self._turns, self._port.raft_turns()
        self._blocked_beats = self._blocked_beats + 1 if self._turns == before else 0
        return self._blocked_beats * BEAT_S >= STILL_S

    def _answer(self, beat: Beat, now_s: float) -> HeartbeatAnswer | None:
        answer = self.detector.beat(beat, now_s)
        if answer is None or self._view is None:
            return None
        if beat.wall_us is not None:
            self._clocks.heard(beat.member, beat.wall_us, beat.echo_s, now_s)
        return replace(answer, wall_us=self._clocks.agreed_us(self._view.peers, now_s))

    def _answered(self, answer: HeartbeatAnswer, now_s: float) -> None:
        """Handle an answer. Echo the first one of a term at once, because the leader waits for a majority's echoes."""
        if answer.wall_us is not None:
            self._port.on_clock(answer.wall_us, answer.sent_s, now_s)
        echoed = self.lease.echoed
        lease = self.lease.answered(answer, now_s)
        if lease is not None:
            self._port.on_lease(lease)
        if self.lease.echoed and not echoed:
            self._next_beat_s = now_s

    def _judge(self, now_s: float) -> None:
        view = self._view
        if view is None:
            return
        for verdict in self.detector.tick(now_s):
            self._port.on_verdict(verdict)
        if view.settings.refusal_is_death:
            for member in self.evidence.probes_due(view.peers, now_s):
                self._port.probe(member, view.peers[member], now_s)


def _stance(view: View) -> tuple[object, ...]:
    """Return the part of a view whose change makes a heartbeat due at once."""
    return (view.term, view.leader, view.incarnation, view.lead_applied)
