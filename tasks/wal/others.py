"""The other servers of a task's list, while the log of one is received: a thread looks at each every few seconds.

A primary that nobody told of its successor goes on writing, and its stream goes on. So a primary on a newer timeline
must be looked for. And each standby has the slot, too: physical slots do not follow a promotion, and without it a
promoted standby might have removed log that is not archived yet.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from tasks.postgres.wal_position import WalPosition
from tasks.wal.server import ReplicationServer, WalRemoved, WalServerAway, WalServerRefused

LOOK_S: Final = 5.0
"""How often each server is looked at."""


class OtherServers:
    """Looks at `servers` of the database system `system` until it is closed, and keeps their slots at what is archived.

    `archived` returns that position. `timeline` is that of the stream; 0: it has not begun. `newer`: the URL of a
    primary on a later timeline, once there is one. `unbounded`: whether a slot is
    made on a server that has no limit on the log that it keeps.
    """

    def __init__(
        self,
        servers: Sequence[ReplicationServer],
        system: str,
        archived: Callable[[], WalPosition | None],
        log: logging.Logger,
        *,
        unbounded: bool,
    ) -> None:
        self._servers = servers
        self._system = system
        self._archived = archived
        self._log = log
        self._unbounded = unbounded
        self.timeline = 0
        self.newer: str | None = None
        self._closed = threading.Event()
        self._said: dict[str, str] = {}
        self._kept_bytes: dict[str, int] = {}
        if servers:
            threading.Thread(target=self._run, name="look at other servers", daemon=True).start()

    def close(self) -> None:
        """End the thread once it has got its present answer. Does not wait for it."""
        self._closed.set()

    @property
    def summary(self) -> str:
        """What each standby keeps for its slot, as text; empty if there is no standby."""
        return "".join(f"; {url} keeps {kept / (1 << 20):.1f} MiB" for url, kept in self._kept_bytes.items())

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            for server in self._servers:
                try:
                    said = self._look(server)
                except (WalServerAway, WalServerRefused, WalRemoved) as error:
                    said = str(error)
                if said and said != self._said.get(server.url) and not self._closed.is_set():
                    self._log.warning("%s", said)
                self._said[server.url] = said

    def _look(self, server: ReplicationServer) -> str:
        """Look at one server, and move its slot. Returns a sentence if something is not as it should be."""
        self._kept_bytes.pop(server.url, None)
        system, timeline = server.system_and_timeline()
        if system != self._system:
            return f"{server.url} is another database system, {system}: it does not belong in `servers`"
        if not self.timeline:
            return ""  # the stream has not begun
        if not server.in_recovery():
            if timeline <= self.timeline:
                return f"{server.url} is a primary, too, on timeline {timeline}: it is from before a switch-over"
            self.newer = server.url
            return f"{server.url} is now the primary, on timeline {timeline}"
        archived = self._archived()
        slot = server.slot()
        if slot is None or slot.kept_from is None or slot.status == "lost":
            if server.kept_at_most_bytes() is None and not self._unbounded:
                return (
                    f"{server.url} is a standby without a limit on the log that it keeps, so no slot is made there, "
                    "and log may be lost if it is promoted: set max_slot_wal_keep_size"
                )
            if slot is not None:
                server.drop_slot()
            server.make_slot()
        elif archived is not None and archived.timeline == timeline and archived.lsn > slot.kept_from:
            server.advance_slot(archived.lsn)
        if (slot := server.slot()) is not None:
            self._kept_bytes[server.url] = slot.retained_bytes
        return ""
