"""Databases of a real MariaDB server, dumped and restored by its own programs."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.backup.archive import Damaged, TargetExists
from tasks.backup.encryption import BackupKeys, EncryptionParams, Identities, new_identity
from tasks.backup.kind import Backup
from tasks.backup.manifest import survey_url
from tasks.backup.params import BackupParams
from tasks.backup.restore import BadTarget, restore_backup
from tasks.backup.sources.mariadb.server import MariadbFailed
from tasks.backup.sources.source import RestoreParts
from tasks.backup.verify import verify
from tasks.errors import Away
from tasks.source_identity import OtherSource
from testkit.fake_context import FakeContext
from testkit.servers.mariadb_server import ROOT_PASSWORD, RunningMariadb, mariadb_server, why_no_mariadb

pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(why_no_mariadb()), reason=why_no_mariadb())]

AWKWARD = "größe x-y%"
AWKWARD_SQL = (Path(__file__).parents[2] / "testkit/servers/awkward_mariadb.sql").read_text()


@pytest.fixture(scope="module")
def server() -> Iterator[RunningMariadb]:
    with mariadb_server() as running:
        running.sql("CREATE DATABASE shop CHARACTER SET utf8mb4; CREATE TABLE shop.line (id int PRIMARY KEY, v text);")
        running.sql("INSERT INTO shop.line SELECT seq, repeat(md5(seq), 4) FROM seq_1_to_20000", "shop")
        running.sql(AWKWARD_SQL)
        yield running


def context_of(server: RunningMariadb, tmp_path: Path, token: int = 1, **more: Any) -> FakeContext[BackupParams]:
    source = {"type": "mariadb", "url": server.url(), "password": {"secret": "maria"}} | more
    params = BackupParams.model_validate({"source": source, "destination": str(tmp_path / "to")})
    scratch = tmp_path / f"scratch-{token}"
    scratch.mkdir(exist_ok=True)
    return FakeContext(params, scratch, task="db", token=token, secrets={"maria": ROOT_PASSWORD})


def content_of(server: RunningMariadb, database: str) -> dict[str, str]:
    """All of a database: each table's rows with all columns in hex, and the definition of each thing."""
    name = f"`{database}`"
    found = {}
    quoted = database.replace("'", "''")
    tables = server.sql(
        f"SELECT HEX(table_name), table_type FROM information_schema.tables WHERE table_schema = '{quoted}'"
    )
    for row in tables.splitlines():
        code, kind = row.split("\t")
        table = bytes.fromhex(code).decode()
        shown = f"{name}.`{table.replace('`', '``')}`"
        found[f"table {table}"] = server.sql(f"SHOW CREATE TABLE {shown}")
        columns = server.sql(
            "SELECT HEX(column_name), data_type FROM information_schema.columns WHERE table_schema = "
            f"'{quoted}' AND table_name = X'{code}' ORDER BY ordinal_position"
        )
        each = []
        for column in columns.splitlines():
            named, type_ = column.split("\t")
            own = f"`{bytes.fromhex(named).decode().replace('`', '``')}`"
            exact = {"float": f"{own}+0e0", "decimal": f"CONCAT({own})", "double": f"CONCAT({own})"}.get(type_, own)
            each.append(f"IFNULL(HEX({exact}), 'NULL')")
        versions = " FOR SYSTEM_TIME ALL" if kind == "SYSTEM VERSIONED" else ""
        each += ["row_start", "row_end"] if versions else []
        found[f"rows {table}"] = server.sql(
            f"SELECT CONCAT_WS(' ', {', '.join(each)}) t FROM {shown}{versions} ORDER BY 1"
        )
    for what, listed in (
        ("TRIGGER", f"SELECT HEX(trigger_name) FROM information_schema.triggers WHERE trigger_schema = '{quoted}'"),
        ("PROCEDURE", f"SELECT HEX(name) FROM mysql.proc WHERE db = '{quoted}' AND type = 'PROCEDURE'"),
        ("FUNCTION", f"SELECT HEX(name) FROM mysql.proc WHERE db = '{quoted}' AND type = 'FUNCTION'"),
        ("PACKAGE", f"SELECT HEX(name) FROM mysql.proc WHERE db = '{quoted}' AND type = 'PACKAGE'"),
        ("EVENT", f"SELECT HEX(event_name) FROM information_schema.events WHERE event_schema = '{quoted}'"),
    ):
        for code in server.sql(listed).split():
            each_name = bytes.fromhex(code).decode()
            text = server.sql(f"SHOW CREATE {what} {name}.`{each_name}`")
            # The last field of a trigger is when it was made.
            found[f"{what} {each_name}"] = text.rpartition("\t")[0] if what == "TRIGGER" else text
    found["defaults"] = server.sql(
        "SELECT default_character_set_name, default_collation_name, schema_comment FROM information_schema.schemata "
        f"WHERE schema_name = '{quoted}'"
    )
    return found


