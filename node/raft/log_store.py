"""The data folder: journal and snapshot, opened together and made to fit each other.

What is damaged is set aside (renamed, never deleted), and the member catches up from the others; until it has, it
votes for nobody (`recall`). Only where there are no others, it is refused as it is.
"""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from node.raft import membership, snapshot
from node.raft.errors import CannotOpen, DamagedData, ForeignData, OtherCluster
from node.raft.flush_counter import Witness
from node.raft.journal import WITNESS, SqliteJournal
from node.raft.snapshot import Header
from node.storage.quarantine import set_aside

logger = logging.getLogger(__name__)

JOURNAL = "raft.sqlite"
SNAPSHOT = "snapshot"
CLUSTER_ID = "cluster id"
"""The journal's note of which cluster the member is of."""

FOUNDING = "founding"
"""The journal's note of the founding to which the member is bound (`founding.Bound`)."""

TOLD = "told"
"""The journal's note of a cluster that the member was told of while it was of none (`founding.Told`)."""

LOST = "lost"
"""The journal's note of what was set aside; empty if nothing was, or this member has caught up since."""

LIFE = "life"
"""The journal's note of which life this is: a journal that takes the place of a lost one has a greater number."""


@dataclass(frozen=True, slots=True)
class LogStore:
    """What was found. `header` is None if there is no snapshot; `cluster` are the members by the log.

    `cluster_id` is empty while the member is of no cluster.
    """

    path: Path
    journal: SqliteJournal
    header: Header | None
    cluster: tuple[str, ...]

    @property
    def cluster_id(self) -> str:
        """Which cluster the member is of; empty while it is of none."""
        return self.journal.note(CLUSTER_ID)

    @property
    def snapshot(self) -> Path:
        """Where the snapshot is, or is to be."""
        return self.path / SNAPSHOT


@dataclass(frozen=True, slots=True)
class _Before:
    """What of a journal that is set aside is known, if it could be read."""

    term: int = 0
    vote: str | None = None
    cluster_id: str = ""


class _Unfit(DamagedData):
    """A journal that is whole, and cannot be used."""


def open_folder(path: Path, me: str, cluster: Iterable[str], cluster_id: str = "") -> LogStore:
    """Open the folder of member `me`, checking all that is in it; a new one begins with `cluster`.

    `cluster_id`: that of the cluster it is to join, if it is to. Raises DamagedData where `cluster` names nobody else
    to catch up from, FolderInUse, ForeignData, OtherCluster, CannotOpen.
    """
    first_cluster = tuple(sorted(cluster))
    try:
        path.mkdir(parents=True, exist_ok=True)
        begun = _begun(path)
        header, no_snapshot = _snapshot(path / SNAPSHOT)
        try:
            journal = _journal(path, me, begun)
        except DamagedData as error:
            journal = _begin_again(path, me, header, first_cluster, _Before(), error)
        return _fitted(path, me, first_cluster, cluster_id, journal, header, no_snapshot)
    except OSError as error:
        raise CannotOpen(f"Raft's folder {path} cannot be used ({error.strerror})") from error


def _begun(path: Path) -> bool:
    """Whether this member has had a journal here."""
    witness = Witness(path / WITNESS)
    if witness.begun and witness.flushes is None:
        kept = set_aside([witness.path])
        logger.error("%s cannot be read: it is written anew, and kept as %s", witness.path, kept[0])
    return witness.begun or (path / SNAPSHOT).exists()


def _snapshot(place: Path) -> tuple[Header | None, DamagedData | None]:
    try:
        return (snapshot.check(place) if place.exists() else None), None
    except DamagedData as error:
        return None, error


def _journal(path: Path, me: str, begun: bool) -> SqliteJournal:
    if begun and not (path / JOURNAL).exists():
        raise DamagedData(f"the journal {path / JOURNAL} is gone")
    journal = SqliteJournal(path / JOURNAL)
    try:
        for left in path.glob("*.tmp"):
            left.unlink()
        owner = journal.note("member")
        if not owner and (begun or len(journal)):
            raise DamagedData(f"the journal {journal.path} does not say whose it is")
        if owner not in ("", me):
            raise ForeignData(
                f"{path} is the data folder of {owner}, and this is {me}: give each member a folder of its own"
            )
    except BaseException:
        journal.close()
        raise
    return journal


