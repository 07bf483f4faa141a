"""The data folder: journal and snapshot, opened together and made to fit each other."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from node.raft import membership, snapshot
from node.raft.errors import damaged
from node.raft.journal import SqliteJournal
from node.raft.snapshot import Header

JOURNAL = "raft.sqlite"
SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Folder:
    """What was found. `header` is None if there is no snapshot; `cluster` are the members by the log."""

    path: Path
    journal: SqliteJournal
    header: Header | None
    cluster: tuple[str, ...]

    @property
    def snapshot(self) -> Path:
        """Where the snapshot is, or is to be."""
        return self.path / SNAPSHOT


def open_folder(path: Path, me: str, cluster: Iterable[str]) -> Folder:
    """Open the folder of member `me`, checking all that is in it; a new one begins with `cluster`.

    Raises DamagedData, FolderInUse.
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