@pytest.mark.more
def test_a_server_that_does_not_answer_is_waited_for_and_one_that_refuses_is_not(
    server: RunningMariadb, tmp_path: Path
) -> None:
    with pytest.raises(MariadbFailed, match="ERROR 1045") as refused:
        Backup().run(context_of(server, tmp_path, url=server.url(user="nobody")))
    assert not isinstance(refused.value, Away)
    with pytest.raises(Away, match=r"ERROR 200[23]"):
        Backup().run(context_of(server, tmp_path, url=f"{server.url()}-gone"))


def test_awkward_data_is_equal_in_another_server(server: RunningMariadb, tmp_path: Path) -> None:
    server.sql(
        "CREATE USER `o'neil`@`%` IDENTIFIED BY 'secret-of-o'; CREATE ROLE reader; GRANT SELECT ON shop.* TO reader"
    )
    server.sql(
        "GRANT reader TO `o'neil`@`%`; SET DEFAULT ROLE reader FOR `o'neil`@`%`; GRANT EVENT ON shop.* TO `o'neil`@`%`"
    )
    context = context_of(server, tmp_path)
    result = Backup().run(context)
    assert {each["name"] for each in result["objects"]} == {
        "database.größe%20x-y%25.sql.zst",
        "database.shop.sql.zst",
        "users.sql.zst",
    }
    report = verify(result["url"])
    assert report.problems == ()
    assert any("old_engine (MyISAM)" in remark for remark in report.remarks)
    text = (Path(result["url"]) / "manifest.json").read_text()
    assert ROOT_PASSWORD not in text
    assert not list(context.scratch.iterdir())
    with mariadb_server() as other:
        done = restore_backup(f"{tmp_path}/to/db", other.url(), password=ROOT_PASSWORD)
        for database in ("shop", AWKWARD):
            assert content_of(other, database) == content_of(server, database)
        assert any("root@localhost" in remark for remark in done.remarks)
        grants = "SHOW GRANTS FOR `o'neil`@`%`; SHOW GRANTS FOR reader"
        assert other.sql(grants) == server.sql(grants)
        with pytest.raises(TargetExists, match="shop"):
            restore_backup(f"{tmp_path}/to/db", other.url(), password=ROOT_PASSWORD)
        other.sql("DELETE FROM shop.line WHERE id > 5; CREATE TABLE shop.more (n int)")
        restore_backup(f"{tmp_path}/to/db", other.url(), overwrite=True, password=ROOT_PASSWORD)
        assert content_of(other, "shop") == content_of(server, "shop")
        with pytest.raises(OtherSource, match="MariaDB server set up at"):
            Backup().run(context_of(other, tmp_path, 2))


@pytest.mark.more
def test_one_database_of_an_encrypted_backup_is_restored_under_another_name(
    server: RunningMariadb, tmp_path: Path
) -> None:
    public, private = new_identity(None)
    context = context_of(server, tmp_path)
    encryption = EncryptionParams(recipients=[public])
    context.params = context.params.model_copy(update={"encryption": encryption})
    result = Backup().run(context)
    keys = BackupKeys(Identities.of_text(private, "key.txt"))
    assert verify(result["url"], keys=keys).ok
    restore_backup(
        result["url"], server.url("again"), password=ROOT_PASSWORD, keys=keys, parts=RestoreParts(database=AWKWARD)
    )
    was, now = content_of(server, AWKWARD), content_of(server, "again")
    assert now == {what: text.replace(f"`{AWKWARD}`", "`again`") for what, text in was.items()}
    with pytest.raises(MariadbFailed, match="no database nowhere, but"):
        restore_backup(result["url"], server.url("nowhere"), password=ROOT_PASSWORD, keys=keys)
    with pytest.raises(BadTarget, match="mysql://"):
        restore_backup(result["url"], str(tmp_path / "file"), keys=keys)
    shop = RestoreParts(database="shop")
    with pytest.raises(TargetExists):
        restore_backup(result["url"], server.url("shop"), password=ROOT_PASSWORD, keys=keys, parts=shop)
    server.sql("DROP DATABASE again")


