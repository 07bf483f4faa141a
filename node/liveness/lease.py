"""The member's side of the lease: until when its work may run. Pure. See docs/explanation/leases-and-claims.md."""

from dataclasses import dataclass, replace

from node.liveness.message import Beat, HeartbeatAnswer
from node.liveness.view import View


@dataclass(frozen=True, slots=True)
class LeaseNow:
    """A lease. `deadline_s` is on this machine's CLOCK_BOOTTIME; after it, the lease has expired.

    `period` grows with each new lease after an expiry. A claim proposed in one period is not started in another. The
    lease is valid only for the `incarnation` that it was granted to.
    """

    deadline_s: float
    period: int
    incarnation: int

    def live(self, now_s: float) -> bool:
        """Whether work may run at `now_s`."""
        return now_s < self.deadline_s


NO_LEASE = LeaseNow(float("-inf"), 0, 0)


class Lease:
    """Makes this member's heartbeats and handles the leader's answers."""

    def __init__(self) -> None:
        self.now = NO_LEASE
        self._view: View | None = None
        self._echo_s: float | None = None

    @property
    def echoed(self) -> bool:
        """Whether the leader of this term has answered yet."""
        return self._echo_s is not None

    def observe(self, view: View, now_s: float) -> LeaseNow | None:
        """Handle a changed view. Returns the ended lease if the present lease must be dropped at once, else None.

        A lease is dropped when this process is marked down, superseded by another incarnation, or removed. A new term
        or leader does not end a lease.
        """
        before, self._view = self._view, view
        if before is None or before.term != view.term:
            self._echo_s = None
        same = before is None or before.incarnation == view.incarnation
        if (view.standing and same) or not self.now.live(now_s):
            return None
        self.now = replace(self.now, deadline_s=now_s)
        return self.now

    def beat(self, now_s: float) -> Beat | None:
        """Return the heartbeat to send now; None while no leader is known."""
        view = self._view
        if view is None or view.leader is None:
            return None
        return Beat(view.me, view.incarnation, view.term, now_s, self._echo_s)

    def answered(self, answer: HeartbeatAnswer, now_s: float) -> LeaseNow | None:
        """Handle the leader's answer. Returns the lease if the answer extended it, else None.

        A lease counts from when the heartbeat was sent, so a late answer grants a shorter lease. Answers of another
        term, and leases for another incarnation, are ignored.
        """
        view = self._view
        if view is None or answer.term != view.term or answer.sent_s > now_s:
            return None
        self._echo_s = answer.now_s if self._echo_s is None else max(self._echo_s, answer.now_s)
        if answer.lease_s is None or answer.incarnation != view.incarnation or not view.standing:
            return None
        deadline_s = answer.sent_s + answer.lease_s
        if deadline_s <= max(now_s, self.now.deadline_s):
            return None
        lapsed = not self.now.live(now_s)
        self.now = LeaseNow(deadline_s, self.now.period + lapsed, view.incarnation)
        return self.now
