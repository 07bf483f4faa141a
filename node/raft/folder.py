"""The data folder: journal and snapshot, opened together and made to fit each other."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from node.raft import membership, snapshot
from node.raft.errors import OtherCluster, damaged
from node.raft.journal import SqliteJournal
from node.raft.snapshot import Header

JOURNAL = "raft.sqlite"
SNAPSHOT = "snapshot"
CLUSTER_ID = "cluster id"
"""The journal's note of which cluster the member is of."""


@dataclass(frozen=True, slots=True)
class Folder:
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


def open_folder(path: Path, me: str, cluster: Iterable[str], cluster_id: str = "") -> Folder:
    """Open the folder of member `me`, checking all that is in it; a new one begins with `cluster`.

    `cluster_id`: that of the cluster it is to join, if it is to. Raises DamagedData, FolderInUse, OtherCluster.
    """
    path.mkdir(parents=True, exist_ok=True)
    new = not (path / JOURNAL).exists()
    if new and (path / SNAPSHOT).exists():
        raise damaged(f"{path} has a snapshot and no {JOURNAL}: the member's term and vote are lost")
    journal = SqliteJournal(path / JOURNAL)
    try:
        for left in path.glob("*.tmp"):
            left.unlink()
        header = snapshot.check(path / SNAPSHOT) if (path / SNAPSHOT).exists() else None
        _own(journal, path, me, cluster)
        _fit(journal, header)
        _join(journal, path, cluster_id)
        base = header.cluster if header is not None else tuple(journal.note("cluster").split("\n"))
        members = membership.after(base, journal.after(header.index if header is not None else 0))
        journal.flush()
    except BaseException:
        journal.close()
        raise
    return Folder(path, journal, header, members)


def _own(journal: SqliteJournal, path: Path, me: str, cluster: Iterable[str]) -> None:
    owner = journal.note("member")
    if not owner:
        if len(journal):
            raise damaged(f"the journal in {path} does not say whose it is")
        journal.set_note("member", me)
        journal.set_note("cluster", "\n".join(sorted(cluster)))
    elif owner != me:
        raise damaged(f"{path} is the data folder of {owner}, and this is {me}")


def _join(journal: SqliteJournal, path: Path, cluster_id: str) -> None:
    of = journal.note(CLUSTER_ID)
    if of and cluster_id and of != cluster_id:
        raise OtherCluster(
            f"{path} is the data folder of a member of cluster {of}, and this node is to join cluster {cluster_id}: "
            "give it an empty folder (ROTA_DATA)"
        )
    if not of and cluster_id:
        journal.set_note(CLUSTER_ID, cluster_id)


def _fit(journal: SqliteJournal, header: Header | None) -> None:
    """Finish what a crash may have interrupted: a snapshot from a leader is renamed first, then the log replaced.

    A log that reaches beyond the snapshot is kept: it holds entries that were acknowledged. (The library throws it
    away unless it begins with the snapshot's last entries.)
    """
    first = journal.first_index if len(journal) else 1
    if header is None:
        if first != 1:
            raise damaged(
                f"the journal {journal.path} begins at entry {first}, and the snapshot of what was before is gone"
            )
        return
    if not len(journal) or first > header.prev[1]:
        raise damaged(f"the journal {journal.path} does not go with the snapshot, which ends at entry {header.index}")
    if header.index > journal.last_index or journal.term_at(header.index) != header.last[2]:
        if journal.getCurrentTerm() < header.last[2]:
            raise damaged(f"the journal {journal.path} is of an earlier term than the snapshot")
        journal.replace([header.prev, header.last])
