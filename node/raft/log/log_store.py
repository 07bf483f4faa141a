"""Raft's data folder: opens the journal and the snapshot, and makes them consistent with each other.

A damaged file is set aside (renamed, never deleted), and the member catches up from the others; until then it has no
vote (`amnesia`). If there are no other members, opening fails, and the folder is left as it is.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from node.raft.errors import CannotOpen, DamagedData, ForeignData, OtherCluster
from node.raft.log import membership, snapshot
from node.raft.log.flush_counter import FlushCounter
from node.raft.log.journal import FLUSH_COUNTER, SqliteJournal
from node.raft.log.snapshot import Header
from node.storage.quarantine import set_aside

logger = logging.getLogger(__name__)

JOURNAL = "raft.sqlite"
SNAPSHOT = "snapshot"
CLUSTER_ID = "cluster id"
"""The name of the journal's note with the id of the member's cluster."""

FOUNDING = "founding"
"""The name of the journal's note with the founding to which the member is bound (`statement.Binding`)."""

KNOWN_CLUSTER = "told"
"""The name of the journal's note with a cluster that the member has heard of (`statement.KnownCluster`)."""

LOST = "lost"
"""The name of the journal's note that describes a damage for which files were set aside. The note is empty if there was
no damage, or once the member has caught up."""

VOTES = "votes"
"""The name of the journal's note that is "yes" if the member remembers all its votes and acknowledgements."""

LIFE = "life"
"""The name of the journal's note with its life: a number that is greater in a journal that replaces a lost one."""


@dataclass(frozen=True, slots=True)
class LogStore:
    """An open data folder. header: the header of the snapshot; None without a snapshot. cluster: the members by the
    log, each as "id host port".
    """

    path: Path
    journal: SqliteJournal
    header: Header | None
    cluster: tuple[str, ...]

    @property
    def cluster_id(self) -> str:
        """The id of the member's cluster; empty while it has no cluster."""
        return self.journal.note(CLUSTER_ID)

    @property
    def snapshot(self) -> Path:
        """The path of the snapshot, which need not exist."""
        return self.path / SNAPSHOT


@dataclass(frozen=True, slots=True)
class _Kept:
    """The values that are copied from a journal that is set aside, if it could be read."""

    term: int = 0
    vote: str | None = None
    cluster_id: str = ""


class _Unusable(DamagedData):
    """The journal is intact, but does not fit the snapshot."""


@dataclass(frozen=True, slots=True)
class Making:
    """The functions that open a journal and number a new one's life (see `LIFE`). Tests pass their own."""

    journal: Callable[[Path], SqliteJournal] = SqliteJournal
    new_life: Callable[[], int] = time.time_ns


def open_folder(
    path: Path, me: str, cluster: Iterable[str], cluster_id: str = "", making: Making | None = None
) -> LogStore:
    """Open the folder of member `me`, and check its files. In a new folder, the log begins with the members `cluster`.

    `cluster_id`: the cluster to join; "": not known. Raises DamagedData if `cluster` names no other member from which
    this one could catch up; LogStoreInUse, ForeignData, OtherCluster, CannotOpen.
    """
    folder = _Folder(path, me, tuple(sorted(cluster)), making or Making())
    try:
        path.mkdir(parents=True, exist_ok=True)
        begun = folder.had_journal()
        header, no_snapshot = _snapshot(path / SNAPSHOT)
        try:
            journal = folder.journal(begun)
        except DamagedData as error:
            journal = folder.begin_again(header, _Kept(), error)
        return folder.fitted(journal, header, no_snapshot, cluster_id)
    except OSError as error:
        raise CannotOpen(f"Raft's folder {path} cannot be used ({error.strerror})") from error


