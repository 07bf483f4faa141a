"""Recovery makes a stopped member a cluster of one (docs/how-to/recover.md). No sockets: only its data folder."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from node.app.data_dir import DataDir, DataDirInUse
from node.app.recover import NotRecoverable, inspect, recover
from node.history.store import HISTORY, HistoryStore
from node.membership.addresses import Agreed
from node.peer.portions import Gap
from node.raft.errors import DamagedData
from node.raft.log import membership
from node.raft.log.log_store import open_folder
from node.state.codec import pack_batch
from node.state.entries import Entry, Proposal, ProposalId
from node.state.members import AddMember, FoundCluster
from node.state.registry import Put, PutTasks
from tests.unit.node.history.test_store import ended, ids
from tests.unit.node.state.given import NOW_US, joining, packed, seed

CLUSTER = tuple(f"{name} {name}.example 7001" for name in "abc")
ENTRIES: tuple[Entry, ...] = (
    FoundCluster(NOW_US, "old", tuple(seed(name) for name in "abc")),
    *(joining(name) for name in "abc"),
    PutTasks(NOW_US, (Put(packed("t")),)),
)


def begin(data: Path, *entries: Entry, node: str = "a", term: int = 3) -> None:
    """Make the folder of a member with these entries in its log, committed or not."""
    folder = DataDir(data, node, NOW_US)
    folder.keep_agreed({name: Agreed((f"{name}.example", 7001), None) for name in "abc"})
    with closing(open_folder(data / "raft", node, CLUSTER).journal) as journal:
        journal.setCurrentTerm(term, "b")
        journal.add(b"\x01", 1, 0)
        for number, entry in enumerate(entries, 1):
            batch = pack_batch([Proposal(ProposalId("b", 1, number), entry)])
            journal.add(membership.REGULAR + b"P" + batch, number + 1, term)
        journal.set_note("votes", "yes")
        journal.flush()
    folder.close()


def written(data: Path) -> tuple[int, list[str], int]:
    """The last index in the history, the ids of its runs, and the number of gaps."""
    with closing(HistoryStore(data / HISTORY)) as history:
        return history.written, ids(history.runs(None, None, None, None, 10)), len(history.gaps())


def test_the_whole_log_counts_and_the_other_members_are_removed(tmp_path: Path) -> None:
    begin(tmp_path, *ENTRIES)
    survivor, cluster_id = recover(tmp_path, NOW_US)
    assert (survivor.node, survivor.others, survivor.last_index, survivor.term) == ("a", ("b", "c"), 6, 3)
    after = inspect(tmp_path, NOW_US)
    assert (after.last_index, after.term) == (9, 4), "two removals and the new beginning"
    assert (after.state.cluster_id, after.state.slots) == (cluster_id, ("a", None, None))
    assert (list(after.state.members), list(after.state.tasks)) == (["a"], ["t"])
    with closing(open_folder(tmp_path / "raft", "a", ()).journal) as journal:
        assert journal.getCurrentTerm() == 4
        assert journal.getVotedForNodeId() == "a"
        opened = journal.note("cluster id")
    assert opened == cluster_id
    folder = DataDir(tmp_path, "a", NOW_US)
    assert folder.agreed().keys() == {"a"}
    folder.close()


def test_history_ends_where_the_log_does(tmp_path: Path) -> None:
    """The log may be shorter than the history: it was lost, and the member had not caught up."""
    begin(tmp_path, *ENTRIES)
    index = inspect(tmp_path, NOW_US).state.index
    with closing(HistoryStore(tmp_path / HISTORY)) as history:
        history.record(index - 3, [(index - 3, ended(1))])
        history.jumped(index - 1)
        history.record(index, [(index, ended(2))])
        history.jumped(index + 4)
        history.jumped(index + 6)
        history.record(index + 7, [(index + 7, ended(3))])
    inspect(tmp_path, NOW_US)
    assert written(tmp_path) == (index + 7, ["orders~3", "orders~2", "orders~1"], 3), "nothing is done yet"
    recover(tmp_path, NOW_US)
    assert written(tmp_path) == (index, ["orders~2", "orders~1"], 1)
    with closing(HistoryStore(tmp_path / HISTORY)) as history:
        history.record(index + 1, [(index + 1, ended(4))])
        assert history.run("orders~4") == ended(4)
    recover(tmp_path, NOW_US)  # its log is longer than its history, now
    assert written(tmp_path) == (index + 1, ["orders~4", "orders~2", "orders~1"], 1)


def test_a_gap_that_reaches_past_the_log_ends_with_it(tmp_path: Path) -> None:
    begin(tmp_path, *ENTRIES)
    index = inspect(tmp_path, NOW_US).state.index
    with closing(HistoryStore(tmp_path / HISTORY)) as history:
        history.jumped(index + 9)
    recover(tmp_path, NOW_US)
    with closing(HistoryStore(tmp_path / HISTORY)) as history:
        assert (history.gaps(), history.written) == ((Gap(0, index),), index)


def test_a_history_that_cannot_be_opened_is_reported_before_any_change(tmp_path: Path) -> None:
    begin(tmp_path, *ENTRIES)
    (tmp_path / HISTORY).mkdir()
    with pytest.raises(NotRecoverable, match="cannot be opened"):
        recover(tmp_path, NOW_US)
    assert inspect(tmp_path, NOW_US).state.cluster_id == "old"


def test_a_damaged_history_is_reported(tmp_path: Path) -> None:
    begin(tmp_path, *ENTRIES)
    with closing(HistoryStore(tmp_path / HISTORY)) as history:
        history.jumped(99)
    with closing(sqlite3.connect(tmp_path / HISTORY)) as db:
        db.execute("UPDATE gap SET after = 1")
        db.commit()
    with pytest.raises(NotRecoverable, match="a row differs from what was written"):
        recover(tmp_path, NOW_US)


def test_inspecting_changes_nothing(tmp_path: Path) -> None:
    begin(tmp_path, *ENTRIES)
    before = (tmp_path / "raft/raft.sqlite").read_bytes()
    survivor = inspect(tmp_path, NOW_US)
    assert (survivor.state.cluster_id, survivor.others, survivor.caught_up) == ("old", ("b", "c"), True)
    assert inspect(tmp_path, NOW_US) == survivor
    assert (tmp_path / "raft/raft.sqlite").read_bytes() == before


def test_recovered_twice_it_is_another_cluster_each_time(tmp_path: Path) -> None:
    begin(tmp_path, *ENTRIES)
    ids = {recover(tmp_path, NOW_US)[1] for _ in range(2)}
    assert len(ids) == 2
    assert inspect(tmp_path, NOW_US).state.cluster_id in ids


def test_a_folder_that_cannot_be_recovered_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(NotRecoverable, match="not the data folder of a node"):
        inspect(tmp_path, NOW_US)
    assert list(tmp_path.iterdir()) == [], "a folder named by mistake is left as it is"
    begin(tmp_path / "new")
    with pytest.raises(NotRecoverable, match="nothing to recover"):
        recover(tmp_path / "new", NOW_US)
    begin(tmp_path / "d", *ENTRIES, AddMember(NOW_US, seed("d")), node="d")
    with pytest.raises(NotRecoverable, match="d has been removed"):
        recover(tmp_path / "d", NOW_US)
    begin(tmp_path / "a", *ENTRIES)
    running = DataDir(tmp_path / "a", "a", NOW_US)
    with pytest.raises(DataDirInUse, match="runs already"):
        recover(tmp_path / "a", NOW_US)
    running.close()
    (tmp_path / "a/raft/raft.sqlite").write_bytes(b"rubbish" * 1000)
    with pytest.raises(DamagedData):
        recover(tmp_path / "a", NOW_US)