@pytest.mark.more
def test_all_databases_as_of_one_moment_are_one_object(server: RunningMariadb, tmp_path: Path) -> None:
    result = Backup().run(context_of(server, tmp_path, one_moment=True, databases=["shop", AWKWARD]))
    assert [each["name"] for each in result["objects"]] == ["databases.sql.zst"]
    with pytest.raises(MariadbFailed, match="restored as a whole"):
        restore_backup(result["url"], server.url("shop_again"), password=ROOT_PASSWORD)
    with mariadb_server() as other:
        restore_backup(result["url"], other.url(), password=ROOT_PASSWORD)
        for database in ("shop", AWKWARD):
            assert content_of(other, database) == content_of(server, database)


def test_a_dump_that_was_cut_does_not_count_and_changes_nothing(
    server: RunningMariadb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    real = shutil.which("mariadb-dump")
    (fake / "mariadb-dump").write_text(f'#!/bin/sh\n"{real}" "$@" | head -c 30000\n')
    (fake / "mariadb-dump").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{fake}{os.pathsep}{os.environ['PATH']}")
        with pytest.raises(MariadbFailed, match="ended without its last line"):
            Backup().run(context_of(server, tmp_path, databases=["shop"]))
    assert list((tmp_path / "to" / "db").iterdir()) == []
    result = Backup().run(context_of(server, tmp_path, 2, databases=["shop"]))
    stored = Path(result["url"]) / "database.shop.sql.zst"
    content = bytearray(stored.read_bytes())
    content[-20] ^= 1
    stored.write_bytes(content)
    assert not verify(result["url"]).ok
    with pytest.raises(Damaged):
        restore_backup(result["url"], server.url("fresh"), password=ROOT_PASSWORD)
    assert "fresh" not in server.sql("SHOW DATABASES").split()
    before = content_of(server, "shop")
    with pytest.raises(Damaged):
        restore_backup(result["url"], server.url(), over_source=True, password=ROOT_PASSWORD)
    assert content_of(server, "shop") == before


@pytest.mark.more
def test_what_the_account_may_not_read_is_said_before_anything_is_written(
    server: RunningMariadb, tmp_path: Path
) -> None:
    server.sql("CREATE USER half@localhost IDENTIFIED BY 'half-half'; GRANT SELECT, EVENT ON shop.* TO half@localhost")
    context = context_of(server, tmp_path, url=server.url(user="half"), databases=["shop"])
    context.secrets = {"maria": "half-half"}
    with pytest.raises(MariadbFailed, match=r"GRANT SHOW VIEW, TRIGGER ON `shop`\.\*"):
        Backup().run(context)
    server.sql("GRANT SHOW VIEW, TRIGGER ON shop.* TO half@localhost")
    context.token = 2
    Backup().run(context)
    [found] = survey_url(f"{tmp_path}/to/db").complete
    assert set(found.identity or {}) == {"type", "host", "data_folder"}
    assert any("mysql.proc" in remark for remark in found.remarks)
    context.secrets, context.token = {"maria": "wrong-one"}, 3
    with pytest.raises(MariadbFailed, match="Access denied"):
        Backup().run(context)


@pytest.mark.more
def test_what_cannot_arrive_as_it_left_is_named(server: RunningMariadb, tmp_path: Path) -> None:
    server.sql(
        "CREATE DATABASE odd; USE odd; CREATE TABLE inexact (f float, g float(7,2), d double(70,2), e double(67,2));"
        "CREATE TABLE faces (e enum('a','😀') CHARACTER SET utf8mb4, b enum('ä') CHARACTER SET utf8mb4);"
        "CREATE TABLE gone (x int); CREATE VIEW broken AS SELECT x FROM gone; DROP TABLE gone;"
        "CREATE TABLE refers (id int, FOREIGN KEY (id) REFERENCES shop.line (id));"
        "CREATE TABLE by_trx (x int, s bigint unsigned GENERATED ALWAYS AS ROW START, "
        "e bigint unsigned GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME(s, e)) "
        "WITH SYSTEM VERSIONING ENGINE=InnoDB; INSERT INTO by_trx (x) VALUES (1);"
        "CREATE PROCEDURE odd.p() SELECT 1; ALTER DATABASE odd CHARACTER SET utf8mb3"
    )
    result = Backup().run(context_of(server, tmp_path, databases=["odd"]))
    said = "\n".join(verify(result["url"]).remarks)
    assert "the view odd.broken is broken" in said
    assert "odd.inexact.f: " in said
    assert "odd.inexact.d: the server reads no number of more than 65 digits back" in said
    assert "odd.faces.e: in the values of an ENUM or SET" in said
    assert "the history of odd.by_trx" in said
    assert "foreign keys of odd refer to shop" in said
    with pytest.raises(Damaged, match=r"under the name of its database.*ALTER DATABASE `odd`"):
        restore_backup(result["url"], server.url("odder"), password=ROOT_PASSWORD)
    assert "odder" not in server.sql("SHOW DATABASES").split()
    restore_backup(result["url"], server.url(), over_source=True, password=ROOT_PASSWORD)
    assert server.sql("SELECT x FROM odd.by_trx") == "1"
    server.sql("DROP DATABASE odd")


def test_what_would_change_the_source_is_not_restored_under_another_name(
    server: RunningMariadb, tmp_path: Path
) -> None:
    server.sql(
        "CREATE DATABASE `it's`; USE `it's`; CREATE TABLE t (id int);"
        "CREATE TRIGGER tr BEFORE INSERT ON `it's`.t FOR EACH ROW SET NEW.id = 1"
    )
    result = Backup().run(context_of(server, tmp_path, databases=["it's"]))
    server.sql("DROP TRIGGER `it's`.tr")
    with pytest.raises(Damaged, match="TRIGGER tr"):
        restore_backup(result["url"], server.url("its"), password=ROOT_PASSWORD)
    assert server.sql("SHOW TRIGGERS FROM `it's`") == ""
    with pytest.raises(TargetExists, match=r"is the one that was backed up, with it's: .* or give --over-source"):
        restore_backup(result["url"], server.url("it's"), overwrite=True, password=ROOT_PASSWORD)
    restore_backup(result["url"], server.url("it's"), over_source=True, password=ROOT_PASSWORD)
    assert "tr" in server.sql("SHOW TRIGGERS FROM `it's`")
    server.sql("CREATE EVENT `it's`.e ON SCHEDULE EVERY 1 DAY DO SELECT 1")
    with pytest.raises(MariadbFailed, match="cannot dump events of a database with a quote in its name: it's"):
        Backup().run(context_of(server, tmp_path, 2, databases=["it's"]))
    server.sql("DROP DATABASE `it's`")


@pytest.mark.more
def test_the_next_attempt_keeps_whole_databases(
    server: RunningMariadb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = context_of(server, tmp_path)

    def die(done: float, total: float | None = None, unit: str = "") -> None:
        if list((tmp_path / "to").rglob("database.shop.sql.zst.whole.json")):
            raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(first, "progress", die)
        Backup().run(first)
    server.sql("INSERT INTO shop.line VALUES (-1, 'later')")
    second = context_of(server, tmp_path, 2)
    second.attempt, second.checkpoint = 2, first.saved[-1]
    result = Backup().run(second)
    restore_backup(result["url"], server.url("kept"), password=ROOT_PASSWORD, parts=RestoreParts(database="shop"))
    assert server.sql("SELECT COUNT(*) FROM kept.line WHERE id = -1") == "0"
    assert len(survey_url(f"{tmp_path}/to/db").complete) == 1
    server.sql("DROP DATABASE kept; DELETE FROM shop.line WHERE id = -1")
