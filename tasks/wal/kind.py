"""The kind `wal`: archives the write-ahead log of a PostgreSQL server, as long as the task exists."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, NoReturn

from tasks.backup.archive import Damaged
from tasks.backup.encryption import Encryption
from tasks.backup.params import place_url
from tasks.backup.sources.in_place import closed_to_others
from tasks.errors import Unretryable
from tasks.kind import Context
from tasks.needs import Needs, credential_groups
from tasks.places.object_lock import LockTime
from tasks.places.place import Place, place_reach, resolved
from tasks.postgres.wal_position import WalPosition, lsn_text
from tasks.reach import Reach
from tasks.wal.archive import ArchiveAway, archived_systems
from tasks.wal.counted import Counted
from tasks.wal.locks import ArchiveLocks
from tasks.wal.others import OtherServers
from tasks.wal.pages import WalGap
from tasks.wal.params import WalParams, slot_of
from tasks.wal.plan import ServerBehind, StreamPart, WalServer, application_prefix, check_history, stream_part
from tasks.wal.receiver import WalReceiver
from tasks.wal.retention import remove_unneeded
from tasks.wal.server import ReplicationServer, WalConnection, WalRemoved, WalServerAway, WalServerRefused
from tasks.wal.writer import ArchiveWriter, Ask

RESULT: Final = {
    "system": "the server's system identifier",
    "timeline": "the timeline up to which the log is archived",
    "lsn": "the LSN up to which it is",
    "gaps": "the number of ranges that the server had removed before they were archived",
    "seconds": "how long the attempt took",
}
"""The fields of a run's result, with their descriptions for docs/reference."""

_CHECKPOINT_S: Final = 10.0
_SAY_S: Final = 60.0
_AGAIN_S: Final = 0.5
_AGAIN_MAX_S: Final = 15.0
_AWAY_S: Final = 300.0
"""The time for which an attempt goes on that archives nothing. Then it ends, so that its run tells what is away."""


class OtherSystem(Unretryable):
    """The server is another database system than the one whose log is archived here."""


class UnboundedSlot(Unretryable):
    """The server has no limit on the log that it keeps for the slot, so its disk could fill up."""


class LogLost(Unretryable):
    """The server has removed log that was not archived yet. A page says so; the next run goes on behind it."""


class Wal:
    """Archives a server's log, for a continuous task: an attempt ends when it is cancelled or handed over."""

    Params = WalParams
    requires: ClassVar = ("psycopg2",)
    one_at_a_time = True

    @staticmethod
    def reaches(params: WalParams, task: str) -> list[Reach]:
        """Return the paths and hosts that the params of `task` name (`tasks.kind.Kind`)."""
        servers = [
            Reach(f"servers.{number}", "source", server.url, addresses=server.addresses())
            for number, server in enumerate(params.servers)
        ]
        folders = [task] if params.backups is None else [task, params.backups]
        return [
            *servers,
            *(place_reach("destination", place_url(params.destination, folder), params.options) for folder in folders),
        ]

    @staticmethod
    def needs(params: WalParams, task: str) -> Needs:
        """Return the needs of an attempt (`tasks.kind.Kind`)."""
        certificates = (server.certificate(f"servers.{number}") for number, server in enumerate(params.servers))
        own = {group: None for server in params.servers for group in server.own_credentials}
        return Needs(
            reaches=(*Wal.reaches(params, task), *(reach for each in certificates for reach in each)),
            own_credentials=(*credential_groups(params.destination, params.options), *own),
        )

    def run(self, ctx: Context[WalParams]) -> dict[str, Any]:
        """Archive until the attempt is cancelled. Returns the fields of `RESULT`.

        Raises `AccessRefused`, `ArchiveHangs`, `ArchiveUnfit`, `BadDestination`, `BadIdentity`, `ClaimedElsewhere`,
        `Damaged`, `Fenced`, `LogLost`, `MissingSecret`, `NoBucket`, `NoObjectLock`, `OtherHistory`, `OtherSystem`,
        `ServerBehind`, `UnboundedSlot`, `WalServerAway` and `WalServerRefused`.
        """
        with closed_to_others():
            return _WalAttempt(ctx).run()


