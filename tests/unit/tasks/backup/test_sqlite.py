"""Backups of SQLite files: damaged ones fail in time, intact ones are restored with their permissions."""

import io
import json
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tasks.backup import archive
from tasks.backup.content import BackupStopped
from tasks.backup.encryption import BackupKeys, Identities, new_identity
from tasks.backup.kind import Backup
from tasks.backup.manifest import survey_url
from tasks.backup.params import BackupParams
from tasks.backup.restore import restore_backup
from tasks.backup.sources.sqlite import SqliteFailed, dump_sqlite
from tasks.backup.verify import verify
from testkit.fake_context import FakeContext


def _back_up(tmp_path: Path, token: int = 1) -> dict[str, Any]:
    source = {"type": "sqlite", "path": str(tmp_path / "app.db")}
    params = BackupParams.model_validate({"source": source, "destination": str(tmp_path / "to"), "keep": 1})
    scratch = tmp_path / f"scratch-{token}"
    scratch.mkdir()
    return Backup().run(FakeContext(params, scratch, task="nightly", token=token))


def _compare(left: str, right: str) -> int:
    return (left > right) - (left < right)


def _database(path: Path, *more: str) -> None:
    """A hundred pages, and `more` by an application that has a collation and a function of its own."""
    with closing(sqlite3.connect(path)) as database:
        database.create_collation("own", _compare)
        database.create_function("own", 1, lambda value: value, deterministic=True)
        database.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
        database.executemany("INSERT INTO t VALUES (?, ?)", ((n, f"row {n}" * 100) for n in range(500)))
        for statement in more:
            database.execute(statement)
        database.commit()


def _rows(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT * FROM t ORDER BY n").fetchall()


def _spoil(path: Path) -> None:
    """Break one page in the middle, which opening the database does not read."""
    content = bytearray(path.read_bytes())
    content[4096 * 20 : 4096 * 21] = b"\xff" * 4096
    path.write_bytes(content)


COLLATION = "CREATE INDEX by_text ON t (text COLLATE own)"
FUNCTION = "CREATE TABLE made (text TEXT, own TEXT NOT NULL AS (own(text)))"
CHECKED = "CREATE TABLE checked (text TEXT CHECK (own(text) = 'x'))"
EXPRESSION = "CREATE INDEX by_own ON t (own(text))"


@pytest.mark.parametrize("more", [(), (COLLATION, FUNCTION)])
def test_a_damaged_database_fails_and_keeps_the_intact_backups(tmp_path: Path, more: tuple[str, ...]) -> None:
    _database(tmp_path / "app.db", *more)
    before = _rows(tmp_path / "app.db")
    sound = _back_up(tmp_path)["url"]
    _spoil(tmp_path / "app.db")
    with pytest.raises(SqliteFailed, match=r"app\.db is damaged, and was not backed up"):
        _back_up(tmp_path, token=2)
    assert [found.url for found in survey_url(f"{tmp_path}/to/nightly").complete] == [sound]
    restore_backup(sound, str(tmp_path / "back.db"))
    assert _rows(tmp_path / "back.db") == before


@pytest.mark.parametrize(
    ("more", "remarks"),
    [
        ((COLLATION,), ["could not check all of it: no such collation sequence: own"]),
        ((FUNCTION, "INSERT INTO made VALUES ('x')"), ["could not check all of it: unknown function: own()"]),
        ((CHECKED, "INSERT INTO checked VALUES ('x')"), []),
        ((EXPRESSION,), []),
        ((COLLATION, FUNCTION), ["no such collation sequence: own", "unknown function: own()"]),
        (
            (
                "CREATE TABLE few (n INTEGER)",
                "INSERT INTO few VALUES (NULL), (NULL), (NULL)",
                "PRAGMA writable_schema = ON",
                "UPDATE sqlite_schema SET sql = 'CREATE TABLE few (n INTEGER NOT NULL)' WHERE name = 'few'",
            ),
            ["invalid values: NULL value in few.n, and 2 more"],
        ),
    ],
)
def test_an_intact_database_is_restored_though_sqlite_cannot_check_all_of_it(
    tmp_path: Path, more: tuple[str, ...], remarks: list[str]
) -> None:
    _database(tmp_path / "app.db", *more)
    assert _back_up(tmp_path)["remarks"] == len(remarks)
    report = verify(f"{tmp_path}/to/nightly")
    restored = restore_backup(f"{tmp_path}/to/nightly", str(tmp_path / "back.db"))
    assert report.ok
    assert report.remarks == restored.remarks
    assert all(part in remark for part, remark in zip(remarks, sorted(report.remarks), strict=True))
    assert _rows(tmp_path / "back.db") == _rows(tmp_path / "app.db")


def test_a_stop_request_interrupts_the_check_and_the_copy(tmp_path: Path) -> None:
    _database(tmp_path / "app.db")
    steps = []

    def step() -> None:
        steps.append(1)
        if len(steps) > 1:  # a copy this small takes one step
            raise BackupStopped("asked to stop")

    with pytest.raises(BackupStopped):
        dump_sqlite(tmp_path / "app.db", tmp_path, archive.Writer("a.zst", io.BytesIO(), 1, archive.quiet), step)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_databases_file_mode_is_restored(tmp_path: Path, mode: int) -> None:
    _database(tmp_path / "app.db")
    (tmp_path / "app.db").chmod(mode)
    _back_up(tmp_path)
    restore_backup(f"{tmp_path}/to/nightly", str(tmp_path / "new" / "back.db"))
    assert _mode(tmp_path / "new" / "back.db") == mode


def test_a_backup_without_a_mode_is_restored_with_a_private_mode(tmp_path: Path) -> None:
    _database(tmp_path / "app.db")
    manifest = Path(_back_up(tmp_path)["url"]) / "manifest.json"
    value = json.loads(manifest.read_text())
    for name in ("mode", "uid", "gid"):
        del value["files"][0][name]
    manifest.write_text(json.dumps(value))
    restore_backup(f"{tmp_path}/to/nightly", str(tmp_path / "back.db"))
    assert _mode(tmp_path / "back.db") == 0o600


def _old_database(path: Path) -> sqlite3.Connection:
    """With rows that are only in its WAL."""
    old = sqlite3.connect(path)
    old.execute("PRAGMA journal_mode = WAL")
    old.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)")
    old.execute("INSERT INTO t VALUES (7)")
    old.commit()
    return old


