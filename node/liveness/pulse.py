"""What the heartbeat thread decides: when to beat, what to answer, which lease and which verdicts follow.

No sockets and no clock: whoever has them (`heartbeat`, or a simulation) brings what arrives, with the time, and does
what `Wires` names. What is decided in turn is `Lease`'s, `Detector`'s, `Evidence`'s and `Clocks`'s.
"""

from dataclasses import replace
from typing import Final, Protocol

from node.liveness.clocks import Clocks
from node.liveness.detector import Detector, LivenessVerdict
from node.liveness.evidence import Evidence
from node.liveness.lease import Lease, LeaseNow
from node.liveness.message import BEAT_S, Beat, HeartbeatAnswer
from node.liveness.view import Peer, View

STILL_S: Final = 15.0
"""A member whose Raft has stood still for so long says nothing more: its disk does not answer, and what it owns would
wait for ever. Far more than a disk takes that is merely slow; counted in heartbeats, so that the time for which the
whole process was suspended does not count."""


class Wires(Protocol):
    """What a pulse has done. Nothing here may wait."""

    def follow(self, leader: Peer | None, now_s: float) -> None:
        """The leader's side of heartbeats is there; None: this member leads, or does not know where who leads is."""

    def send(self, beat: Beat, leader: str | None) -> None:
        """A heartbeat is for the leader."""

    def knock(self, member: str, peer: Peer, now_s: float) -> None:
        """Whether a member's process is there is to be asked of its machine; `Pulse.evidence` gets the answer."""

    def wall_us(self) -> int:
        """This machine's wall clock."""

    def raft_turns(self) -> int:
        """How often Raft's thread has come round."""

    def on_lease(self, lease: LeaseNow) -> None:
        """The lease is renewed, or is over because it was dropped."""

    def on_verdict(self, verdict: LivenessVerdict) -> None:
        """A member is to be marked down."""

    def on_clock(self, agreed_us: int, sent_s: float, now_s: float) -> None:
        """What most members' clocks say, and between when and when they said it."""


class Pulse:
    """One member's. `now_s` is its own CLOCK_BOOTTIME throughout; all but `look` is for one thread."""

    def __init__(self, wires: Wires, lease: Lease, detector: Detector, evidence: Evidence) -> None:
        self.lease, self.detector, self.evidence = lease, detector, evidence
        self._wires = wires
        self._clocks = Clocks()
        self._told: View | None = None
        self._view: View | None = None
        self._next_beat_s = 0.0
        self._turns = self._still_beats = 0

    def look(self, view: View) -> bool:
        """What the node knows now. Any thread, but one at a time. Whether it is news, which counts from now on."""
        if view == self._told:
            return False
        self._told = view
        return True

    def hasten(self) -> None:
        """The next heartbeat is due at once."""
        self._next_beat_s = 0.0

    def adopt(self, now_s: float) -> None:
        """Take in what the node knows. Before each message: an answer in a term that was left must not be taken."""
        view, before = self._told, self._view
        if view is None or view is before:
            return
        self._view = view
        dropped = self.lease.look(view, now_s)
        self.detector.look(view, now_s)
        if view.leader:  # else the connection with the last one stays: how it ends is evidence, and may be on its way
            self._wires.follow(None if view.leading else view.peers.get(view.leader), now_s)
        if before is None or _stance(before) != _stance(view):
            self._next_beat_s = now_s
        if dropped is not None:
            self._wires.on_lease(dropped)

    def heard_beat(self, beat: Beat, link: int, now_s: float) -> HeartbeatAnswer | None:
        """A member's heartbeat has come on a connection; the answer to it, if there is one."""
        self.adopt(now_s)
        self.evidence.heard(beat.member, beat.incarnation, link, now_s)
        return self._answer(beat, now_s)

    def heard_answer(self, answer: HeartbeatAnswer, link: int, now_s: float) -> None:
        """The leader's answer has come on a connection."""
        self.adopt(now_s)
        self.evidence.heard(answer.leader, answer.leader_incarnation, link, now_s)
        self._answered(answer, now_s)

    def turn(self, now_s: float) -> bool:
        """Do what is due, after what has arrived was taken in. Whether a heartbeat was."""
        self.adopt(now_s)
        beats = now_s >= self._next_beat_s
        if beats:
            self._next_beat_s = max(self._next_beat_s + BEAT_S, now_s + BEAT_S / 2)
            self._beat(now_s)
        self._judge(now_s)
        return beats

    def due_s(self, now_s: float) -> float:
        """When the next turn is due, if nothing comes before."""
        if self._view is None:
            return self._next_beat_s
        extra = (self.evidence.next_s(self._view.peers), self.detector.next_s(now_s))
        return min([self._next_beat_s, *(at_s for at_s in extra if at_s is not None)])

    def _beat(self, now_s: float) -> None:
        beat = self.lease.beat(now_s)
        if beat is None or self._view is None or self._stands_still():
            return
        beat = replace(beat, wall_us=self._wires.wall_us())
        if not self._view.leading:
            self._wires.send(beat, self._view.leader)
        elif (answer := self._answer(beat, now_s)) is not None:
            self._answered(answer, now_s)

    def _stands_still(self) -> bool:
        """Whether Raft has not come round for `STILL_S`. Once a heartbeat."""
        before, self._turns = self._turns, self._wires.raft_turns()
        self._still_beats = self._still_beats + 1 if self._turns == before else 0
        return self._still_beats * BEAT_S >= STILL_S

    def _answer(self, beat: Beat, now_s: float) -> HeartbeatAnswer | None:
        answer = self.detector.beat(beat, now_s)
        if answer is None or self._view is None:
            return None
        if beat.wall_us is not None:
            self._clocks.heard(beat.member, beat.wall_us, beat.echo_s, now_s)
        return replace(answer, wall_us=self._clocks.agreed_us(self._view.peers, now_s))

    def _answered(self, answer: HeartbeatAnswer, now_s: float) -> None:
        """The first answer in a term is echoed at once: the leader's majority waits for it."""
        if answer.wall_us is not None:
            self._wires.on_clock(answer.wall_us, answer.sent_s, now_s)
        echoed = self.lease.echoed
        lease = self.lease.answered(answer, now_s)
        if lease is not None:
            self._wires.on_lease(lease)
        if self.lease.echoed and not echoed:
            self._next_beat_s = now_s

    def _judge(self, now_s: float) -> None:
        view = self._view
        if view is None:
            return
        for verdict in self.detector.tick(now_s):
            self._wires.on_verdict(verdict)
        if view.settings.refusal_is_death:
            for member in self.evidence.to_knock(view.peers, now_s):
                self._wires.knock(member, view.peers[member], now_s)


def _stance(view: View) -> tuple[object, ...]:
    """What makes a heartbeat worth sending at once when it changes."""
    return (view.term, view.leader, view.incarnation, view.lead_applied)
