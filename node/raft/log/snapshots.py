# ruff: noqa: N802 - the library calls its serializer by these names
"""Writes, sends and receives snapshots, in place of the library's serializer.

A thread writes the state that `capture` has kept, while more entries are applied. Raft's thread renames the finished
file, unless a later snapshot has arrived from the leader. A received snapshot is collected in a separate file, checked
completely, and only then installed.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep, thread_time
from typing import BinaryIO

from pysyncobj.config import SERIALIZER_STATE

from node.raft.errors import Broken, DamagedData
from node.raft.log import snapshot
from node.raft.log.append_filter import Entry
from node.raft.log.snapshot import Header
from node.storage import atomic
from node.storage.disk_full import is_full

logger = logging.getLogger(__name__)

CLOSING_S = 5.0
PIECE_BYTES = 256 << 10
SYNCED_BYTES = 8 << 20
"""The number of received bytes after which they are synced: one sync at the end would block Raft's thread for long."""
RESTS = 3.0
SENDING_S = 60.0
"""For this time after the sending of a snapshot began, no new snapshot is written."""

NO_ROOM_S = 10.0
"""The pause after a snapshot for which the disk had no room. Meanwhile the journal keeps the entries."""

Capture = Callable[[], Callable[[], Iterator[bytes]]]
Part = tuple[bytes, bool, bool]
"""A part of the file: its bytes, whether it is the first part, and whether it is the last."""


def unhurried(pieces: Iterator[bytes], rest: Callable[[float], None] = sleep) -> Iterator[bytes]:
    """Yield the pieces, with a pause after each that is `RESTS` times as long as the work on it.

    No caller waits for a snapshot, and a thread that computes without a pause delays all other threads.
    """
    begun_s = thread_time()
    for piece in pieces:
        yield piece
        rest(RESTS * (thread_time() - begun_s))
        begun_s = thread_time()


