"""The messages of a base backup become the objects of a backup, however its content is cut into messages."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tasks.backup.archive import quiet
from tasks.backup.manifest import TablespaceFacts, WalRange
from tasks.backup.objects import NewObjects
from tasks.backup.sources.base_backup import BadBaseBackup, BaseBackupStream
from tasks.places.place import Place

TOLD = {
    "PostgreSQL-Backup-Manifest-Version": 2,
    "Files": [{"Path": f"base/1/{number}", "Size": number} for number in range(5000)],
    "WAL-Ranges": [
        {"Timeline": 2, "Start-LSN": "0/2000028", "End-LSN": "0/3000000"},
        {"Timeline": 3, "Start-LSN": "0/3000000", "End-LSN": "1/2000120"},
    ],
    "Manifest-Checksum": "00",
}


def stream_into(folder: Path, messages: list[bytes], **names: str) -> tuple[BaseBackupStream, NewObjects, list[str]]:
    out = NewObjects(Place(str(folder)), 1, quiet)
    begun: list[str] = []
    stream = BaseBackupStream(out, {int(oid[1:]): name for oid, name in names.items()}, lambda: begun.append("begun"))
    with stream:
        for message in messages:
            stream.write(message)
    return stream, out, begun


def cut(content: bytes, draw: random.Random) -> list[bytes]:
    cuts = sorted(draw.randrange(len(content) + 1) for _ in range(draw.randrange(30)))
    return [b"d" + content[start:end] for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_each_archive_and_the_manifest_is_an_object(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    space, base = draw.randbytes(draw.randrange(1 << 20)), draw.randbytes(draw.randrange(3 << 20))
    told = json.dumps(TOLD).encode()
    messages = [b"n16406.tar\0/mnt/history\0", *cut(space, draw), b"p" + bytes(8), b"nbase.tar\0\0", *cut(base, draw)]
    stream, out, begun = stream_into(tmp_path, [*messages, b"m", *cut(told, draw)], _16406="history")
    expected = WalRange(system="77", timeline=3, start=0x2000028, end=(1 << 32) + 0x2000120, included=True)
    assert stream.wal_range("77", included=True) == expected
    assert begun == ["begun"]
    unpacked = {
        path.name: zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
        for path in tmp_path.iterdir()
    }
    assert unpacked == {"16406.tar.zst": space, "base.tar.zst": base, "backup_manifest.zst": told}
    entries = {entry.name: entry for entry in out.entries}
    assert entries["16406.tar.zst"].tablespace == TablespaceFacts(oid=16406, name="history", path="/mnt/history")
    assert entries["base.tar.zst"].tablespace is None


@pytest.mark.parametrize("told", [[], [b"m"], [b"m", b"d{}"], [b"m", b'd{"WAL-Ranges": []}'], [b"m", b"dnot JSON"]])
def test_a_stream_that_does_not_say_which_log_it_needs_is_refused(tmp_path: Path, told: list[bytes]) -> None:
    stream, _, _ = stream_into(tmp_path, [b"nbase.tar\0\0", b"dx", *told])
    with pytest.raises(BadBaseBackup, match="does not say which part of the log"):
        stream.wal_range("77", included=True)


@pytest.mark.parametrize(("messages", "why"), [([b"dx"], "before the name of an archive"), ([b"?"], "the type b'?'")])
def test_messages_out_of_order_are_refused(tmp_path: Path, messages: list[bytes], why: str) -> None:
    with pytest.raises(BadBaseBackup, match=why.replace("?", r"\?")):
        stream_into(tmp_path, messages)


@pytest.mark.parametrize("name", ["../x.tar", "7.tar/../x.tar", "7./../x", "7", "", "07.tar", "7.tar\n", "base.tar"])
def test_a_server_cannot_choose_where_an_archive_is_written(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "backup"
    folder.mkdir()
    with pytest.raises(BadBaseBackup, match=r"expected: NUMBER\.tar"):
        stream_into(folder, [b"n%s\0/space\0" % name.encode(), b"dx"])
    assert [path.name for path in tmp_path.rglob("*")] == ["backup"]


@pytest.mark.parametrize("message", [b"n", b"n7.tar", b"n7.tar\0/space"])
def test_a_message_that_is_cut_short_names_no_archive(tmp_path: Path, message: bytes) -> None:
    with pytest.raises(BadBaseBackup, match=r"expected: NUMBER\.tar"):
        stream_into(tmp_path, [message])


def test_a_server_cannot_send_an_archive_twice(tmp_path: Path) -> None:
    with pytest.raises(BadBaseBackup, match="twice"):
        stream_into(tmp_path, [b"nbase.tar\0\0", b"dx", b"nother.tar\0\0"])


def test_an_object_is_not_completed_if_the_stream_breaks(tmp_path: Path) -> None:
    out = NewObjects(Place(str(tmp_path)), 1, quiet)
    stream: Any = BaseBackupStream(out, {}, lambda: None)
    with pytest.raises(ConnectionError), stream:
        stream.write(b"nbase.tar\0\0")
        stream.write(b"dx")
        raise ConnectionError
    assert out.entries == ()
