"""Journal and snapshot are made to fit each other when the folder is opened."""

from pathlib import Path

import pytest

from node.raft import membership, snapshot
from node.raft.errors import DamagedData, OtherCluster
from node.raft.folder import JOURNAL, SNAPSHOT, open_folder
from node.raft.snapshot import Header

CLUSTER = ("n1 localhost 1", "n2 localhost 2", "n3 localhost 3")


def begin(folder: Path, last: int = 20, term: int = 1) -> None:
    opened = open_folder(folder, "n1", CLUSTER)
    for index in range(1, last + 1):
        opened.journal.add(b"\x00 %d" % index, index, term)
    opened.journal.setCurrentTerm(term, None)
    opened.journal.close()


def put_snapshot(folder: Path, index: int, term: int = 1, cluster: tuple[str, ...] = CLUSTER) -> None:
    header = Header((b"\x00 %d" % index, index, term), (b"\x00 %d" % (index - 1), index - 1, term), cluster)
    snapshot.write(folder / SNAPSHOT, header, [b"state"])


def test_acknowledged_entries_after_a_snapshot_survive_a_crash_before_the_log_was_cut(tmp_path: Path) -> None:
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


def test_the_members_are_those_of_the_snapshot_and_the_log_after_it(tmp_path: Path) -> None:
    begin(tmp_path)
    put_snapshot(tmp_path, 10, cluster=("n1 localhost 1", "n2 localhost 2"))
    opened = open_folder(tmp_path, "n1", CLUSTER)
    opened.journal.add(b"\x02" + membership.pack("add", "n4 localhost 4"), 21, 1)
    opened.journal.add(b"\x02" + membership.pack("rem", "n2"), 22, 1)
    opened.journal.close()
    again = open_folder(tmp_path, "n1", ())
    assert again.cluster == ("n1 localhost 1", "n4 localhost 4")
    again.journal.close()


def test_the_members_of_the_first_start_are_remembered(tmp_path: Path) -> None:
    begin(tmp_path)
    opened = open_folder(tmp_path, "n1", ("n1 elsewhere 9",))
    assert opened.cluster == CLUSTER
    opened.journal.close()


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    begin(tmp_path)
    with pytest.raises(DamagedData, match="the data folder of n1"):
        open_folder(tmp_path, "n2", CLUSTER)
    put_snapshot(tmp_path, 30, term=5)
    with pytest.raises(DamagedData, match="earlier term"):
        open_folder(tmp_path, "n1", CLUSTER)
    (tmp_path / SNAPSHOT).write_bytes(b"rubbish")
    with pytest.raises(DamagedData, match="not a snapshot"):
        open_folder(tmp_path, "n1", CLUSTER)
    put_snapshot(tmp_path, 10)
    (tmp_path / JOURNAL).unlink()
    with pytest.raises(DamagedData, match="term and vote are lost"):
        open_folder(tmp_path, "n1", CLUSTER)


def test_a_log_whose_beginning_is_in_no_snapshot_is_refused(tmp_path: Path) -> None:
    begin(tmp_path)
    opened = open_folder(tmp_path, "n1", CLUSTER)
    opened.journal.deleteEntriesTo(5)
    opened.journal.close()
    with pytest.raises(DamagedData, match="is gone"):
        open_folder(tmp_path, "n1", CLUSTER)


def test_a_folder_is_of_one_cluster_for_good(tmp_path: Path) -> None:
    opened = open_folder(tmp_path, "n1", CLUSTER)
    assert opened.cluster_id == "", "a new member is of none until it is let in, or the cluster is founded"
    opened.journal.close()
    opened = open_folder(tmp_path, "n1", CLUSTER, "a")
    assert opened.cluster_id == "a"
    opened.journal.close()
    opened = open_folder(tmp_path, "n1", CLUSTER)
    assert opened.cluster_id == "a"
    opened.journal.close()
    with pytest.raises(OtherCluster, match="a member of cluster a, and this node is to join cluster b"):
        open_folder(tmp_path, "n1", CLUSTER, "b")
