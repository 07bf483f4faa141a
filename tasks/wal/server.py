"""One PostgreSQL server, over the replication protocol: its state, its slot, and its log as a stream of bytes.

Uses psycopg2, which supports physical slots and lets the caller decide which position to confirm. `pg_receivewal` would
confirm the log that is on its own disk, which is lost with its machine.
"""

import select
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tasks.errors import Away, Unretryable
from tasks.postgres.replication import LOGIN_REFUSED, PATIENCE, checked_system
from tasks.postgres.url import with_password
from tasks.postgres.wal_position import lsn_text, parse_history, parse_lsn
from tasks.wal.plan import WalServer, tokens_up_to

if TYPE_CHECKING:
    from psycopg2.extensions import connection, cursor

FEEDBACK_S: Final = 5.0
"""How often the server is notified that this attempt is alive. If not, it ends a stream after `wal_sender_timeout`."""

_END_MAX_S: Final = 10.0
_END_AGAIN_MS: Final = 300

_NO_FILE: Final = "58P01"
_IN_USE: Final = "55006"
_NO_MESSAGE: Final = "no message from the libpq"


class WalServerAway(Away):
    """The server does not answer, or has ended the stream."""


class WalServerRefused(Unretryable):
    """The server refuses the login or the replication, or its settings do not allow it."""


class WalRemoved(Exception):
    """The server no longer has the requested part of the log."""


class SlotState(NamedTuple):
    """The state of a replication slot, as the server reports it."""

    #: The LSN from which on the slot keeps the log; None: it keeps none.
    kept_from: int | None
    #: The bytes of log that the server keeps for the slot.
    retained_bytes: int
    #: "reserved", "extended", "unreserved" or "lost"; "" before PostgreSQL 13.
    status: str
    #: The application name and process id of the stream that uses the slot; "": no stream uses it.
    used_by: str = ""


@contextmanager
def _errors_named(url: str) -> Iterator[None]:
    """Turn psycopg2's errors into this module's errors."""
    import psycopg2

    try:
        yield
    except psycopg2.Error as error:
        said = " ".join(str(error).split()) or type(error).__name__
        if _NO_MESSAGE in said:
            said = "the server or the network has ended the stream"
        code = error.pgcode or ""
        if code == _NO_FILE:
            raise WalRemoved(said) from None
        if code[:2] in {"28", "42", "0A", "55"} and code != _IN_USE:
            raise WalServerRefused(f"{url}: {said}") from None
        if not code and any(refusal in said for refusal in LOGIN_REFUSED):
            raise WalServerRefused(f"{url}: {said}") from None
        raise WalServerAway(f"{url}: {said}") from None


class ReplicationServer:
    """A server at `url`. `name` is the application name of its connections."""

    def __init__(self, url: str, password: str | None, name: str, slot: str) -> None:
        self.url = url
        self._target = with_password(url, password, **PATIENCE)
        self.name = name
        self._slot = slot

    @contextmanager
    def _asking(self) -> "Iterator[cursor]":
        import psycopg2

        with _errors_named(self.url), closing(psycopg2.connect(self._target, application_name=self.name)) as opened:
            opened.autocommit = True
            with opened.cursor() as asked:
                yield asked

    def in_recovery(self) -> bool:
        """Whether the server is a standby."""
        with self._asking() as asked:
            asked.execute("SELECT pg_catalog.pg_is_in_recovery()")
            row = asked.fetchone()
        return bool(row and row[0])

    def timeline(self) -> int:
        """The timeline on which the server is now."""
        return self.system_and_timeline()[1]

    def system_and_timeline(self) -> tuple[str, int]:
        """The server's system identifier, and the timeline on which it is now."""
        with closing(self.connect()) as connection:
            return connection.system_and_timeline()

    def end_earlier(self, prefix: str, token: int) -> list[int]:
        """End the streams of earlier attempts, and those that this one has lost, all with `prefix`.

        Returns the process ids. The server notices only after its `wal_sender_timeout` that a client has vanished. A
        stream to a frozen client, whose connection takes no more, does not end the first
        time it is told to: it waits to send the client the reason. It ends when it is told again.
        """
        ended: set[int] = set()
        until_s = time.monotonic() + _END_MAX_S
        with self._asking() as asked:
            while True:
                asked.execute("SELECT pid, application_name FROM pg_catalog.pg_stat_replication")
                left = tokens_up_to(dict(asked.fetchall()), prefix, token)
                ended.update(left)
                if not left or time.monotonic() > until_s:
                    return sorted(ended)
                for pid in left:
                    asked.execute("SELECT pg_catalog.pg_terminate_backend(%s, %s)", (pid, _END_AGAIN_MS))

    def slot(self) -> SlotState | None:
        """Return the slot's state; None if it does not exist. Raises `WalServerRefused` if it is a logical slot."""
        with self._asking() as asked:
            asked.execute(
                "SELECT restart_lsn, pg_catalog.pg_wal_lsn_diff(CASE WHEN pg_catalog.pg_is_in_recovery() THEN "
                "pg_catalog.pg_last_wal_receive_lsn() ELSE pg_catalog.pg_current_wal_lsn() END, restart_lsn), "
                "coalesce(wal_status, ''), slot_type, coalesce(application_name || ' (PID ' || active_pid || ')', '') "
                "FROM pg_catalog.pg_replication_slots LEFT JOIN pg_catalog.pg_stat_replication ON pid = active_pid "
                "WHERE slot_name = %s",
                (self._slot,),
            )
            row = asked.fetchone()
        if row is None:
            return None
        if row[3] != "physical":
            raise WalServerRefused(
                f"{self.url} has a {row[3]} replication slot named {self._slot}, which is not this archive's: set "
                "another name in the task's params (`slot`)"
            )
        return SlotState(None if row[0] is None else parse_lsn(row[0]), int(row[1] or 0), row[2], row[4])

    def kept_at_most_bytes(self) -> int | None:
        """Return the server's `max_slot_wal_keep_size` in bytes; None: it keeps any amount of log for a slot."""
        with self._asking() as asked:
            asked.execute("SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'max_slot_wal_keep_size'")
            row = asked.fetchone()
        return None if row is None or row[0] < 0 else int(row[0]) << 20

    def make_slot(self) -> None:
        """Create the slot, which keeps the log from now on."""
        with self._asking() as asked:
            asked.execute("SELECT pg_catalog.pg_create_physical_replication_slot(%s, true)", (self._slot,))

    def advance_slot(self, lsn: int) -> None:
        """Let a standby remove log that its slot keeps: up to `lsn`, or as far as it has replayed."""
        with self._asking() as asked:
            asked.execute(
                "SELECT pg_catalog.pg_replication_slot_advance(%s, least(%s::pg_lsn, "
                "pg_catalog.pg_last_wal_replay_lsn()))",
                (self._slot, lsn_text(lsn)),
            )

    def drop_slot(self) -> None:
        """Remove the slot."""
        with self._asking() as asked:
            asked.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", (self._slot,))

    def connect(self) -> "WalConnection":
        """Open a connection for the replication protocol."""
        import psycopg2
        import psycopg2.extras

        with _errors_named(self.url):
            opened = psycopg2.connect(
                self._target,
                application_name=self.name,
                connection_factory=psycopg2.extras.PhysicalReplicationConnection,
            )
        return WalConnection(self.url, self._slot, opened)


