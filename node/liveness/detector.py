"""The leader's side of liveness: who may have a lease, and who is down? (design, section 7.) Pure.

Every method takes `now_s`, the leader's own CLOCK_BOOTTIME. A member that does not lead has an idle one.
"""

from dataclasses import dataclass
from typing import Literal

from node.liveness.evidence import Evidence
from node.liveness.message import BEAT_S, Beat, HeartbeatAnswer
from node.liveness.timeouts import Waits
from node.liveness.view import Peer, View

LATE_S = BEAT_S + 0.05
"""A loop that ticks less often than this is late."""

AGAIN_S = 1.0
"""A verdict that is not in the state by then is given again."""


@dataclass(frozen=True, slots=True)
class LivenessVerdict:
    """A member is to be marked down, in that incarnation, by the leader of that term."""

    member: str
    incarnation: int
    reason: Literal["silent", "gone"]
    term: int


@dataclass(slots=True)
class _Watch:
    """One member in one incarnation, under one leadership. `verdict_s` is when its verdict was last given."""

    incarnation: int
    heard_s: float
    verdict: LivenessVerdict | None = None
    verdict_s: float = 0.0


class Detector:
    """Answers heartbeats, and gives the verdicts, while this node leads."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._waits = Waits()
        self._view: View | None = None
        self._elected_s = self._ticked_s = 0.0
        self._echoes_s: dict[str, float] = {}
        self._watches: dict[str, _Watch] = {}

    def look(self, view: View, now_s: float) -> None:
        """What the node knows has changed. A leadership begins with the first view of a term that it leads."""
        before, self._view = self._view, view
        self._waits.look(view.settings, now_s)
        if not view.leading:
            self._watches = {}
            return
        if before is None or not before.leading or before.term != view.term:
            self._begin(now_s)
        watches = {}
        for member, peer in view.peers.items():
            watch = self._watches.get(member)
            fits = watch is not None and watch.incarnation == peer.incarnation
            watches[member] = watch if watch and fits else _Watch(peer.incarnation, now_s)
        self._watches = watches

    def beat(self, beat: Beat, now_s: float) -> HeartbeatAnswer | None:
        """A member's heartbeat has come. Gives the answer; None if this node does not lead in that term."""
        view = self._view
        if view is None or not view.leading or beat.member not in view.peers:
            return None
        watch = self._watches[beat.member]
        if beat.incarnation == watch.incarnation:
            watch.heard_s = now_s
        if beat.term != view.term:
            return None
        evidence_s = self._evidence_s(beat, now_s)
        if evidence_s is not None and evidence_s <= now_s:
            self._echoes_s[beat.member] = max(evidence_s, self._echoes_s.get(beat.member, evidence_s))
        granted = self._may_hold(beat, view) and self.has_majority(now_s)
        lease_s = self._waits.to_grant(now_s).lease_s if granted else None
        return HeartbeatAnswer(view.me, view.incarnation, beat.incarnation, beat.term, beat.sent_s, now_s, lease_s)

    def tick(self, now_s: float) -> list[LivenessVerdict]:
        """To be called several times a second, after what has arrived was taken in: the verdicts to propose.

        A verdict is repeated until the state shows it. If this loop was late, everybody's deadline moves by as
        much, for it was not there to hear (HashiCorp's Lifeguard).
        """
        late_s, self._ticked_s = now_s - self._ticked_s - LATE_S, now_s
        view = self._view
        if view is None or not view.leading:
            return []
        if late_s > 0:
            self._elected_s = min(now_s, self._elected_s + late_s)
            for watch in self._watches.values():
                watch.heard_s = min(now_s, watch.heard_s + late_s)
        if not self._lead_applied(view):
            return []
        return [
            verdict
            for member, peer in view.peers.items()
            if member != view.me and peer.status != "down" and (verdict := self._judge(view, member, peer, now_s))
        ]

    def has_majority(self, now_s: float) -> bool:
        """Whether the echoes of a majority are less than `window_s` old; this node's own is now."""
        view = self._view
        if view is None or not view.leading:
            return False
        since_s = now_s - self._waits.to_grant(now_s).window_s
        others = sum(self._echoes_s.get(member, since_s) > since_s for member in view.peers if member != view.me)
        return others + 1 >= view.majority

    def next_s(self, now_s: float) -> float | None:
        """When the next verdict is due, if nothing more is heard."""
        view = self._view
        if view is None or not view.leading or not self._lead_applied(view):
            return None
        dues = []
        for member, watch in self._watches.items():
            if member != view.me and watch.verdict is None and view.peers[member].status != "down":
                dues += [self._silent_at_s(watch, now_s), self._gone_at_s(view, member, watch, now_s)]
        return min((due_s for due_s in dues if due_s is not None and due_s > now_s), default=None)

    def _begin(self, now_s: float) -> None:
        """An older leader may have granted leases until now: nobody counts as unheard before this."""
        self._watches, self._echoes_s = {}, {}
        self._elected_s = self._ticked_s = now_s
        self._waits.elected(now_s)

    def _evidence_s(self, beat: Beat, now_s: float) -> float | None:
        """As of when (own clock) the beat proves that its member was in this term: never as of now, its arrival."""
        return beat.echo_s

    def _lead_applied(self, view: View) -> bool:
        """Whether all that was committed before this leadership is known here."""
        return view.lead_applied

    def _may_hold(self, beat: Beat, view: View) -> bool:
        """Whether the beat's sender is the present incarnation of a member that is neither down nor about to be."""
        peer, watch = view.peers[beat.member], self._watches[beat.member]
        current = beat.incarnation == peer.incarnation > 0 and peer.status != "down"
        return current and watch.verdict is None and self._lead_applied(view)

    def _judge(self, view: View, member: str, peer: Peer, now_s: float) -> LivenessVerdict | None:
        """A leader that is itself cut off calls nobody silent: it could commit nothing, and would when it is back."""
        watch = self._watches[member]
        if watch.verdict is None:
            gone_s = self._gone_at_s(view, member, watch, now_s)
            if gone_s is not None and gone_s <= now_s:
                watch.verdict = LivenessVerdict(member, peer.incarnation, "gone", view.term)
            elif self._silent_at_s(watch, now_s) <= now_s and self.has_majority(now_s):
                watch.verdict = LivenessVerdict(member, peer.incarnation, "silent", view.term)
        elif now_s - watch.verdict_s < AGAIN_S:
            return None
        watch.verdict_s = now_s
        return watch.verdict

    def _silent_at_s(self, watch: _Watch, now_s: float) -> float:
        times = self._waits.to_judge(now_s)
        return max(watch.heard_s + times.silence_s, self._elected_s + times.whole_s)

    def _gone_at_s(self, view: View, member: str, watch: _Watch, now_s: float) -> float | None:
        if not view.settings.refusal_is_death:
            return None
        return self._evidence.dead_at(member, watch.incarnation, self._waits.to_judge(now_s).margin_s)
