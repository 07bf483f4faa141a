"""Journal and snapshot are made consistent when the folder is opened."""

from collections.abc import Callable
from pathlib import Path

import pytest

from node.raft.errors import DamagedData, ForeignData, OtherCluster
from node.raft.log import membership, snapshot
from node.raft.log.log_store import JOURNAL, LOST, SNAPSHOT, open_folder
from node.raft.log.snapshot import Header

CLUSTER = ("n1 localhost 1", "n2 localhost 2", "n3 localhost 3")


def begin(folder: Path, last: int = 20, term: int = 1) -> None:
    opened = open_folder(folder, "n1", CLUSTER)
    for index in range(1, last + 1):
        opened.journal.add(b"\x00 %d" % index, index, term)
    opened.journal.setCurrentTerm(term, None)
    opened.journal.close()


def put_snapshot(folder: Path, index: int, term: int = 1, cluster: tuple[str, ...] = CLUSTER) -> None:
    header = Header((b"\x00 %d" % index, index, term), (b"\x00 %d" % (index - 1), index - 1, term), cluster)
    snapshot.write_snapshot(folder / SNAPSHOT, header, [b"state"])


def test_acknowledged_entries_survive_a_crash_between_snapshot_and_log_compaction(tmp_path: Path) -> None:
    """The library clears the whole log where it does not begin with the snapshot's entries."""
    begin(tmp_path)
    put_snapshot(tmp_path, 10)
    opened = open_folder(tmp_path, "n1", CLUSTER)
    assert opened.header is not None
    assert (opened.header.index, opened.journal.last_index) == (10, 20)
    opened.journal.close()


def test_a_snapshot_from_a_leader_replaces_a_log_that_does_not_reach_it(tmp_path: Path) -> None:
    begin(tmp_path)
    put_snapshot(tmp_path, 30)
    opened = open_folder(tmp_path, "n1", CLUSTER)
    assert (opened.journal.first_index, opened.journal.last_index) == (29, 30)
    opened.journal.close()


def test_the_configuration_is_read_from_the_snapshot_and_the_later_log(tmp_path: Path) -> None:
    begin(tmp_path)
    put_snapshot(tmp_path, 10, cluster=("n1 localhost 1", "n2 localhost 2"))
    opened = open_folder(tmp_path, "n1", CLUSTER)
    opened.journal.add(b"\x02" + membership.change_command("add", "n4 localhost 4"), 21, 1)
    opened.journal.add(b"\x02" + membership.change_command("rem", "n2"), 22, 1)
    opened.journal.close()
    again = open_folder(tmp_path, "n1", ())
    assert again.cluster == ("n1 localhost 1", "n4 localhost 4")
    again.journal.close()


def test_membership_changes_written_by_the_first_builds_are_read(tmp_path: Path) -> None:
    """They were pickled. The bytes are those that the build of commit 062539c wrote."""
    begin(tmp_path)
    opened = open_folder(tmp_path, "n1", CLUSTER)
    last = opened.journal.last_index
    for number, packed in enumerate((
        b"\x80\x02]q\x00(X\x03\x00\x00\x00addq\x01X\x0e\x00\x00\x00n4 localhost 4q\x02e.",
        b"\x80\x02]q\x00(X\x03\x00\x00\x00remq\x01X\x02\x00\x00\x00n2q\x02e.",
    )):  # fmt: skip
        opened.journal.add(b"\x02" + packed, last + 1 + number, 1)
    opened.journal.close()
    again = open_folder(tmp_path, "n1", ())
    assert again.cluster == ("n1 localhost 1", "n3 localhost 3", "n4 localhost 4")
    again.journal.close()


def test_the_members_of_the_first_start_are_persisted(tmp_path: Path) -> None:
    begin(tmp_path)
    opened = open_folder(tmp_path, "n1", ("n1 elsewhere 9",))
    assert opened.cluster == CLUSTER
    opened.journal.close()


def test_a_data_folder_of_another_member_is_refused(tmp_path: Path) -> None:
    begin(tmp_path)
    with pytest.raises(ForeignData, match="the data folder of n1"):
        open_folder(tmp_path, "n2", CLUSTER)


def a_later_snapshot(folder: Path) -> None:
    put_snapshot(folder, 30, term=5)


def a_damaged_snapshot_of_what_the_journal_lacks(folder: Path) -> None:
    no_snapshot_of_what_the_journal_lacks(folder)
    (folder / SNAPSHOT).write_bytes(b"rubbish")


def no_snapshot_of_what_the_journal_lacks(folder: Path) -> None:
    opened = open_folder(folder, "n1", CLUSTER)
    opened.journal.deleteEntriesTo(5)
    opened.journal.close()


