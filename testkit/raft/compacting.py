"""Adds to a journal, and compacts it behind a snapshot, again and again until it is killed: see `test_durability`.

It begins by checking that the last process left all that it had said was kept.
"""

import sys
from pathlib import Path

from node.raft.log import snapshot
from node.raft.log.log_store import LOST, open_folder
from node.raft.log.snapshot import Header
from node.storage import atomic

CLUSTER = ("n1 localhost 1", "n2 localhost 2")


def main(path: Path, kept: int) -> None:
    folder = open_folder(path, "n1", CLUSTER)
    journal = folder.journal
    assert not journal.note(LOST), journal.note(LOST)
    if len(journal) == 0:
        journal.add(b"\x00", 1, 1)
        journal.setCurrentTerm(1, "n1")
    last = journal.last_index
    assert last >= kept, f"{kept} were kept, and {last} are left"
    begins = folder.header.prev[1] if folder.header else 1
    assert journal.first_index <= begins, "neither the journal nor the snapshot has what was before"
    assert [entry[1] for entry in journal[:]] == list(range(journal.first_index, last + 1))
    while True:
        for _ in range(20):
            last += 1
            journal.add(b"\x00" + bytes(3_000), last, 1)
        journal.flush()
        print("kept", last, flush=True)
        cut = (last - 5) - journal.first_index
        header = Header(journal[cut + 1], journal[cut], CLUSTER)
        snapshot.write_snapshot(path / "snapshot.written.tmp", header, [bytes(10_000)])
        atomic.replace(path / "snapshot.written.tmp", folder.snapshot, synced=True)
        journal.deleteEntriesTo(cut)
        journal.flush()
        print("cut", last, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
