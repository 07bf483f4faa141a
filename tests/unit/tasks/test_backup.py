"""Backups of folders and SQLite files to folders and memory: the round trip, and failures on the way."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pydantic import ValidationError

from tasks.backup import archive, destination
from tasks.backup.archive import Damaged, TargetExists
from tasks.backup.errors import BackupStopped, NoBackupSource
from tasks.backup.kind import RESULT, Backup
from tasks.backup.manifest import NoBackup, list_backups, newest
from tasks.backup.params import BackupParams, place_url
from tasks.backup.restore import BadTarget, restore
from tasks.backup.sources import folder, sqlite
from tasks.backup.sources.tar import tarfile
from tasks.backup.verify import verify
from tasks.file_guard import open_within
from tasks.kind import Fenced, MissingSecret
from tasks.place import BadDestination, Place
from tasks.source_identity import identity_id
from testkit.fake_context import FakeContext


def _context(tmp_path: Path, token: int = 1, **params: Any) -> FakeContext[BackupParams]:
    given = {"source": {"type": "folder", "path": str(tmp_path / "from")}, "destination": str(tmp_path / "to")}
    scratch = tmp_path / f"scratch-{token}"
    scratch.mkdir(exist_ok=True)
    return FakeContext(BackupParams.model_validate(given | params), scratch, task="nightly", token=token)


def _fill(path: Path) -> None:
    (path / "deep" / "empty").mkdir(parents=True)
    (path / "a.txt").write_text("a")
    (path / "deep" / "b.bin").write_bytes(os.urandom(100_000))
    (path / "deep" / "umlaut-ä").write_text("x")
    (path / "deep" / "b.bin").chmod(0o640)
    (path / "link").symlink_to("/etc/passwd")
    (path / "dangling").symlink_to("nowhere")
    (path / "hard").hardlink_to(path / "a.txt")


def test_a_backup_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    _fill(tmp_path / "from")
    url = Backup().run(_context(tmp_path))["url"]
    made = [Path(url), *Path(url).iterdir()]
    assert len(made) == 3
    assert [path.stat().st_mode & 0o077 for path in made] == [0, 0, 0]


def _seen(path: Path) -> dict[str, tuple[Any, ...]]:
    found = {}
    for entry in sorted(path.rglob("*")):
        about = entry.lstat()
        content: Any = entry.readlink() if entry.is_symlink() else entry.read_bytes() if entry.is_file() else None
        # tarfile sets no time on a link, and its mode means nothing.
        own = () if entry.is_symlink() else (about.st_mode, int(about.st_mtime))
        found[entry.relative_to(path).as_posix()] = (about.st_uid, content, *own)
    return found


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.delitem(destination.KEEPS_NOTHING, "memory")
    yield "memory://backups"
    files = fsspec.filesystem("memory")
    if files.exists("/backups"):
        files.rm("/backups", recursive=True)


@pytest.mark.parametrize("kept", ["local", "memory"])
def test_a_folder_is_restored_unchanged(tmp_path: Path, kept: str, memory: str) -> None:
    _fill(tmp_path / "from")
    url = memory if kept == "memory" else str(tmp_path / "to")
    result = Backup().run(_context(tmp_path, destination=url))
    assert result.keys() == RESULT.keys()
    assert result["url"].startswith(f"{url}/nightly/")
    assert result["remarks"] == 0
    assert verify(place_url(url, "nightly")).ok
    restore(place_url(url, "nightly"), str(tmp_path / "back"))
    assert _seen(tmp_path / "back") == _seen(tmp_path / "from")
    assert (tmp_path / "back" / "hard").stat().st_nlink == 2


def test_the_same_folder_gives_the_same_archive(tmp_path: Path) -> None:
    _fill(tmp_path / "from")
    sums = [Backup().run(_context(tmp_path, token))["sha256"] for token in (1, 2)]
    assert sums[0] == sums[1]


def test_the_manifest_describes_the_files(tmp_path: Path) -> None:
    _fill(tmp_path / "from")
    result = Backup().run(_context(tmp_path, 7))
    (found,) = list_backups(f"{tmp_path}/to/nightly")
    assert (found.task, found.token, found.url, found.source_type) == ("nightly", 7, result["url"], "folder")
    assert found.source == {"type": "folder", "path": str(tmp_path / "from"), "shared": False}
    assert (found.node, found.lineage) == ("node-1", identity_id(found.identity or {}))
    assert (found.size_bytes, found.stored_bytes) == (result["bytes"], result["stored_bytes"])
    assert json.loads((Path(found.url) / "manifest.json").read_text())["version"] == 1
    assert list_backups(found.url) == [found]


def test_special_files_are_skipped_and_reported_with_their_type(tmp_path: Path) -> None:
    _fill(tmp_path / "from")
    os.mkfifo(tmp_path / "from" / "pipe")
    assert Backup().run(_context(tmp_path))["remarks"] == 1
    assert "socket or a pipe" in newest(f"{tmp_path}/to/nightly").remarks[0]


def test_a_file_that_vanishes_or_shrinks_during_the_backup_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(tmp_path / "from")
    told = tarfile.TarFile.gettarinfo

    def late(inside: int, wanted: str, **kwargs: Any) -> int:
        if wanted == "umlaut-ä":
            os.unlink(wanted, dir_fd=inside)
        return open_within(inside, wanted, **kwargs)

    def shrinks(self: Any, *args: Any, **kwargs: Any) -> Any:
        member = told(self, *args, **kwargs)
        if member.name == "deep/b.bin":
            os.truncate(tmp_path / "from" / "deep" / "b.bin", 5)
        return member

    monkeypatch.setattr(folder, "open_within", late)
    monkeypatch.setattr(tarfile.TarFile, "gettarinfo", shrinks)
    Backup().run(_context(tmp_path))
    monkeypatch.undo()
    remarks = newest(f"{tmp_path}/to/nightly").remarks
    assert [remark.rpartition("/")[2] for remark in remarks] == [
        "b.bin shrank while it was read: its last 99995 bytes are zeros",
        "umlaut-ä vanished while the folder was read",
    ]
    restore(f"{tmp_path}/to/nightly", str(tmp_path / "back"))
    restored = (tmp_path / "back" / "deep" / "b.bin").read_bytes()
    assert restored == (tmp_path / "from" / "deep" / "b.bin").read_bytes() + bytes(99_995)


def test_a_missing_folder_fails_the_backup_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(NoBackupSource, match="does not exist on node-1"):
        Backup().run(_context(tmp_path))
    assert list_backups(f"{tmp_path}/to/nightly") == []


def _database(path: Path, rows: int = 2000) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
        database.executemany("INSERT INTO t VALUES (?, ?)", ((n, f"row {n}" * 20) for n in range(rows)))
        database.commit()


def _rows(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT * FROM t ORDER BY n").fetchall()


def test_an_sqlite_database_is_restored_consistently_despite_concurrent_writes(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    _database(path)
    before = _rows(path)
    with closing(sqlite3.connect(path)) as writer:
        # An open transaction of another's: what it has not committed is not in the backup.
        writer.execute("INSERT INTO t VALUES (-1, 'not yet')")
        Backup().run(_context(tmp_path, source={"type": "sqlite", "path": str(path)}))
    report = verify(f"{tmp_path}/to/nightly")
    assert report.ok
    restore(f"{tmp_path}/to/nightly", str(tmp_path / "back.db"))
    assert _rows(tmp_path / "back.db") == before
    assert sorted(entry.name for entry in tmp_path.glob("*back.db*")) == ["back.db"]


def test_an_older_databases_wal_is_not_applied_to_the_restored_one(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    _database(path, 10)
    Backup().run(_context(tmp_path, source={"type": "sqlite", "path": str(path)}))
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("DELETE FROM t")
        writer.commit()
        restore(f"{tmp_path}/to/nightly", str(path), overwrite=True)
    assert len(_rows(path)) == 10


@pytest.mark.parametrize("content", [None, b"this is not a database" * 100])
def test_a_file_that_is_no_database_fails_with_its_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "app.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(
        (NoBackupSource, sqlite.SqliteFailed), match=r"app\.db(: file is not a database| does not exist on)"
    ):
        Backup().run(_context(tmp_path, source={"type": "sqlite", "path": str(path)}))
    assert list_backups(f"{tmp_path}/to/nightly") == []


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 5)


def _lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


@pytest.mark.parametrize("damage", [_flip, _cut, _lengthen, Path.unlink])
def test_a_damaged_archive_is_detected_and_not_restored(tmp_path: Path, damage: Any) -> None:
    _fill(tmp_path / "from")
    result = Backup().run(_context(tmp_path))
    damage(Path(result["url"]) / folder.FILE)
    report = verify(result["url"])
    assert not report.ok
    assert folder.FILE in report.problems[0]
    with pytest.raises(Damaged):
        restore(result["url"], str(tmp_path / "back"))
    assert not (tmp_path / "back").exists()
    assert [entry.name for entry in tmp_path.glob(".back*")] == []


def test_a_highly_compressed_archive_is_read_in_pieces(tmp_path: Path) -> None:
    place = Place(str(tmp_path))

    def zeros(out: archive.Writer) -> None:
        for _ in range(64):
            out.write(bytes(archive.CHUNK_BYTES))

    entry = archive.store(place, "zeros.zst", zeros, 3, archive.quiet)
    assert entry.stored_bytes < 10_000
    sizes = [len(chunk) for chunk in archive.load(place, entry, archive.quiet)]
    assert max(sizes) <= archive.CHUNK_BYTES
    assert sum(sizes) == 64 * archive.CHUNK_BYTES


def test_restore_refuses_an_existing_target_unless_overwrite_is_set(tmp_path: Path) -> None:
    _fill(tmp_path / "from")
    result = Backup().run(_context(tmp_path))
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "mine").write_text("mine")
    with pytest.raises(TargetExists, match="not empty"):
        restore(result["url"], str(tmp_path / "back"))
    assert (tmp_path / "back" / "mine").read_text() == "mine"
    restore(result["url"], str(tmp_path / "back"), overwrite=True)
    assert _seen(tmp_path / "back") == _seen(tmp_path / "from")
    with pytest.raises(BadTarget, match="a path"):
        restore(result["url"], "postgresql://localhost/x")
    with pytest.raises(NoBackup, match=r"no folder with a manifest\.json"):
        restore(str(tmp_path / "elsewhere"), str(tmp_path / "back"))


class Crash(BaseException):
    """The worker is gone."""


def _fence(value: Any) -> None:
    if "finishing" in value:  # all is written, but the manifest
        raise Fenced


def _crash(value: Any) -> None:
    if "finishing" in value:
        raise Crash


@pytest.mark.parametrize("interruption", [_fence, _crash])
def test_an_attempt_without_a_manifest_makes_no_backup_and_changes_no_other(tmp_path: Path, interruption: Any) -> None:
    _fill(tmp_path / "from")
    good = Backup().run(_context(tmp_path, 1))
    late = _context(tmp_path, 2)
    late.before_checkpoint = interruption
    with pytest.raises((Fenced, Crash)):
        Backup().run(late)
    assert [found.url for found in list_backups(f"{tmp_path}/to/nightly")] == [good["url"]]
    assert verify(f"{tmp_path}/to/nightly").ok
    left = [entry for entry in (tmp_path / "to" / "nightly").iterdir() if str(entry) != good["url"]]
    assert len(left) == (1 if interruption is _crash else 0)


def test_a_backup_of_another_cluster_with_the_same_name_is_not_touched(
    tmp_path: Path,
) -> None:
    """Tokens count from 1 again in a new cluster; two may name a destination and a task alike."""
    _fill(tmp_path / "from")
    backup = Backup(now=lambda: datetime(2026, 11, 21, 3, tzinfo=UTC))
    backup.run(_context(tmp_path, 1))
    with pytest.raises(FileExistsError, match="another cluster"):
        backup.run(_context(tmp_path, 1))
    assert verify(f"{tmp_path}/to/nightly").ok


def test_an_attempt_that_is_asked_to_stop_makes_no_backup(tmp_path: Path) -> None:
    _fill(tmp_path / "from")
    context = _context(tmp_path)
    context.cancelled = True
    with pytest.raises(BackupStopped):
        Backup().run(context)
    assert list_backups(f"{tmp_path}/to/nightly") == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"source": {"type": "mysql"}}, "'postgres', 'sqlite', 'folder'"),
        ({"source": {"type": "sqlite", "path": "app.db"}}, "pattern"),
        ({"source": {"type": "postgres", "url": "mysql://x/y"}}, "begins with postgresql://"),
        ({"source": {"type": "postgres", "url": "postgresql://a:b@x/y"}}, "must not contain a password"),
        ({"source": {"type": "postgres", "url": "postgresql://x/y?password=b"}}, "must not contain a password"),
        ({"source": {"type": "postgres", "url": "postgresql://a:b#c@x/y"}}, "must not contain a password"),
        ({"source": {"type": "postgres", "url": "postgresql://a:b?c@x/y"}}, "must not contain a password"),
        ({"source": {"type": "postgres", "url": "postgresql://a#b:c@x/y"}}, "in the user's name as %3A"),
        ({"source": {"type": "postgres", "url": "postgresql://a@x/y#z?password=b"}}, "must not contain a password"),
        ({"source": {"type": "postgres", "url": "postgresql://a@x/y?sslpass%77ord=b"}}, "must not contain a password"),
        ({"source": {"type": "folder", "path": "/data"}, "destination": "/data/backups"}, "inside the folder"),
        ({"source": {"type": "folder", "path": "/data"}, "destination": "file:///x/..//data/y"}, "inside the folder"),
        ({"destination": "somewhere"}, "must begin with '/'"),
        ({"destination": "/srv/a\0b"}, "contains a NUL character"),
        ({"destination": "nosuch://x"}, "not a file system that a task may name"),
        ({"destination": "memory://x"}, "cannot keep a backup .its content is lost when the run ends"),
        ({"destination": "https://host/x"}, "cannot keep a backup .it is read-only"),
        *(
            ({"destination": url}, "not a file system that a task may name")
            for url in (
                "github://org:repo@main/x",
                "simplecache://x",
                "filecache://x",
                "dir://x",
                "zip://x",
                "reference://x",
                "S3://bucket",
                "hdfs://x/y",
                "dbfs://x",
                "jupyter://x",
                "smb://x/y",
            )
        ),
        ({"destination": "local::/srv"}, "chains file systems"),
        ({"destination": "file:/srv"}, "must begin with '/'"),
        ({"destination": "file://~/x"}, "must begin with '/'"),
        ({"destination": "s3://bucket", "options": {"profile": "root"}}, "'profile' cannot be set by a task for s3"),
        ({"destination": "s3://bucket", "options": {"s3": "x"}}, "cannot be set by a task for s3"),
        ({"destination": "sftp://host/x", "options": {"key_filename": "/k"}}, "cannot be set by a task for sftp"),
        ({"destination": "sftp://host/x", "options": {"host": "other"}}, "cannot be set by a task for sftp"),
        ({"destination": "abfs://b/x", "options": {"connection_string": "x"}}, "cannot be set by a task for abfs"),
        ({"destination": "gs://b/x", "options": {"token": "/root/key.json"}}, "other values name a file"),
        ({"source": {"type": "postgres", "url": "postgresql://x/y", "bin": "/tmp/b"}}, "ROTA_POSTGRES_BIN"),
        *(
            (
                {"source": {"type": "postgres", "url": f"postgresql://x/y?{name}=z"}},
                "cannot be set|tasks may not set it",
            )
            for name in (
                *("passfile", "service", "servicefile", "sslkey", "sslcert", "sslcrl", "sslkeylogfile"),
                *("oauth_issuer", "replication", "gsslib", "%73ervice", "requirepeer", "unknown"),
            )
        ),
        ({"source": {"type": "postgres", "url": "postgresql://x/host%3Devil"}}, "is not a database's name"),
        ({"source": {"type": "postgres", "url": "postgresql://x?dbname=postgres://evil/"}}, "is not a database's name"),
        ({"destination": "s3://bucket/x::memory"}, "'::' chains file systems"),
        ({"destination": "ftp://user:hunter2@host/x"}, "must not contain a password.*`options`"),
        ({"destination": "sftp://user:@host/x"}, "must not contain a password"),
        ({"keep": 0}, "greater than or equal to 1"),
    ],
)
def test_wrong_params_are_refused_with_a_reason(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _context(tmp_path, **wrong)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://backup@db.internal:5432/orders",
        "postgres://a%3Ab@x",
        "postgresql://x:1,y:2/z",
        "postgresql://a@[::1]:5432/z?sslmode=require",
        "postgresql:///z?host=/run/postgresql",
        "postgresql://x/a:b@c",
    ],
)
def test_urls_without_a_password_for_libpq_are_accepted(tmp_path: Path, url: str) -> None:
    context = _context(tmp_path, source={"type": "postgres", "url": url})
    assert context.params.source.model_dump()["url"] == url


@pytest.mark.parametrize(
    "url", ["/mnt/a:b@c", "file:///mnt/x", "s3://bucket/a:b@c", "sftp://user@host:22/x", "abfs://box@account/x"]
)
def test_supported_destinations_are_accepted(tmp_path: Path, url: str) -> None:
    assert _context(tmp_path, destination=url).params.destination == url


def test_params_are_checked_without_disk_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node checks them on its event loop, and the source may be on a mount that hangs."""

    def touched(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the disk was asked")

    given = {"source": {"type": "folder", "path": "/data"}, "destination": "/data-2"}
    with monkeypatch.context() as patched:
        for name in ("stat", "lstat", "readlink", "getcwd"):
            patched.setattr(os, name, touched)
        BackupParams.model_validate(given)


def test_a_destination_linked_into_the_source_is_refused_at_run_time(tmp_path: Path) -> None:
    _fill(tmp_path / "from")
    (tmp_path / "to").symlink_to(tmp_path / "from" / "deep")
    with pytest.raises(BadDestination, match="inside the folder"):
        Backup().run(_context(tmp_path))
    above = _context(tmp_path, destination=str(tmp_path))
    above.task = "from"
    with pytest.raises(BadDestination, match="inside the folder"):
        Backup().run(above)
    assert [entry.name for entry in (tmp_path / "from" / "deep").iterdir() if entry.name == "nightly"] == []


def test_a_missing_destination_secret_fails_before_any_write(tmp_path: Path) -> None:
    _fill(tmp_path / "from")
    with pytest.raises(MissingSecret):
        Backup().run(_context(tmp_path, destination="s3://bucket/x", options={"key": {"secret": "nowhere"}}))
    assert not (tmp_path / "to").exists()
    with pytest.raises(BadDestination):
        Place("nosuch://x/y")
