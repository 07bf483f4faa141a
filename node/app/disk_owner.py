"""What the watch of the disk asks of a member, and tells it: `node.storage.disk_watch.DiskOwner`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from node.app.core import Core
from node.execution.order import log_path, scratch_folder
from node.storage.disk_watch import AttemptFiles, Running


@dataclass(frozen=True, slots=True)
class MemberDiskOwner:
    """folder: the member's data folder; prepared: gives the folders of the process that was prepared for an attempt."""

    folder: Path
    core: Core
    prepared: Callable[[str, int], tuple[Path, ...]]

    def running(self) -> Running:
        """The attempts that run here, and where they write."""
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
        """Take on nothing new, for this reason; None: the reason is gone."""
        self.core.membership.self_drain.set("disk", why)
