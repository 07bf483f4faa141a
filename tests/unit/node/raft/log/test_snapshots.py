"""What PySyncObj 0.3.17 does wrong with snapshots, and what Rota does instead (docs/explanation/raft.md)."""

import errno
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node.raft.errors import Broken
from node.raft.log import snapshot
from node.raft.log.snapshot import Header
from node.raft.log.snapshots import NO_ROOM_S, PIECE_BYTES, Snapshots, unhurried
from node.raft.ports import RaftTiming
from testkit.raft.wired import Wired, World


@pytest.fixture
def short(tmp_path: Path) -> Iterator[World]:
    """Three members whose logs hold ten entries at most."""
    made = World(tmp_path, "abc", RaftTiming(log_entries=10))
    with made.clock():
        made.start()
        made.connect_all()
        yield made


def filled(world: World) -> Wired:
    """The leader, once it has made a snapshot."""
    leader = world.lead()[0]
    for number in range(30):
        world.agree(b"%d" % number)
    world.until(lambda: leader.consensus.snapshots.header is not None)
    return leader


def test_a_snapshot_writer_pauses_after_each_piece() -> None:
    told: list[object] = []
    pieces = unhurried(iter([b"one", b"two", b"three"]), lambda _: told.append("rest"))
    told += [next(pieces)]
    assert told == [b"one"]
    assert list(pieces) == [b"two", b"three"]
    assert told == [b"one", "rest", "rest", "rest"]


def test_a_long_log_is_compacted_once(tmp_path: Path) -> None:
    """If compaction is requested during a write, the library writes another snapshot right after it."""
    world = World(tmp_path, "a", RaftTiming(log_entries=1_000, log_bytes=20_000))
    taken: list[int] = []
    with world.clock():
        world.start()
        [member] = world.running.values()
        world.until(lambda: member.consensus.is_leader)
        begin = member.consensus.snapshots.serialize

        def counted(data: Any, entry_id: int) -> None:
            taken.append(entry_id)
            begin(data, entry_id)

        member.consensus.snapshots.serialize = counted  # type: ignore[method-assign]
        for number in range(15):
            world.agree(b"%d" % number * 1_000)
        world.run(1.0)
        assert len(taken) == 1
        assert member.consensus.journal.bytes < 20_000


def test_members_compact_their_logs_one_by_one(tmp_path: Path) -> None:
    world = World(tmp_path, "abc", RaftTiming(log_entries=60))
    with world.clock():
        world.start()
        world.connect_all()
        world.lead()
        ended: dict[str, int] = {}
        for number in range(100):
            world.agree(b"%d" % number)
            for name, member in world.running.items():
                if member.consensus.snapshots.header is not None:
                    ended.setdefault(name, number)
        assert ended["a"] + 5 < ended["b"] < ended["c"] - 5


def test_a_snapshot_is_written_by_a_thread_while_entries_are_applied(tmp_path: Path) -> None:
    """The library forks a process that has threads, or stops its thread until the snapshot is written."""
    go_on, written_by = threading.Event(), []

    def capture() -> Callable[[], Iterator[bytes]]:
        def pieces() -> Iterator[bytes]:
            go_on.wait(10)
            written_by.append(threading.current_thread())
            yield b"the state"

        return pieces

    snapshots = Snapshots(tmp_path / "snapshot", capture, lambda _index: ("n1 localhost 1",), lambda index: index)
    snapshots.serialize((None, (b"", 9, 1), (b"", 8, 1), None), 8)
    assert not (tmp_path / "snapshot").exists()
    assert snapshots.checkSerializing()[1] == 8, "the call has returned, and the thread is writing"
    go_on.set()
    assert snapshots._writer is not None
    snapshots._writer.join()
    snapshots.checkSerializing()
    assert snapshot.check_snapshot(tmp_path / "snapshot").index == 9
    assert written_by != [threading.current_thread()]


def test_a_failed_snapshot_write_stops_the_member(tmp_path: Path) -> None:
    """The library logs the error, and the log grows without limit."""

    def capture() -> Callable[[], Iterator[bytes]]:
        raise_it: Callable[[], Iterator[bytes]] = lambda: (_ for _ in ()).throw(OSError("no room"))  # noqa: E731
        return raise_it

    snapshots = Snapshots(tmp_path / "snapshot", capture, lambda _index: (), lambda index: index)
    snapshots.serialize((None, (b"", 9, 1), (b"", 8, 1), None), 8)
    assert snapshots._writer is not None
    snapshots._writer.join()
    with pytest.raises(Broken, match="could not be written"):
        snapshots.checkSerializing()


