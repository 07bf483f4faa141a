"""What a member's heartbeats ask of it, and tell it, in their thread: `node.liveness.heartbeat.HeartbeatOwner`."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from node.liveness.detector import LivenessVerdict
from node.liveness.lease import LeaseNow
from node.liveness.wall_clock import CLOCK, machine_us
from node.runtime.logs import flush

_log = logging.getLogger("rota")


@dataclass(frozen=True, slots=True)
class MemberHeartbeatOwner:
    """lease, verdict: get each; turns: how many Raft's thread has made."""

    lease: Callable[[LeaseNow], None]
    verdict: Callable[[LivenessVerdict], None]
    turns: Callable[[], int]

    def on_lease(self, lease: LeaseNow) -> None:
        """The lease is renewed, or was dropped."""
        self.lease(lease)

    def on_verdict(self, verdict: LivenessVerdict) -> None:
        """Mark a member down."""
        self.verdict(verdict)

    def on_clock(self, agreed_us: int, sent_s: float, now_s: float) -> None:
        """Most members agree on a wall clock."""
        CLOCK.agree(agreed_us, sent_s, now_s)

    def wall_us(self) -> int:
        """This machine's wall clock."""
        return machine_us()

    def raft_turns(self) -> int:
        """How many turns Raft's thread has made."""
        return self.turns()

    def on_failure(self, error: BaseException) -> None:
        """End this process at once: without heartbeats no lease is renewed, and work would go on without one."""
        _log.critical("the heartbeat thread has failed, and without it this node is no member: exiting", exc_info=error)
        flush()
        os._exit(1)
