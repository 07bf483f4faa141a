"""A snapshot file is whole, or refused."""

from pathlib import Path

import pytest

from node.raft.errors import DamagedData
from node.raft.log import snapshot
from node.raft.log.snapshot import Header
from node.storage import atomic

HEADER = Header((b"last", 12, 3), (b"prev", 11, 2), ("n1 localhost 1", "n2 localhost 2"))
PIECES = [b"one" * 100, b"two", bytes(5_000)]


def written(folder: Path) -> Path:
    snapshot.write_snapshot(folder / "written", HEADER, PIECES)
    atomic.replace(folder / "written", folder / "snapshot")
    return folder / "snapshot"


def test_a_written_snapshot_is_read_back(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert snapshot.check_snapshot(path) == HEADER
    assert list(snapshot.pieces(path)) == PIECES


def test_an_empty_state_can_be_written_and_read(tmp_path: Path) -> None:
    snapshot.write_snapshot(tmp_path / "snapshot", HEADER, [])
    assert snapshot.check_snapshot(tmp_path / "snapshot") == HEADER
    assert list(snapshot.pieces(tmp_path / "snapshot")) == []


def test_any_changed_or_missing_byte_is_detected(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    for place in range(0, len(content), 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x40]) + content[place + 1 :])
        with pytest.raises(DamagedData, match="put back a copy"):
            snapshot.check_snapshot(path)
    for length in (0, 5, 8, 30, len(content) - 8, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedData):
            snapshot.check_snapshot(path)
    path.write_bytes(content + b"more")
    with pytest.raises(DamagedData):
        snapshot.check_snapshot(path)


def test_a_missing_piece_is_detected_at_the_end(tmp_path: Path) -> None:
    path = written(tmp_path)
    snapshot.write_snapshot(tmp_path / "shorter", HEADER, PIECES[:2])
    short = (tmp_path / "shorter").read_bytes()[:-8]
    path.write_bytes(short + path.read_bytes()[-8:])
    with pytest.raises(DamagedData):
        list(snapshot.pieces(path))