def test_no_snapshot_is_begun_for_a_while_after_one_for_which_there_was_no_room(tmp_path: Path) -> None:
    def capture() -> Callable[[], Iterator[bytes]]:
        raise_it: Callable[[], Iterator[bytes]] = lambda: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full"))  # noqa: E731
        return raise_it

    now_s = [100.0]
    snapshots = Snapshots(tmp_path / "snapshot", capture, lambda _index: (), lambda index: index, lambda: now_s[0])
    begun = []
    for after_s in (0.0, NO_ROOM_S - 1, NO_ROOM_S):
        now_s[0] = 100.0 + after_s
        snapshots.serialize((None, (b"", 9, 1), (b"", 8, 1), None), 8)
        begun.append(snapshots.writing)
        if snapshots._writer is not None:
            snapshots._writer.join()
        snapshots.checkSerializing()
    assert begun == [True, False, True]


def test_a_snapshot_of_applied_entries_is_not_loaded(short: World) -> None:
    """The library loads it, and clears the log after it: acknowledged entries are lost."""
    leader = filled(short)
    _, follower, _ = short.lead()
    last = follower.consensus.journal.last_index
    restored: list[Any] = []
    follower.consensus.applier = replace(follower.consensus.applier, restore=restored.append)
    data = leader.consensus.snapshots.place.read_bytes()
    part = {
        "type": "append_entries",
        "term": leader.consensus.raftCurrentTerm,
        "commit_index": last,
        "serialized": (data, True, True),
    }
    follower.take(leader.me, part)
    assert (restored, follower.consensus.journal.last_index) == ([], last)


def test_a_received_damaged_snapshot_is_refused(short: World) -> None:
    """The library renames it into place unchecked, and takes an unreadable one for an empty one."""
    leader = filled(short)
    lagging = short.lead()[1].me
    short.crash(lagging)
    for file in (short.folder / lagging).iterdir():
        file.unlink()
    short.start(lagging)
    member = short.running[lagging]
    data = bytearray(leader.consensus.snapshots.place.read_bytes())
    data[len(data) // 2] ^= 1
    assert member.consensus.snapshots.receive((bytes(data), True, True)) is None
    assert not member.consensus.snapshots.place.exists()
    short.connect_all()
    short.until(lambda: member.applied == leader.applied)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes of the files and folders that are synced."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda opened: synced.append(os.fstat(opened).st_ino))
    return synced


def test_a_received_snapshot_is_synced_before_it_replaces_the_old_one(tmp_path: Path, synced: list[int]) -> None:
    """The library renames and acknowledges without a sync: a power cut may lose both the new and the old snapshot."""
    made, place = tmp_path / "made", tmp_path / "snapshot"
    snapshot.write_snapshot(made, Header((b"", 9, 1), (b"", 8, 1), ()), [bytes(PIECE_BYTES)] * 40)
    place.write_bytes(b"the one before")
    snapshots = Snapshots(place, lambda: lambda: iter(()), lambda _index: (), lambda index: index)
    del synced[:]
    with made.open("rb") as file:
        parts = list(iter(lambda: file.read(PIECE_BYTES), b""))
    assert [snapshots.receive((part, not number, False)) for number, part in enumerate(parts)] == [None] * len(parts)
    assert len(synced) == 1, "part of it is synced as it arrives, so that the last sync is short"
    header = snapshots.receive((b"", False, True))
    assert header is not None
    del synced[:]
    assert place.read_bytes() == b"the one before"
    snapshots.install(header)
    assert synced == [place.stat().st_ino, tmp_path.stat().st_ino]
    assert snapshot.check_snapshot(place) == header


def test_a_local_snapshot_is_synced_once_and_outside_the_raft_thread(tmp_path: Path, synced: list[int]) -> None:
    place = tmp_path / "snapshot"
    snapshots = Snapshots(place, lambda: lambda: iter([b"state"]), lambda _index: (), lambda index: index)
    snapshots.serialize((None, (b"", 9, 1), (b"", 8, 1), None), 8)
    assert snapshots._writer is not None
    snapshots._writer.join()
    written = list(synced)
    snapshots.checkSerializing()
    assert (written, synced[1:]) == ([place.stat().st_ino], [tmp_path.stat().st_ino])


def test_an_undecodable_snapshot_is_refused_rather_than_read_as_empty(short: World) -> None:
    leader = filled(short)
    consensus = leader.consensus

    def fails(_pieces: Iterable[bytes]) -> None:
        raise pickle.UnpicklingError("of another version")

    consensus.applier = replace(consensus.applier, restore=fails)
    with pytest.raises(Broken, match="has correct checksums, and its state cannot be read"):
        consensus._SyncObj__loadDumpFile(clearJournal=False)
    assert leader.applied


def test_some_entries_before_a_snapshot_are_kept_for_lagging_followers(short: World) -> None:
    """The library cuts the log right behind it, and sends the whole snapshot to a member that lacks one entry."""
    leader = filled(short)
    header = leader.consensus.snapshots.header
    assert header is not None
    assert leader.consensus.journal.first_index < header.prev[1]
