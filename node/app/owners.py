"""The callbacks from Raft, the heartbeats and the disk watch to their member, each called in its own thread."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from node.app.core import Core
from node.execution.order import log_path, scratch_folder
from node.liveness.detector import LivenessVerdict
from node.liveness.lease import LeaseNow
from node.liveness.wall_clock import CLOCK, machine_us
from node.runtime.logs import flush
from node.storage.disk_watch import AttemptFiles, Running

_log = logging.getLogger("rota")


@dataclass(frozen=True, slots=True)
class MemberHeartbeatOwner:
    """Implements `node.liveness.heartbeat.HeartbeatOwner`, for the heartbeats' thread.

    `lease` and `verdict` are called with each lease and verdict; `turns` returns how many turns Raft's thread has made.
    """

    lease: Callable[[LeaseNow], None]
    verdict: Callable[[LivenessVerdict], None]
    turns: Callable[[], int]

    def on_lease(self, lease: LeaseNow) -> None:
        """Pass on a lease that was renewed or dropped."""
        self.lease(lease)

    def on_verdict(self, verdict: LivenessVerdict) -> None:
        """Pass on the verdict that a member is down."""
        self.verdict(verdict)

    def on_clock(self, agreed_us: int, sent_s: float, now_s: float) -> None:
        """Use the wall clock on which most members agree from now on."""
        CLOCK.agree(agreed_us, sent_s, now_s)

    def wall_us(self) -> int:
        """Return this machine's wall clock, in microseconds since the epoch."""
        return machine_us()

    def raft_turns(self) -> int:
        """Return how many turns Raft's thread has made."""
        return self.turns()

    def on_failure(self, error: BaseException) -> None:
        """End this process at once: without heartbeats no lease is renewed, and work would go on without one."""
        _log.critical("the heartbeat thread has failed, and without it this node is no member: exiting", exc_info=error)
        flush()
        os._exit(1)


@dataclass(frozen=True, slots=True)
class MemberDiskOwner:
    """Implements `node.storage.disk_watch.DiskOwner`, for the event loop.

    `folder` is the member's data folder. `prepared` returns the folders of the process prepared for an attempt.
    """

    folder: Path
    core: Core
    prepared: Callable[[str, int], tuple[Path, ...]]

    def running(self) -> Running:
        """Return the attempts that run here, and where they write."""
        runs = self.core.state().runs
        return {
            (run_id, attempt.token): AttemptFiles(
                (scratch_folder(self.folder, run_id, attempt.token), *self.prepared(run_id, attempt.token)),
                log_path(self.folder, run_id, runs[run_id].attempts[-1].attempt),
                runs[run_id].spec.limits.scratch,
            )
            for run_id, attempt in self.core.controller.held.items()
            if not attempt.ended and run_id in runs
        }

    def stop_attempt(self, run_id: str, error: str) -> None:
        """End an attempt as failed."""
        self.core.controller.fail(run_id, error)

    def stand_aside(self, why: str | None) -> None:
        """Accept no new work, because of `why`; None: the reason no longer holds."""
        self.core.membership.self_drain.set("disk", why)