class WalConnection:
    """A connection over which the log is streamed. One thread uses it at a time."""

    def __init__(self, url: str, slot: str, opened: "connection") -> None:
        self._url = url
        self._slot = slot
        self._connection = opened
        self._cursor: Any = opened.cursor()
        self._end: int | None = None
        self._at = 0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def system_and_timeline(self) -> tuple[str, int]:
        """The server's system identifier, and the timeline on which it is now."""
        system, timeline, *_ = self._row("IDENTIFY_SYSTEM")
        return checked_system(system), int(timeline)

    def identify(self, kept_from: int | None) -> WalServer:
        """Ask for the server's own report of its state. `kept_from` of its slot is copied into the result."""
        system, timeline, flushed, _ = self._row("IDENTIFY_SYSTEM")
        size, unit = self._row("SHOW wal_segment_size")[0][:-2], self._row("SHOW wal_segment_size")[0][-2:]
        segment_bytes = int(size) << {"kB": 10, "MB": 20, "GB": 30}[unit]
        forks = parse_history(self.history(timeline).decode()) if timeline > 1 else ()
        return WalServer(
            system=checked_system(system),
            timeline=timeline,
            flushed=parse_lsn(flushed),
            segment_bytes=segment_bytes,
            forks=forks,
            kept_from=kept_from,
        )

    def history(self, timeline: int) -> bytes:
        """Return the content of a timeline's history file. Raises `WalRemoved` if the server does not have it."""
        content = self._row(f"TIMELINE_HISTORY {int(timeline)}")[1]
        return content.encode() if isinstance(content, str) else bytes(content)

    def _row(self, command: str) -> Any:
        with _errors_named(self._url):
            self._cursor.execute(command)
            return self._cursor.fetchone()

    def start(self, timeline: int, start: int, end: int | None) -> None:
        """Begin to stream a timeline from an LSN on. Raises `WalRemoved`."""
        import psycopg2.extras

        self._end, self._at = end, start
        with _errors_named(self._url):
            self._cursor.start_replication(
                slot_name=self._slot,
                slot_type=psycopg2.extras.REPLICATION_PHYSICAL,
                start_lsn=start,
                timeline=timeline,
                status_interval=FEEDBACK_S,
            )

    def read(self, wait_s: float) -> bytes | None:
        """Return the next bytes of the log; b"" if none arrive within `wait_s`; None at the end of the timeline."""
        if self._end is not None and self._at >= self._end:
            return None
        with _errors_named(self._url):
            message = self._cursor.read_message()
            if message is None:
                select.select([self._connection], [], [], wait_s)
                message = self._cursor.read_message()
        if message is None:
            return b""
        if message.data_start != self._at:
            raise WalServerAway(f"{self._url}: the stream goes on at {message.data_start:X} instead of {self._at:X}")
        content = bytes(message.payload)
        self._at += len(content)
        return content

    def confirm(self, lsn: int) -> None:
        """Tell the server that the log is archived up to `lsn`: it may remove older log. 0: as told before."""
        with _errors_named(self._url):
            self._cursor.send_feedback(write_lsn=self._at, flush_lsn=lsn, apply_lsn=lsn, force=True)