def _begin_again(
    path: Path, me: str, header: Header | None, cluster: tuple[str, ...], before: _Before, why: DamagedData
) -> SqliteJournal:
    """Set the journal aside, with all that belongs to it, and begin one that knows that something is lost.

    A snapshot that is whole is kept: what it holds was committed. Raises DamagedData where there are no others.
    """
    known = header.cluster if header and cluster else cluster
    if all(member.split(" ", 1)[0] == me for member in known):
        raise why
    place = path / JOURNAL
    # The journal itself goes last: a start that is interrupted here finds it broken off, and begins again.
    kept = set_aside(
        [place.with_name(f"{JOURNAL}-wal"), place.with_name(f"{JOURNAL}-shm"), place]
        + ([path / SNAPSHOT] if header is None else [])
    )
    logger.error(
        "%s. What was damaged is kept as %s. This member catches up from the others, and does not vote before it has",
        why.what,
        ", ".join(each.name for each in kept) or "nothing: it is gone",
    )
    journal = SqliteJournal(place)
    try:
        journal.set_note("member", me)
        journal.set_note("cluster", "\n".join(cluster))
        journal.set_note(LOST, why.what)
        journal.set_note(LIFE, str(time.time_ns()))
        journal.set_note(CLUSTER_ID, before.cluster_id)
        journal.setCurrentTerm(before.term, before.vote)
    except BaseException:
        journal.close()
        raise
    return journal


def _fitted(
    path: Path,
    me: str,
    cluster: tuple[str, ...],
    cluster_id: str,
    journal: SqliteJournal,
    header: Header | None,
    no_snapshot: DamagedData | None,
) -> LogStore:
    try:
        if not journal.note("member"):
            journal.set_note("member", me)
            journal.set_note("cluster", "\n".join(cluster))
            journal.set_note(LIFE, str(time.time_ns()))
        try:
            _fit(journal, path, header, no_snapshot)
        except _Unfit as error:
            before = _Before(journal.getCurrentTerm(), journal.getVotedForNodeId(), journal.note(CLUSTER_ID))
            journal.close()
            journal = _begin_again(path, me, header, cluster, before, error)
            _fit(journal, path, header, None)
        _join(journal, path, cluster_id)
        if header is None and cluster and _waits(journal):
            journal.set_note("cluster", "\n".join(cluster))
        base = header.cluster if header is not None else tuple(journal.note("cluster").split("\n"))
        members = membership.after(base, journal.after(header.index if header is not None else 0))
        journal.flush()
    except BaseException:
        journal.close()
        raise
    return LogStore(path, journal, header, members)


def _waits(journal: SqliteJournal) -> bool:
    """Whether it has taken part in nothing yet, so that the list of members may still be mended."""
    nothing = not len(journal) or journal.term_at(journal.last_index) == 0
    return nothing and not any(journal.note(each) for each in ("votes", LOST, CLUSTER_ID, FOUNDING))


def _join(journal: SqliteJournal, path: Path, cluster_id: str) -> None:
    of = journal.note(CLUSTER_ID)
    if of and cluster_id and of != cluster_id:
        raise OtherCluster(
            f"{path} is the data folder of a member of cluster {of}, and this node is to join cluster {cluster_id}: "
            "give it an empty folder (ROTA_DATA)"
        )
    if not of and cluster_id:
        journal.set_note(CLUSTER_ID, cluster_id)


def _fit(journal: SqliteJournal, path: Path, header: Header | None, no_snapshot: DamagedData | None) -> None:
    """Finish what a crash may have interrupted: a snapshot from a leader is renamed first, then the log replaced.

    A log that reaches beyond the snapshot is kept: it holds entries that were acknowledged. (The library throws it
    away unless it begins with the snapshot's last entries.)
    """
    first = journal.first_index if len(journal) else 1
    if header is None:
        if first != 1:
            what = no_snapshot.what if no_snapshot else f"the snapshot {path / SNAPSHOT} is gone"
            raise _Unfit(f"{what}, and the journal {journal.path} begins at entry {first} only")
        if no_snapshot is not None and (path / SNAPSHOT).exists():
            kept = set_aside([path / SNAPSHOT])
            logger.error("%s. It is kept as %s; the journal has all that was in it", no_snapshot.what, kept[0].name)
        return
    if len(journal) and journal.getCurrentTerm() < header.last[2]:
        raise _Unfit(f"the journal {journal.path} is of an earlier term than the snapshot")
    if not len(journal) and not journal.note(LOST):
        raise _Unfit(f"the journal {journal.path} is empty, and there is a snapshot up to entry {header.index}")
    if len(journal) and first > header.prev[1]:
        raise _Unfit(f"the journal {journal.path} does not go with the snapshot, which ends at entry {header.index}")
    if not len(journal) or header.index > journal.last_index or journal.term_at(header.index) != header.last[2]:
        journal.setCurrentTerm(max(journal.getCurrentTerm(), header.last[2]), journal.getVotedForNodeId())
        journal.replace([header.prev, header.last])