def _snapshot(place: Path) -> tuple[Header | None, DamagedData | None]:
    try:
        return (snapshot.check_snapshot(place) if place.exists() else None), None
    except DamagedData as error:
        return None, error


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder that is being opened. cluster: the members with which a new log begins."""

    path: Path
    me: str
    cluster: tuple[str, ...]
    making: Making

    def had_journal(self) -> bool:
        """Whether this member has had a journal here."""
        counter = FlushCounter(self.path / FLUSH_COUNTER)
        if counter.begun and counter.flushes is None:
            kept = set_aside([counter.path])
            logger.error("%s cannot be read: it is kept as %s, and a new one is written", counter.path, kept[0])
        return counter.begun or (self.path / SNAPSHOT).exists()

    def journal(self, begun: bool) -> SqliteJournal:
        """Open the journal; create it, unless this member has `begun` one. Raises DamagedData, ForeignData."""
        path, me = self.path, self.me
        if begun and not (path / JOURNAL).exists():
            raise DamagedData(f"the journal {path / JOURNAL} is gone")
        journal = self.making.journal(path / JOURNAL)
        try:
            for left in path.glob("*.tmp"):
                left.unlink()
            owner = journal.note("member")
            if not owner and (begun or len(journal)):
                raise DamagedData(f"the journal {journal.path} does not name its member")
            if owner not in ("", me):
                raise ForeignData(
                    f"{path} is the data folder of {owner}, and this is {me}: give each member a folder of its own"
                )
        except BaseException:
            journal.close()
            raise
        return journal

    def begin_again(self, header: Header | None, before: _Kept, why: DamagedData) -> SqliteJournal:
        """Set the journal and its files aside, and begin a new one with a note about the loss.

        An intact snapshot is kept, since its entries were committed. Raises DamagedData if there are no other members.
        """
        known = header.cluster if header and self.cluster else self.cluster
        if all(member.split(" ", 1)[0] == self.me for member in known):
            raise why
        place = self.path / JOURNAL
        # Rename the journal after its companions: after a crash in between, the next start finds it cut off, and
        # repeats this.
        kept = set_aside(
            [place.with_name(f"{JOURNAL}-wal"), place.with_name(f"{JOURNAL}-shm"), place]
            + ([self.path / SNAPSHOT] if header is None else [])
        )
        logger.error(
            "%s. The damaged files are kept as %s. This member catches up from the others, and does not vote before it "
            "has",
            why.what,
            ", ".join(each.name for each in kept) or "nothing: they are gone",
        )
        journal = self.making.journal(place)
        try:
            journal.set_note("member", self.me)
            journal.set_note("cluster", "\n".join(self.cluster))
            journal.set_note(LOST, why.what)
            journal.set_note(LIFE, str(self.making.new_life()))
            journal.set_note(CLUSTER_ID, before.cluster_id)
            journal.setCurrentTerm(before.term, before.vote)
        except BaseException:
            journal.close()
            raise
        return journal

    def fitted(
        self, journal: SqliteJournal, header: Header | None, no_snapshot: DamagedData | None, cluster_id: str
    ) -> LogStore:
        """Make the journal and the snapshot consistent. Returns the open folder. Closes the journal on failure."""
        path, cluster = self.path, self.cluster
        try:
            if not journal.note("member"):
                journal.set_note("member", self.me)
                journal.set_note("cluster", "\n".join(cluster))
                journal.set_note(LIFE, str(self.making.new_life()))
            try:
                _fit(journal, path, header, no_snapshot)
            except _Unusable as error:
                before = _Kept(journal.getCurrentTerm(), journal.getVotedForNodeId(), journal.note(CLUSTER_ID))
                journal.close()
                journal = self.begin_again(header, before, error)
                _fit(journal, path, header, None)
            _join(journal, path, cluster_id)
            if header is None and cluster and _is_unused(journal):
                journal.set_note("cluster", "\n".join(cluster))
            base = header.cluster if header is not None else tuple(journal.note("cluster").split("\n"))
            members = membership.after(base, journal.after(header.index if header is not None else 0))
            journal.flush()
        except BaseException:
            journal.close()
            raise
        return LogStore(path, journal, header, members)


def _is_unused(journal: SqliteJournal) -> bool:
    """Whether the member has no entry, vote, founding or cluster yet, so that its list of members may be corrected."""
    nothing = not len(journal) or journal.term_at(journal.last_index) == 0
    return nothing and not any(journal.note(each) for each in (VOTES, LOST, CLUSTER_ID, FOUNDING))


def _join(journal: SqliteJournal, path: Path, cluster_id: str) -> None:
    known = journal.note(CLUSTER_ID)
    if known and cluster_id and known != cluster_id:
        raise OtherCluster(
            f"{path} is the data folder of a member of cluster {known}, and this node is to join cluster {cluster_id}: "
            "give it an empty folder (ROTA_DATA)"
        )
    if not known and cluster_id:
        journal.set_note(CLUSTER_ID, cluster_id)


def _fit(journal: SqliteJournal, path: Path, header: Header | None, no_snapshot: DamagedData | None) -> None:
    """Finish an interrupted installation of a leader's snapshot, which renames the snapshot, then replaces the log.

    A log that reaches beyond the snapshot is kept, because it has acknowledged entries. (The library would delete it
    unless it begins with the snapshot's last entries.)
    """
    first = journal.first_index if len(journal) else 1
    if header is None:
        if first != 1:
            what = no_snapshot.what if no_snapshot else f"the snapshot {path / SNAPSHOT} is gone"
            raise _Unusable(f"{what}, and the journal {journal.path} begins at entry {first} only")
        if no_snapshot is not None and (path / SNAPSHOT).exists():
            kept = set_aside([path / SNAPSHOT])
            logger.error("%s. It is kept as %s; the journal has all its entries", no_snapshot.what, kept[0].name)
        return
    if len(journal) and journal.getCurrentTerm() < header.last[2]:
        raise _Unusable(f"the journal {journal.path} is of an earlier term than the snapshot")
    if not len(journal) and not journal.note(LOST):
        raise _Unusable(f"the journal {journal.path} is empty, and there is a snapshot up to entry {header.index}")
    if len(journal) and first > header.prev[1]:
        raise _Unusable(
            f"the journal {journal.path} begins after the end of the snapshot, which is entry {header.index}"
        )
    if not len(journal) or header.index > journal.last_index or journal.term_at(header.index) != header.last[2]:
        journal.setCurrentTerm(max(journal.getCurrentTerm(), header.last[2]), journal.getVotedForNodeId())
        journal.replace([header.prev, header.last])
