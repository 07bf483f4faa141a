"""What is a backup's source and destination, and which are refused."""

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.backup.kind import Backup
from tasks.backup.params import BackupParams
from tasks.kind import MissingSecret
from tasks.places.place import BadDestination, Place
from tests.unit.tasks.backup.backups import backup_context, fill


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"source": {"type": "mysql"}}, "'postgres', 'postgres_physical', 'mariadb', 'sqlite', 'folder', 'stream'"),
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
        ({"destination": "sftp://host/x", "options": {"username": "u"}}, "give the server's public key in `options`"),
        (
            {"destination": "/x", "copies": [{"destination": "ssh://host/x"}]},
            "give the server's public key in `options`",
        ),
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
        backup_context(tmp_path, **wrong)


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
    context = backup_context(tmp_path, source={"type": "postgres", "url": url})
    assert context.params.source.model_dump()["url"] == url


@pytest.mark.parametrize("url", ["/mnt/a:b@c", "file:///mnt/x", "s3://bucket/a:b@c", "abfs://box@account/x"])
def test_supported_destinations_are_accepted(tmp_path: Path, url: str) -> None:
    assert backup_context(tmp_path, destination=url).params.destination == url


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
    fill(tmp_path / "from")
    (tmp_path / "to").symlink_to(tmp_path / "from" / "deep")
    with pytest.raises(BadDestination, match="inside the folder"):
        Backup().run(backup_context(tmp_path))
    above = backup_context(tmp_path, destination=str(tmp_path))
    above.task = "from"
    with pytest.raises(BadDestination, match="inside the folder"):
        Backup().run(above)
    assert [entry.name for entry in (tmp_path / "from" / "deep").iterdir() if entry.name == "nightly"] == []


def test_a_missing_destination_secret_fails_before_any_write(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    with pytest.raises(MissingSecret):
        Backup().run(backup_context(tmp_path, destination="s3://bucket/x", options={"key": {"secret": "nowhere"}}))
    assert not (tmp_path / "to").exists()
    with pytest.raises(BadDestination):
        Place("nosuch://x/y")
