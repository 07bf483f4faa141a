"""The library still has the private names that node.raft uses (`overrides`, `consensus`)."""

import inspect
from pathlib import Path

import pytest
from pysyncobj import SyncObj, syncobj
from pysyncobj.transport import TCPTransport

from node.raft.adapter import Raft
from node.raft.ports import RaftOwner, RaftSettings
from node.raft.wire.addresses import AddressBook
from node.runtime.dns import Resolver

METHODS = [
    "doApplyCommand",
    "changeCluster",
    "loadDumpFile",
    "setCurrentTerm",
    "setState",
    "updateClusterConfiguration",
    "applyLogEntries",
    "sendAppendEntries",
]
ATTRIBUTES = [
    "raftLog", "serializer", "transport", "otherNodes", "raftNextIndex", "raftLeader", "raftElectionDeadline",
    "raftCommitIndex", "raftLastApplied", "transferInProgress", "pipeNotifier", "votedForNodeId", "raftState",
    "newAppendEntriesTime",
]  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_the_library_has_the_methods_that_are_called_or_replaced(name: str) -> None:
    assert inspect.isfunction(getattr(SyncObj, f"_SyncObj__{name}"))


def test_the_library_has_the_attributes_that_are_read_or_set() -> None:
    source = inspect.getsource(SyncObj)
    assert [name for name in ATTRIBUTES if f"self.__{name}" not in source] == []
    assert "createJournal(self.__conf.journalFile)" in inspect.getsource(SyncObj.__init__)
    assert syncobj.createJournal(None) is not None, "the library's own journals can still be made"


def test_the_log_is_flushed_by_a_callback_that_runs_before_each_wait() -> None:
    tick = inspect.getsource(SyncObj._onTick)
    assert tick.index("for callback in self.__onTickCallbacks") < tick.index("self._poller.poll(")
    assert "self._syncObj.addOnTickCallback(self._onTick)" in inspect.getsource(TCPTransport.__init__)


def test_configuration_without_a_secret_or_the_member_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="never open without a secret"):
        Raft(RaftSettings("n1", {"n1": ("localhost", 1)}, tmp_path, ""), None, RaftOwner())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not hold n1 itself"):
        Raft(RaftSettings("n1", {"n2": ("localhost", 1)}, tmp_path, "s"), None, RaftOwner())  # type: ignore[arg-type]


def test_a_member_keeps_its_id_at_any_address() -> None:
    book = AddressBook({"n1": ("a", 1)}, Resolver())
    node = book.node("n1 old-address 99")
    assert (node.id, node.address, node.host, node.port) == ("n1", "n1", "a", 1), "the configuration goes first"
    assert book.node("n4 d 4").port == 4
    book.put("n1", ("b", 2))
    assert (node.host, node.port) == ("b", 2)
    assert node == book.node("n1")
    assert book.text("n1") == "n1 b 2"