class _WalAttempt:
    """One attempt, which connects again whenever a connection is lost."""

    def __init__(self, ctx: Context[WalParams]) -> None:
        self._ctx = ctx
        params = ctx.params
        for server in params.servers:
            server.check(ctx.access)
        self._place = Place(
            place_url(params.destination, ctx.task),
            resolved(params.options, ctx.secret),
            ctx.access,
            lock=LockTime.of(params.lock_days, datetime.now(UTC)),
            removes=params.lock_days is None,
        )
        self._place.check_lock()
        self._locks: ArchiveLocks | None = None
        self._housekeeping = threading.Lock()
        self._slot = slot_of(params, ctx.task)
        # The prefix distinguishes tasks; the token shows which attempts are earlier.
        self._prefix = application_prefix(self._slot, ctx.task, ctx.cluster)
        self._writer: ArchiveWriter | None = None
        self._system = ""
        self._well_s = self._said_s = time.monotonic()
        # The first checkpoint comes at once: from then on the losses of earlier attempts are forgotten.
        self._saved_s = self._well_s - _CHECKPOINT_S
        self._pages = 0

    def run(self) -> dict[str, Any]:
        """Archive until the attempt is cancelled, and return the kind's result."""
        began_s = time.monotonic()
        wait_s = _AGAIN_S
        while not self._ctx.cancelled:
            well_s, archived = self._well_s, self._archived()
            try:
                self._follow()
            except (WalServerAway, ServerBehind, ArchiveAway) as error:
                if self._archived() != archived:
                    self._well_s = time.monotonic()
                if time.monotonic() - self._well_s > _AWAY_S:
                    raise
                wait_s = _AGAIN_S if self._well_s > well_s else min(wait_s * 2, _AGAIN_MAX_S)
                self._ctx.log.warning("%s; connecting again in %.1f s", error, wait_s)
                self._sleep(wait_s)
        self._ctx.log.info(
            "the server keeps its log for the slot %s until the next run; if there will be none, remove it there: "
            "SELECT pg_drop_replication_slot('%s')",
            self._slot,
            self._slot,
        )
        counted = Counted() if self._writer is None else self._writer.counted
        position = counted.position or WalPosition(0, 0)
        return {
            "system": self._system,
            "timeline": position.timeline,
            "lsn": lsn_text(position.lsn),
            "gaps": len(counted.gaps),
            "seconds": round(time.monotonic() - began_s, 3),
        }

    def _archived(self) -> WalPosition | None:
        return None if self._writer is None else self._writer.counted.position

    def _sleep(self, wait_s: float) -> None:
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s and not self._ctx.cancelled:
            time.sleep(0.1)

    def _follow(self) -> None:
        """Stream from the present primary, through all ends of timelines, until it is not the primary any more."""
        servers = self._servers()
        server = self._primary(servers)
        writer = self._claimed(server)
        for each in servers:
            each.name = f"{self._prefix} {writer.token}"
        ended = server.end_earlier(self._prefix, writer.token)
        if ended:
            self._ctx.log.info("ended %d earlier streams of this task", len(ended))
        kept_from = self._ready_slot(server)
        others = OtherServers(
            [each for each in servers if each is not server],
            self._system,
            lambda: writer.counted.position,
            self._ctx.log,
            unbounded=self._ctx.params.accept_unbounded_slot,
        )
        with closing(others):
            self._stream(server, others, writer, kept_from)

    def _stream(
        self, server: ReplicationServer, others: OtherServers, writer: ArchiveWriter, kept_from: int | None
    ) -> None:
        """Stream from a server, through all ends of timelines."""
        while not self._ctx.cancelled:
            with closing(server.connect()) as connection:
                found = connection.identify(kept_from)
                others.timeline = found.timeline
                part = stream_part(writer.counted.position, found)
                self._check_history(writer, found)
                # Not of a server that is refused: a restore follows each history file that is archived.
                self._store_history(connection, writer, found)
                if not self._receive(server, others, connection, writer, found, part):
                    return

    def _servers(self) -> list[ReplicationServer]:
        """Return the servers that the params name."""
        found = []
        for named in self._ctx.params.servers:
            password = None if named.password is None else self._ctx.secret(named.password)
            name = f"{self._prefix} {self._ctx.token}"
            found.append(ReplicationServer(named.url, password, name, self._slot))
        return found

    def _primary(self, servers: Sequence[ReplicationServer]) -> ReplicationServer:
        """Return the server to stream from: the primary, else the first that answers.

        Of several primaries, choose the one on the newest timeline, because the others are from before a switch-over.
        """
        unheard: list[WalServerAway | WalServerRefused] = []
        primaries: list[ReplicationServer] = []
        standbys: list[ReplicationServer] = []
        # All at once: a server that is silent takes as long as a connection may take.
        with ThreadPoolExecutor(len(servers)) as pool:
            asked = [pool.submit(server.in_recovery) for server in servers]
        for server, answer in zip(servers, asked, strict=True):
            try:
                (standbys if answer.result() else primaries).append(server)
            except (WalServerAway, WalServerRefused) as error:
                unheard.append(error)
        if not primaries and not standbys:
            away = [error for error in unheard if isinstance(error, WalServerAway)]
            raise (type(away[0]) if away else WalServerRefused)("; ".join(map(str, unheard)))
        if len(primaries) > 1:
            primaries.sort(key=ReplicationServer.timeline, reverse=True)
            self._ctx.log.warning(
                "%d of the servers are primaries; the one on the newest timeline is %s",
                len(primaries),
                primaries[0].url,
            )
        return (primaries or standbys)[0]

    def _claimed(self, server: ReplicationServer) -> ArchiveWriter:
        """Claim the archive for this attempt; later calls check the claim, as this process may have been frozen."""
        with closing(server.connect()) as connection:
            found = connection.identify(None)
        if self._system not in {"", found.system}:
            raise OtherSystem(f"{server.url} is now the database system {found.system}, and was {self._system}")
        if self._writer is not None:
            self._writer.check_claim()
            return self._writer
        others = [name for name in archived_systems(self._place) if name != found.system]
        if others:
            raise OtherSystem(
                f"{server.url} is the database system {found.system}, and {self._place.url} holds the log of "
                f"{', '.join(others)}: its log cannot continue that. If the server was made anew, register its archive "
                "under another task name, and begin with a full backup"
            )
        self._system = found.system
        place = self._place.inside(found.system)
        ctx = self._ctx
        writer = ArchiveWriter(
            place,
            ctx.token,
            ctx.node,
            found.segment_bytes,
            ctx.params.level,
            cluster=ctx.cluster,
            accept=ctx.params.accept_cluster == ctx.cluster,
            encryption=Encryption.of(ctx.params.encryption, ctx.secret),
        )
        writer.claim()
        self._ctx.log.info("claimed %s, which is archived up to %s", place.url, writer.counted.position or "nothing")
        self._writer = writer
        if ctx.params.lock_days is not None:
            self._locks = ArchiveLocks(place, ctx.params.lock_days, _renewed(ctx.checkpoint))
        return writer

    def _ready_slot(self, server: ReplicationServer) -> int | None:
        """Create the slot if it is missing or lost. Returns the LSN from which on the server keeps the log for it."""
        if server.kept_at_most_bytes() is None and not self._ctx.params.accept_unbounded_slot:
            raise UnboundedSlot(
                f"{server.url} has max_slot_wal_keep_size = -1: if the archive cannot be written for long, its "
                "disk fills up. Set it there, such as to 50GB (ALTER SYSTEM, and reload), or set in the task's params "
                "`accept_unbounded_slot: true`"
            )
        slot = server.slot()
        if slot is not None and slot.used_by and not slot.used_by.startswith(f"{self._prefix} "):
            raise WalServerAway(
                f"{server.url}: the replication slot {self._slot} is active for {slot.used_by}, which is no attempt at "
                "this task: two streams cannot share a slot. If it is another task, give one of them another `slot`"
            )
        if slot is not None and slot.status == "lost":
            self._ctx.log.error("the server gave the slot %s up, because it kept too much log for it", self._slot)
            server.drop_slot()
            slot = None
        if slot is None or slot.kept_from is None:
            if slot is not None:
                server.drop_slot()
            server.make_slot()
            self._ctx.log.info("made the replication slot %s", self._slot)
            slot = server.slot()
        return None if slot is None else slot.kept_from

    def _store_history(self, connection: WalConnection, writer: ArchiveWriter, found: WalServer) -> None:
        """Store the history file of the server's timeline before any of its segments."""
        if found.timeline > 1 and found.timeline not in writer.counted.histories:
            writer.add([writer.store_history(found.timeline, connection.history(found.timeline))])

    def _check_history(self, writer: ArchiveWriter, found: WalServer) -> None:
        """Raise `OtherHistory` if the server's log only has the number of its timeline in common with the archived."""
        archived = writer.counted.position
        ancestors = writer.ancestors(archived.timeline) if archived else None
        if archived is not None and ancestors is not None:
            check_history(archived.timeline, ancestors, found)

    def _receive(
        self,
        server: ReplicationServer,
        others: OtherServers,
        connection: WalConnection,
        writer: ArchiveWriter,
        found: WalServer,
        part: StreamPart,
    ) -> bool:
        """Receive one part of the log. Returns True if another part may follow, False if the attempt must stop."""
        archived = writer.counted.position
        self._ctx.log.info("receiving from %s on, of %s", WalPosition(part.timeline, part.start), server.url)
        receiver = WalReceiver(
            connection=connection,
            writer=writer,
            part=part,
            segment_bytes=found.segment_bytes,
            scratch=self._ctx.scratch / "wal",
            piece_s=self._ctx.params.piece_s,
            housekeeping=lambda ask: self._keep_house_alone(writer, ask),
            log=self._ctx.log,
        )

        def cancelled() -> bool:
            return self._ctx.cancelled

        def stop() -> bool:
            return cancelled() or others.newer is not None

        try:
            return receiver.run(stop, cancelled, lambda: self._tell(server, others, writer, receiver))
        except WalRemoved as error:
            if archived is None:
                raise WalServerAway(f"{server.url}: {error}") from None
            self._record_gap(server, writer, found, archived, str(error))

    def _record_gap(
        self, server: ReplicationServer, writer: ArchiveWriter, found: WalServer, archived: WalPosition, why: str
    ) -> NoReturn:
        """Write a page that says which range of the log is lost, and raise `LogLost`, which is told as a failure."""
        slot = server.slot()
        goes_on = stream_part(None, found._replace(kept_from=slot.kept_from if slot else None))
        if WalPosition(goes_on.timeline, goes_on.start) <= archived:
            raise WalServerAway(f"{server.url}: {why}")
        since = writer.counted.position_at
        writer.add_gap(WalGap(timeline=goes_on.timeline, start=archived.lsn, end=goes_on.start, since=since))
        raise LogLost(
            f"{server.url} has removed the log from {archived} on ({why}). The next run goes on at "
            f"{lsn_text(goes_on.start)}: no moment between them can be restored, nor a later one from an earlier "
            "backup. Make a full physical backup now"
        )

    def _locks_saved(self) -> dict[str, str]:
        """What a checkpoint says of the locks."""
        renewed = None if self._locks is None else self._locks.renewed
        return {} if renewed is None else {"renewed": renewed.isoformat()}

    def _keep_house_alone(self, writer: ArchiveWriter, ask: Ask) -> None:
        """Keep house, unless the thread of an earlier stream still does."""
        if self._housekeeping.acquire(blocking=False):
            try:
                self._keep_house(writer, ask)
            finally:
                self._housekeeping.release()

    def _keep_house(self, writer: ArchiveWriter, ask: Ask) -> None:
        """Remove log that no backup of the task in `backups` needs, and objects that no page names. Raises `Fenced`."""
        params, backups = self._ctx.params, None
        if params.backups is not None:
            url = place_url(params.destination, params.backups)
            backups = Place(url, resolved(params.options, self._ctx.secret), self._ctx.access)
        now = datetime.now(UTC)
        remove_unneeded(writer, backups, self._system, self._ctx.log, params.days, now, ask)
        if self._locks is not None:
            try:
                renewed = self._locks.renew(ask(writer.copy_counted), now)
            except (ArchiveAway, Damaged) as error:
                self._ctx.log.warning("locks could not be renewed: %s", error)
            else:
                if renewed:
                    self._ctx.log.info("renewed the locks of %d objects", renewed)

    def _tell(
        self, server: ReplicationServer, others: OtherServers, writer: ArchiveWriter, receiver: WalReceiver
    ) -> None:
        """Save the position every few seconds, and log it every minute. Raises `Fenced`."""
        now_s = time.monotonic()
        if receiver.settled or writer.counted.number > self._pages:
            self._well_s, self._pages = now_s, writer.counted.number
        position = writer.counted.position
        if position is None or now_s - self._saved_s < _CHECKPOINT_S:
            return
        self._saved_s = now_s
        at = writer.counted.position_at
        saved = {"system": self._system, "timeline": position.timeline, "lsn": lsn_text(position.lsn)}
        # The page shows up to which moment the server can be restored.
        self._ctx.save_checkpoint({**saved, "at": at.isoformat() if at else None, **self._locks_saved()})
        if now_s - self._said_s < _SAY_S:
            return
        self._said_s = now_s
        slot = server.slot()
        if slot is not None and slot.status == "unreserved":
            self._ctx.log.warning(
                "%s keeps more for the slot %s than max_slot_wal_keep_size, and may give it up at its next checkpoint",
                server.url,
                self._slot,
            )
        age_s = (datetime.now(UTC) - at).total_seconds() if at else 0.0
        self._ctx.log.info(
            "archived up to %s, %.0f s ago; the server keeps %.1f MiB for the slot%s",
            position,
            age_s,
            (slot.retained_bytes if slot else 0) / (1 << 20),
            others.summary,
        )


def _renewed(checkpoint: Any) -> datetime | None:
    """Return when an earlier attempt renewed the locks of the archive; None: not known."""
    text = checkpoint.get("renewed") if isinstance(checkpoint, dict) else None
    return None if text is None else datetime.fromisoformat(text)