def test_a_database_that_cannot_be_replaced_keeps_its_wal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _database(tmp_path / "app.db")
    _back_up(tmp_path)
    (tmp_path / "there").mkdir()
    rename: Callable[[Path, Path], Path] = Path.rename

    def fails(self: Path, to: Path) -> Path:
        if self.name.endswith(".partial"):
            raise OSError(28, "No space left on device")
        return rename(self, to)

    with closing(_old_database(tmp_path / "there" / "old.db")):
        before = {path.name: path.read_bytes() for path in (tmp_path / "there").iterdir()}
        assert "old.db-wal" in before
        monkeypatch.setattr(Path, "rename", fails)
        with pytest.raises(OSError, match="No space left"):
            restore_backup(f"{tmp_path}/to/nightly", str(tmp_path / "there" / "old.db"), overwrite=True)
        assert {path.name: path.read_bytes() for path in (tmp_path / "there").iterdir()} == before
        monkeypatch.undo()
        restore_backup(f"{tmp_path}/to/nightly", str(tmp_path / "there" / "old.db"), overwrite=True)
        assert [path.name for path in (tmp_path / "there").iterdir()] == ["old.db"]
    assert len(_rows(tmp_path / "there" / "old.db")) == 500


def test_a_restore_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    _database(tmp_path / "app.db")
    _back_up(tmp_path)
    (tmp_path / "disk").mkdir()
    (tmp_path / "link.db").symlink_to("disk/real.db")
    restore_backup(f"{tmp_path}/to/nightly", str(tmp_path / "link.db"))
    assert (tmp_path / "link.db").is_symlink()
    assert len(_rows(tmp_path / "disk" / "real.db")) == 500


