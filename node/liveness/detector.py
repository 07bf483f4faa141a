"""The leader's side of liveness: which members get a lease, and which are down. Pure.

Why it is safe: docs/explanation/leases-and-claims.md.

Every method takes `now_s`, the leader's own CLOCK_BOOTTIME. The detector of a follower is idle.
"""

from dataclasses import dataclass
from typing import Literal

from node.liveness.evidence import Evidence
from node.liveness.message import BEAT_S, Beat, HeartbeatAnswer
from node.liveness.timeouts import Timeouts
from node.liveness.view import Peer, View

LATE_S = BEAT_S + 0.05
"""A longer time between two ticks means that this thread was late."""

AGAIN_S = 1.0
"""A verdict is given again if the state does not show it after this time."""


@dataclass(frozen=True, slots=True)
class LivenessVerdict:
    """The decision of the leader of a term to mark a member down, in one incarnation."""

    member: str
    incarnation: int
    reason: Literal["silent", "gone"]
    term: int


@dataclass(slots=True)
class _Watch:
    """One member in one incarnation, in one term of this leader. `verdict_s` is when its verdict was last given."""

    incarnation: int
    heard_s: float
    verdict: LivenessVerdict | None = None
    verdict_s: float = 0.0


class Detector:
    """Answers heartbeats and gives verdicts while this node leads."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._timeouts = Timeouts()
        self._view: View | None = None
        self._elected_s = self._ticked_s = 0.0
        self._echoes_s: dict[str, float] = {}
        self._watches: dict[str, _Watch] = {}

    def observe(self, view: View, now_s: float) -> None:
        """Handle a changed view. Leadership begins with the first view of a term that this node leads."""
        before, self._view = self._view, view
        self._timeouts.observe(view.settings, now_s)
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
        """Handle a member's heartbeat. Returns the answer, or None if this node does not lead in that term."""
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
        lease_s = self._timeouts.to_grant(now_s).lease_s if granted else None
        return HeartbeatAnswer(
            leader=view.me,
            leader_incarnation=view.incarnation,
            incarnation=beat.incarnation,
            term=beat.term,
            sent_s=beat.sent_s,
            now_s=now_s,
            lease_s=lease_s,
        )

    def tick(self, now_s: float) -> list[LivenessVerdict]:
        """Return the verdicts to propose now. Call it several times a second, after handling all received messages.

        A verdict is repeated until the state shows it. If this thread was late, every member's deadline is extended by
        the delay, since no heartbeat could be received meanwhile (Lifeguard: Dadgar, Phillips, Currey 2018).
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
        """Whether a majority has echoed answers that are less than `window_s` old. This node itself counts as one."""
        view = self._view
        if view is None or not view.leading:
            return False
        since_s = now_s - self._timeouts.to_grant(now_s).window_s
        others = sum(self._echoes_s.get(member, since_s) > since_s for member in view.peers if member != view.me)
        return others + 1 >= view.majority

    def next_s(self, now_s: float) -> float | None:
        """Return when the next verdict is due if no message arrives before."""
        view = self._view
        if view is None or not view.leading or not self._lead_applied(view):
            return None
        dues = []
        for member, watch in self._watches.items():
            if member != view.me and watch.verdict is None and view.peers[member].status != "down":
                dues += [self._silent_at_s(watch, now_s), self._gone_at_s(view, member, watch, now_s)]
        return min((due_s for due_s in dues if due_s is not None and due_s > now_s), default=None)

    def _begin(self, now_s: float) -> None:
        """Begin a term. A member's silence counts from now, as an older leader may have granted leases until now."""
        self._watches, self._echoes_s = {}, {}
        self._elected_s = self._ticked_s = now_s
        self._timeouts.elected(now_s)

    def _evidence_s(self, beat: Beat, now_s: float) -> float | None:
        """Return when, on this node's clock, the sender was provably in this term: the echoed, not the arrival time."""
        return beat.echo_s

    def _lead_applied(self, view: View) -> bool:
        """Whether this node has applied all entries that were committed before it became leader."""
        return view.lead_applied

    def _may_hold(self, beat: Beat, view: View) -> bool:
        """Whether to grant a lease. The sender must be a member's present incarnation, not down nor about to be."""
        peer, watch = view.peers[beat.member], self._watches[beat.member]
        current = beat.incarnation == peer.incarnation > 0 and peer.status != "down"
        return current and watch.verdict is None and self._lead_applied(view)

    def _judge(self, view: View, member: str, peer: Peer, now_s: float) -> LivenessVerdict | None:
        """Return the verdict on a member that is due now, or None.

        A leader without a majority judges no member silent, because it could commit the verdict only after the
        partition.
        """
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
        times = self._timeouts.to_judge(now_s)
        return max(watch.heard_s + times.silence_s, self._elected_s + times.whole_s)

    def _gone_at_s(self, view: View, member: str, watch: _Watch, now_s: float) -> float | None:
        if not view.settings.refusal_is_death:
            return None
        return self._evidence.dead_at(member, watch.incarnation, self._timeouts.to_judge(now_s).margin_s)