def no_journal(folder: Path) -> None:
    put_snapshot(folder, 10)
    (folder / JOURNAL).unlink()


def an_empty_journal(folder: Path) -> None:
    (folder / JOURNAL).write_bytes(b"")


def an_older_journal(folder: Path) -> None:
    older = (folder / JOURNAL).read_bytes()
    opened = open_folder(folder, "n1", CLUSTER)
    opened.journal.add(b"\x00 21", 21, 1)
    opened.journal.close()
    (folder / JOURNAL).write_bytes(older)


LOSSES = [
    (a_later_snapshot, "earlier term than the snapshot"),
    (a_damaged_snapshot_of_what_the_journal_lacks, "not a snapshot, or one of another version, and the journal"),
    (no_snapshot_of_what_the_journal_lacks, "snapshot is gone, and the journal"),
    (no_journal, "is gone"),
    (an_empty_journal, "does not begin as an SQLite file"),
    (an_older_journal, "has lost its end"),
]


@pytest.mark.parametrize(("harm", "what"), LOSSES, ids=lambda value: getattr(value, "__name__", ""))
def test_damaged_files_are_quarantined_and_reported(
    tmp_path: Path, harm: Callable[[Path], None], what: str, caplog: pytest.LogCaptureFixture
) -> None:
    begin(tmp_path)
    harm(tmp_path)
    for _ in range(2):
        opened = open_folder(tmp_path, "n1", CLUSTER)
        assert what in opened.journal.note(LOST), "the loss is recorded until the member has caught up"
        assert opened.journal.note("votes") == ""
        opened.journal.close()
    [said] = caplog.records
    assert said.levelname == "ERROR"
    assert what in said.getMessage()
    assert "catches up from the others, and does not vote before it has" in said.getMessage()
    if harm is not no_journal:
        assert (tmp_path / f"{JOURNAL}.damaged-1").exists()


@pytest.mark.parametrize(("harm", "what"), LOSSES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_single_member_refuses_a_damaged_folder_and_leaves_it_unchanged(
    tmp_path: Path, harm: Callable[[Path], None], what: str
) -> None:
    begin(tmp_path)
    harm(tmp_path)
    snapshot_file = tmp_path / SNAPSHOT
    if snapshot_file.exists() and b"rubbish" not in snapshot_file.read_bytes():
        put_snapshot(tmp_path, 30, term=5, cluster=CLUSTER[:1])
        if harm is no_journal:
            what = "is gone"
    for _ in range(2):
        with pytest.raises(DamagedData, match=what):
            open_folder(tmp_path, "n1", CLUSTER[:1])
    assert not list(tmp_path.glob("*.damaged-*"))


def test_a_damaged_snapshot_is_not_needed_if_the_journal_is_complete(tmp_path: Path) -> None:
    """The state right after a snapshot, before the log was compacted."""
    begin(tmp_path)
    (tmp_path / SNAPSHOT).write_bytes(b"rubbish")
    opened = open_folder(tmp_path, "n1", CLUSTER)
    assert (opened.journal.last_index, opened.journal.note(LOST), opened.header) == (20, "", None)
    opened.journal.close()
    assert (tmp_path / f"{SNAPSHOT}.damaged-1").read_bytes() == b"rubbish"


def test_an_intact_snapshot_is_kept_when_the_journal_is_damaged(tmp_path: Path) -> None:
    begin(tmp_path, term=3)
    put_snapshot(tmp_path, 10, term=3)
    (tmp_path / JOURNAL).write_bytes(b"rubbish")
    opened = open_folder(tmp_path, "n1", CLUSTER)
    assert opened.header is not None
    assert (opened.journal.first_index, opened.journal.last_index, opened.journal.getCurrentTerm()) == (9, 10, 3)
    opened.journal.close()


def test_a_folder_keeps_its_cluster_id(tmp_path: Path) -> None:
    opened = open_folder(tmp_path, "n1", CLUSTER)
    assert opened.cluster_id == "", "a new member has no cluster id until it is admitted, or the cluster is founded"
    opened.journal.close()
    opened = open_folder(tmp_path, "n1", CLUSTER, "a")
    assert opened.cluster_id == "a"
    opened.journal.close()
    opened = open_folder(tmp_path, "n1", CLUSTER)
    assert opened.cluster_id == "a"
    opened.journal.close()
    with pytest.raises(OtherCluster, match="a member of cluster a, and this node is to join cluster b"):
        open_folder(tmp_path, "n1", CLUSTER, "b")