AWKWARD = """
CREATE TABLE odd (i INTEGER, t TEXT, b BLOB, r REAL, anything,
  twice INTEGER AS (i * 2) STORED, shown AS (hex(b)) VIRTUAL);
CREATE TABLE keyed (a TEXT COLLATE NOCASE, b, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE strict_one (i INT, t TEXT, x ANY) STRICT;
CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT, note TEXT DEFAULT 'it''s');
CREATE TABLE "tä'b""le; --" ("co l" TEXT CHECK ("co l" <> 'x'), up INTEGER REFERENCES counted ON DELETE CASCADE);
CREATE VIEW "a view" AS SELECT t FROM odd WHERE i > 0;
CREATE TRIGGER noted AFTER INSERT ON keyed BEGIN INSERT INTO counted (note) VALUES ('ü' || NEW.a); END;
CREATE INDEX partly ON odd (t DESC, lower(t)) WHERE i IS NOT NULL;
CREATE VIRTUAL TABLE found USING fts5(title, body, tokenize = 'porter');
INSERT INTO found VALUES ('größe', 'running runs ran');
INSERT INTO keyed VALUES ('A', 1), ('a', 2.5), ('b', x'00ff');
INSERT INTO strict_one VALUES (1, 'x', x'00'), (NULL, NULL, '1');
INSERT INTO "tä'b""le; --" VALUES ('', 1), (NULL, NULL);
DELETE FROM counted WHERE id = 3;
PRAGMA user_version = 4711; PRAGMA application_id = 77;
"""
VALUES: list[Any] = [
    (2**63 - 1, "nul\0in it", b"\0\xff" * 5000, 5e-324, "1"),
    (-(2**63), "", b"", -0.0, 1),
    (0, "\U0010ffff\n\r\\.", None, float("inf"), 1.0),
    (None, "x" * 300_000, b"x", 1.7976931348623157e308, b"1"),
]


def _content(path: Path) -> dict[str, Any]:
    """Each table's rows, by value and type, and each definition."""
    with closing(sqlite3.connect(path)) as database:
        found: dict[str, Any] = {"schema": database.execute("SELECT * FROM sqlite_schema ORDER BY name").fetchall()}
        for name, kind in [(each[1], each[0]) for each in found["schema"]]:
            if kind in ("table", "view"):
                quoted = '"' + name.replace('"', '""') + '"'
                found[name] = sorted(map(repr, database.execute(f"SELECT * FROM {quoted}")))
        found["found"] = database.execute("SELECT title FROM found WHERE found MATCH 'run'").fetchall()
        found |= {name: database.execute(f"PRAGMA {name}").fetchall() for name in ("user_version", "application_id")}
        return found | {"types": database.execute("SELECT typeof(anything), typeof(r) FROM odd").fetchall()}


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_awkward_values_are_equal_after_a_restore(tmp_path: Path, journal: str, encrypted: bool) -> None:
    public, private = new_identity(None)
    with closing(sqlite3.connect(tmp_path / "app.db", isolation_level=None)) as writer:
        writer.execute(f"PRAGMA journal_mode = {journal}")
        writer.executescript(AWKWARD)
        writer.executemany("INSERT INTO odd (i, t, b, r, anything) VALUES (?, ?, ?, ?, ?)", VALUES)
        before = _content(tmp_path / "app.db")
        if journal == "wal":  # others write while the database is read, and nothing of that is in the backup
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("UPDATE odd SET t = 'uncommitted'")
        source = {"type": "sqlite", "path": str(tmp_path / "app.db")}
        given: dict[str, Any] = {"source": source, "destination": str(tmp_path / "to")}
        given |= {"encryption": {"recipients": [public]}} if encrypted else {}
        (tmp_path / "scratch").mkdir()
        context = FakeContext(BackupParams.model_validate(given), tmp_path / "scratch", task="odd")
        url = Backup().run(context)["url"]
    keys = BackupKeys(Identities.of_text(private, "key.txt")) if encrypted else None
    restore_backup(url, str(tmp_path / "back.db"), keys=keys)
    assert _content(tmp_path / "back.db") == before
    assert (len(before["odd"]), len(before["found"]), before["user_version"]) == (4, 1, [(4711,)])
