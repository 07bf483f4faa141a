"""Manifests and archives that somebody changed who may write to the destination: they reach nothing outside of it."""

import hashlib
import io
import json
import os
import random
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tasks.backup.archive import Content, Damaged
from tasks.backup.kind import Backup
from tasks.backup.manifest import survey
from tasks.backup.restore import restore_backup
from tasks.backup.sources.unpack import check_archive, extract
from tasks.places.place import Place
from tests.unit.tasks.backup.backups import backup_context, fill

CLEAR = "\x1b[2Jcleared"
"""What a terminal obeys."""

DEEP = '{"source": ' + "[" * 5000 + "]" * 5000 + "}"


def backed_up(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A backup of a folder: its folder, and its manifest."""
    fill(tmp_path / "from")
    folder = Path(Backup().run(backup_context(tmp_path))["url"])
    told = json.loads((folder / "manifest.json").read_text())
    del told["sha256"]
    return folder, told


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("name", name) for name in ("../x", "a/../../x", "/etc/passwd", "", ".", "a//b", "a\0b", "a\x1b[2Jb")),
        *(("size_bytes", size) for size in (-1, 1 << 63, 1.5, "all")),
        *(("stored_bytes", size) for size in (-1, 10**40)),
        *(("mode", mode) for mode in (-1, 0o10000)),
        *((name, number) for name in ("uid", "gid") for number in (-1, 1 << 32)),
    ],
)
def test_an_entry_that_no_attempt_writes_makes_the_manifest_unreadable(tmp_path: Path, field: str, value: Any) -> None:
    folder, told = backed_up(tmp_path)
    told["files"][0][field] = value
    (folder / "manifest.json").write_text(json.dumps(told))
    found = survey(Place(str(folder.parent)))
    assert found.complete == ()
    assert f"(wrong: files.0.{field})" in found.unreadable[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("created", "9999-12-31T23:59:59-23:59"),
        ("created", "0001-01-01T00:00:00+23:59"),
        ("finished", "9999-12-31T23:59:59Z"),
        ("created", "2026-11-21T03:00:00"),
        ("token", -1),
        ("token", 10**4000),
        ("attempt", 10**30),
        ("task", "orders\x1b]0;title\x07"),
        ("node", "node-1\n"),
        ("run_id", "\x9b2J"),
        ("files", {}),
        ("version", 2),
    ],
)
def test_a_manifest_that_no_attempt_writes_stops_no_listing(tmp_path: Path, field: str, value: Any) -> None:
    folder, told = backed_up(tmp_path)
    second = Path(Backup().run(backup_context(tmp_path, token=2))["url"])
    (folder / "manifest.json").write_text(json.dumps(told | {field: value}))
    found = survey(Place(str(folder.parent)))
    assert [manifest.name for manifest in found.complete] == [second.name]
    assert f"(wrong: {field}" in found.unreadable[0]


def test_what_a_terminal_would_obey_is_shown(tmp_path: Path) -> None:
    folder, told = backed_up(tmp_path)
    (folder / "manifest.json").write_text(json.dumps(told | {"remarks": [CLEAR]}))
    assert survey(Place(str(folder.parent))).complete[0].remarks == ("\\x1b[2Jcleared",)
    (folder / "manifest.json").write_text(json.dumps(told | {"identity": {CLEAR: 7}}))
    (said,) = survey(Place(str(folder.parent))).unreadable
    assert "(wrong: identity.\\x1b[2Jcleared)" in said


@pytest.mark.parametrize("text", ["", "null", "[]", "{", DEEP, "\ufeff{}", '"\\ud800"', "9" * 9999])
def test_a_text_that_is_no_manifest_stops_no_listing(tmp_path: Path, text: str) -> None:
    folder, _ = backed_up(tmp_path)
    (folder / "manifest.json").write_text(text)
    found = survey(Place(str(folder.parent)))
    assert (found.complete, len(found.unreadable)) == ((), 1)


@pytest.mark.parametrize("count", [0, 2])
def test_a_folder_of_another_number_of_archives_is_damaged(tmp_path: Path, count: int) -> None:
    folder, told = backed_up(tmp_path)
    (folder / "manifest.json").write_text(json.dumps(told | {"files": told["files"] * count}))
    with pytest.raises(Damaged, match="one object"):
        restore_backup(str(folder), str(tmp_path / "back"))
    assert not (tmp_path / "back").exists()


def physical(tmp_path: Path, *members: tuple[str, bytes, str]) -> Path:
    """A backup of a server whose archive has these members beside PG_VERSION: names, types of tar, targets of links."""
    folder, told = backed_up(tmp_path)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, type_, target in (("PG_VERSION", tarfile.REGTYPE, ""), *members):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = type_, target
            member.uid, member.gid = os.getuid(), os.getgid()
            archive.addfile(member, io.BytesIO())
    stored = zstandard.ZstdCompressor(write_checksum=True).compress(content.getvalue())
    (folder / "base.tar.zst").write_bytes(stored)
    entry = {
        "name": "base.tar.zst",
        "size_bytes": len(content.getvalue()),
        "stored_bytes": len(stored),
        "sha256": hashlib.sha256(stored).hexdigest(),
    }
    more = {"source_type": "postgres_physical", "files": [entry], "tools": {"postgresql": "17.0"}}
    (folder / "manifest.json").write_text(json.dumps(told | more))
    return folder


@pytest.mark.parametrize(
    "name", ["postgresql.auto.conf", "backup_manifest", "recovery.signal", "pg_wal", "pg_tblspc/7"]
)
@pytest.mark.parametrize("type_", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_a_servers_files_have_no_links_through_which_a_restore_would_write(
    tmp_path: Path, name: str, type_: bytes
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = physical(tmp_path, (name, type_, str(victim) if type_ == tarfile.SYMTYPE else "PG_VERSION"))
    with pytest.raises(Damaged, match="only files and folders are expected there"):
        restore_backup(str(folder), str(tmp_path / "back"))
    assert victim.read_text() == "mine"
    assert not (tmp_path / "back").exists()


FIELDS = ((0, 100), (100, 8), (108, 8), (116, 8), (124, 12), (136, 12), (156, 1), (157, 100), (265, 32), (345, 155))
"""Where the fields of a header of tar begin, and how long they are (pax(1))."""


def spoilt(archive: bytes, draw: random.Random) -> bytes:
    """An archive with other headers, whose checksums are right."""
    content = bytearray(archive)
    headers = [at for at in range(0, len(content), 512) if content[at + 257 : at + 262] == b"ustar"]
    for _ in range(draw.randint(1, 3)):
        at, (field, size) = draw.choice(headers), draw.choice(FIELDS)
        value = draw.choice([b"../" * 52, b"\x80" + b"\xff" * 154, bytes(155), b"9" * 155, draw.randbytes(155)])
        content[at + field : at + field + size] = value[:size]
        if draw.random() < 0.3:
            content[at + 156] = draw.choice(b"0123456gxLKSDVN7")
        if draw.random() < 0.3:
            content[at + 512 : at + 712] = value + value[:45]  # what a pax header holds
        content[at + 148 : at + 156] = b" " * 8
        content[at + 148 : at + 156] = b"%06o\0 " % sum(content[at : at + 512])
    return bytes(content[: draw.randrange(len(content))] if draw.random() < 0.1 else content)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    top = tmp_path_factory.mktemp("archived")
    fill(top / "from")
    (top / "from" / ("long" * 40)).write_text("x")
    with (top / "from" / "sparse").open("wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 16)
        file.write(b"x")
    (found,) = Path(Backup().run(backup_context(top))["url"]).glob("*.tar.zst")
    return zstandard.ZstdDecompressor().stream_reader(found.read_bytes()).read()


@pytest.mark.parametrize("seed", range(8))
def test_headers_of_any_kind_are_unpacked_below_the_folder_or_refused(
    tmp_path: Path, archive: bytes, seed: int
) -> None:
    draw = random.Random(seed)

    def pieces() -> Iterator[bytes]:
        yield content

    for number in range(25):
        content = spoilt(archive, draw)
        with suppress(Damaged):
            check_archive(Content(pieces()))
        (tmp_path / str(number)).mkdir()
        with suppress(Damaged):
            extract(Content(pieces()), tmp_path / str(number))
    assert {path.name for path in tmp_path.iterdir()} == set(map(str, range(25)))


def test_a_member_that_is_longer_than_its_archive_ends_the_reading() -> None:
    member = tarfile.TarInfo("a")
    member.size = 1 << 62
    with pytest.raises(Damaged, match="ends within a member"):
        check_archive(Content(iter([member.tobuf(tarfile.GNU_FORMAT)])))