class Snapshots:
    """The library's serializer, with checked files and a thread in place of a fork.

    cluster_at: returns the members as of an index. cut_at: returns the first entry to keep in the log, once a snapshot
    covers an index. room: returns whether a member's connection can take another part. clock: a monotonic clock, also
    read in the writing thread. All methods are called in Raft's thread.
    """

    def __init__(
        self,
        place: Path,
        capture: Capture,
        cluster_at: Callable[[int], tuple[str, ...]],
        cut_at: Callable[[int], int],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.place = place
        self._clock = clock
        self.room: Callable[[object], bool] = lambda _member: True
        self.header: Header | None = None
        self.bytes = place.stat().st_size if place.exists() else 0
        self._capture = capture
        self._cluster_at = cluster_at
        self._cut_at = cut_at
        self._written = place.with_name(place.name + ".written.tmp")
        self._incoming = place.with_name(place.name + ".incoming.tmp")
        self._writer: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._writing: Header | None = None
        self._took_s = 0.0
        self._no_room_until_s = 0.0
        self._sending: dict[object, tuple[float, BinaryIO]] = {}
        self._receiving: BinaryIO | None = None
        self._unsynced_bytes = 0

    # -- made here

    @property
    def writing(self) -> bool:
        """Whether a snapshot is being written."""
        return self._writer is not None

    def serialize(self, data: tuple[object, Entry, Entry, object], entry_id: int) -> None:
        """Begin to write a snapshot of the present state, for the library. `data` has the last two applied entries."""
        now = self._clock()
        if now < self._no_room_until_s:
            return
        if self._writer is not None or any(now - since < SENDING_S for since, _ in self._sending.values()):
            return
        _, last, prev, _ = data
        header = Header(last, prev, self._cluster_at(last[1]))
        make = self._capture()
        self._writing, self._failure = header, None
        self._writer = threading.Thread(target=self._write, args=(header, make), name="snapshot", daemon=True)
        self._writer.start()

    def _write(self, header: Header, make: Callable[[], Iterator[bytes]]) -> None:
        begun_s = self._clock()
        try:
            self.bytes = snapshot.write_snapshot(self._written, header, unhurried(make()))
        except BaseException as error:  # noqa: BLE001 - Raft's thread decides
            self._failure = error
        self._took_s = self._clock() - begun_s

    def checkSerializing(self) -> tuple[int, int | None]:
        """Put a finished snapshot in place. Returns the library's state code, and the first entry to keep."""
        if self._writer is None or self._writing is None:
            return SERIALIZER_STATE.NOT_SERIALIZING, None
        header = self._writing
        if self._writer.is_alive():
            return SERIALIZER_STATE.SERIALIZING, header.prev[1]
        self._writer = self._writing = None
        if is_full(self._failure):
            logger.error("no room for a snapshot: %s; trying again in %d s", self._failure, NO_ROOM_S)
            self._written.unlink(missing_ok=True)
            self._no_room_until_s = self._clock() + NO_ROOM_S
            return SERIALIZER_STATE.FAILED, header.prev[1]
        if self._failure is not None:
            raise Broken(f"the snapshot {self._written} could not be written") from self._failure
        if self.header is not None and self.header.index >= header.index:
            self._written.unlink()
            return SERIALIZER_STATE.FAILED, header.prev[1]
        atomic.replace(self._written, self.place, synced=True)
        self.header = header
        self._close_sending()
        logger.info("wrote a snapshot of %d bytes, up to entry %d, in %.1f s", self.bytes, header.index, self._took_s)
        return SERIALIZER_STATE.SUCCESS, self._cut_at(header.prev[1])

    # -- sent

    def getTransmissionData(self, member: object) -> Part | None:
        """Return the next part for a member; None while its connection is full, or if there is no snapshot."""
        if not self.room(member):
            return None
        first = member not in self._sending
        if first:
            if not self.place.exists():
                return None
            self._sending[member] = (self._clock(), self.place.open("rb"))
        file = self._sending[member][1]
        data = file.read(PIECE_BYTES)
        if not data:
            self.cancelTransmisstion(member)
        return data, first, not data

    def cancelTransmisstion(self, member: object) -> None:
        """Stop sending to a member whose connection has ended. The next transmission starts from the beginning."""
        since_file = self._sending.pop(member, None)
        if since_file is not None:
            since_file[1].close()

    def _close_sending(self) -> None:
        for member in list(self._sending):
            self.cancelTransmisstion(member)

    # -- received

    def receive(self, part: Part) -> Header | None:
        """Store a received part. Returns the header once all parts are here and checked; then call `install`.

        A damaged snapshot, or one for which there is no room, is dropped, because the leader will send it again.
        """
        try:
            return self._take(part)
        except OSError as error:
            if not is_full(error):
                raise
            logger.error("no room for the snapshot that the leader sends: %s", error)  # noqa: TRY400 - no traceback
            self._drop_incoming()
            return None

    def _take(self, part: Part) -> Header | None:
        data, first, last = part
        if first:
            self._drop_incoming()
            self._receiving = self._incoming.open("wb")
            self._unsynced_bytes = 0
        if self._receiving is None:
            return None
        self._receiving.write(data)
        self._unsynced_bytes += len(data)
        if self._unsynced_bytes >= SYNCED_BYTES:
            self._receiving.flush()
            os.fsync(self._receiving.fileno())
            self._unsynced_bytes = 0
        if not last:
            return None
        self._receiving.close()
        self._receiving = None
        try:
            return snapshot.check_snapshot(self._incoming)
        except DamagedData:
            logger.warning("dropped a snapshot that arrived damaged; the leader sends it again")
            self._incoming.unlink()
            return None

    def install(self, header: Header) -> None:
        """Put the received snapshot in place. Afterwards it is on the disk, and may be acknowledged."""
        self._close_sending()
        self.bytes = self._incoming.stat().st_size
        atomic.replace(self._incoming, self.place)
        self.header = header

    def _drop_incoming(self) -> None:
        if self._receiving is not None:
            receiving, self._receiving = self._receiving, None
            with suppress(OSError):  # if the disk is full, the buffer cannot be written
                receiving.close()
        self._incoming.unlink(missing_ok=True)

    def setTransmissionData(self, data: object) -> bool:
        """Return whether the library must load the snapshot file: `data` is set once `Inbound` has installed one."""
        return data is not None

    def close(self) -> None:
        """Wait at most CLOSING_S for the writing thread, and close all files. The next start deletes partial ones."""
        if self._writer is not None:
            self._writer.join(CLOSING_S)
        self._close_sending()
        self._drop_incoming()
