"""A real database, dumped and restored by PostgreSQL 17 from PyPI."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.demo.postgres import Server, postgres_server
from tasks.access import EVERYTHING
from tasks.backup.archive import Damaged, TargetExists
from tasks.backup.kind import Backup
from tasks.backup.manifest import survey_url
from tasks.backup.params import BackupParams
from tasks.backup.restore import BadTarget, restore_backup
from tasks.backup.sources import postgres_tools
from tasks.backup.sources.postgres_tools import NoTool, PostgresFailed, Tools, choose, installed_tools
from tasks.backup.verify import verify
from tasks.source_identity import OtherSource
from testkit.fake_context import FakeContext

pytestmark = pytest.mark.integration

PASSWORD = r"it's: a \ password"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server(PASSWORD) as running:
        running.sql("postgres", "CREATE DATABASE orders")
        running.sql(
            "orders",
            "CREATE TABLE line (id int PRIMARY KEY, text text, at timestamptz);"
            "INSERT INTO line SELECT n, repeat(md5(n::text), 4), to_timestamp(n) FROM generate_series(1, 30000) n;"
            "CREATE INDEX ON line (text)",
        )
        yield running


SUM = "SELECT count(*), md5(string_agg(l::text, '|' ORDER BY id)) FROM line l"


def _backup(server: Server, tmp_path: Path, **more: Any) -> FakeContext[BackupParams]:
    source = {"type": "postgres", "url": server.url("orders"), "password": {"secret": "pg"}} | more
    params = BackupParams.model_validate({"source": source, "destination": str(tmp_path / "to")})
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    return FakeContext(params, scratch, task="orders", secrets={"pg": PASSWORD})


def test_a_dump_is_restored_into_another_database_and_is_the_same(server: Server, tmp_path: Path) -> None:
    context = _backup(server, tmp_path)
    result = Backup().run(context)
    report = verify(result["url"])
    assert (report.ok, report.remarks) == (True, ())
    assert report.manifest.tools["pg_dump"].startswith("17")
    text = (tmp_path / "to" / "orders" / result["url"].rpartition("/")[2] / "manifest.json").read_text()
    assert PASSWORD not in text
    assert "password" not in text
    server.sql("postgres", "CREATE DATABASE again")
    done = restore_backup(f"{tmp_path}/to/orders", server.url("again"), password=PASSWORD)
    assert done.size_bytes == result["bytes"]
    assert server.sql("again", SUM) == server.sql("orders", SUM)
    assert server.sql("again", SUM).startswith("30000|")

    with pytest.raises(TargetExists, match="not empty"):
        restore_backup(result["url"], server.url("again"), password=PASSWORD)
    server.sql("again", "DELETE FROM line WHERE id % 2 = 0; CREATE TABLE other (n int)")
    restore_backup(result["url"], server.url("again"), overwrite=True, password=PASSWORD)
    assert server.sql("again", SUM) == server.sql("orders", SUM)
    with pytest.raises(BadTarget, match="postgresql://"):
        restore_backup(result["url"], str(tmp_path / "file"))


def test_a_damaged_dump_changes_nothing_in_the_target(server: Server, tmp_path: Path) -> None:
    result = Backup().run(_backup(server, tmp_path))
    stored = Path(result["url"]) / "postgres.dump.zst"
    content = bytearray(stored.read_bytes())
    content[-20] ^= 1
    stored.write_bytes(content)
    assert not verify(result["url"]).ok
    server.sql("postgres", "CREATE DATABASE untouched")
    with pytest.raises(Damaged):
        restore_backup(result["url"], server.url("untouched"), password=PASSWORD)
    assert server.sql("untouched", "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == "0"


def test_a_dump_that_fails_says_why_and_leaves_no_backup(server: Server, tmp_path: Path) -> None:
    good = Backup().run(_backup(server, tmp_path))
    wrong = _backup(server, tmp_path, url=server.url("nowhere"))
    wrong.token = 2
    with pytest.raises(PostgresFailed, match='database "nowhere" does not exist'):
        Backup().run(wrong)
    (tmp_path / "scratch" / "pgpass").unlink()
    locked_out = _backup(server, tmp_path)
    locked_out.token = 3
    locked_out.secrets = {"pg": "not it"}
    with pytest.raises(PostgresFailed, match="password authentication failed"):
        Backup().run(locked_out)
    assert [found.url for found in survey_url(f"{tmp_path}/to/orders").complete] == [good["url"]]
    assert len(list((tmp_path / "to" / "orders").iterdir())) == 1


def test_a_pg_dump_that_dies_half_way_leaves_no_backup(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    for name in ("psql", "pg_restore"):
        (fake / name).symlink_to(server.programs / name)
    (fake / "pg_dump").write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "pg_dump (PostgreSQL) 17.9" && exit\n'
        'echo half of it; echo "the disk is gone" >&2; exit 1\n'
    )
    (fake / "pg_dump").chmod(0o755)
    with pytest.raises(PostgresFailed, match="pg_dump ended with exit code 1: the disk is gone"):
        context = _backup(server, tmp_path)
        context.access = replace(EVERYTHING, postgres_bin=str(fake))
        Backup().run(context)
    assert list((tmp_path / "to" / "orders").iterdir()) == []


def test_programs_of_a_version_that_fits_are_chosen(tmp_path: Path) -> None:
    """A pg_dump 15 on the PATH must not be used for a server 17: it refuses."""
    here = [Tools(Path("/a"), "15.18"), Tools(Path("/b"), "17.10"), Tools(Path("/c"), "18.1")]
    assert [choose(here, major).major for major in (14, 15, 16, 17, 18)] == [15, 15, 17, 17, 18]
    with pytest.raises(NoTool, match=r"version 19 or later.*15\.18 in /a"):
        choose(here, 19)
    assert installed_tools(str(tmp_path), os.environ) == []
    assert postgres_tools.OTHER_PLACES
    assert any(tools.major == 17 for tools in installed_tools(None, {"PATH": "/nowhere"}))


def test_another_database_behind_the_same_url_is_another_source(server: Server, tmp_path: Path) -> None:
    """Dropped and made anew: what is in it would take the place of the good copies."""
    server.sql("postgres", "CREATE DATABASE ledger TEMPLATE orders")
    url = server.url("ledger")
    good = [Backup().run(_at(_backup(server, tmp_path, url=url), token, node))["url"] for token, node in _TWO]
    found = survey_url(f"{tmp_path}/to/orders").complete
    assert {one.lineage for one in found} == {found[0].lineage}
    identity = found[0].identity or {}
    assert identity["system"] == server.sql("postgres", "SELECT system_identifier FROM pg_control_system()")
    server.sql("postgres", "DROP DATABASE ledger")
    server.sql("postgres", "CREATE DATABASE ledger")
    with pytest.raises(
        OtherSource, match=r"is of database ledger \(oid \d+\); on node-2 the source now is database ledger"
    ):
        Backup().run(_at(_backup(server, tmp_path, url=url), 3, "node-2"))
    assert sorted(one.url for one in survey_url(f"{tmp_path}/to/orders").complete) == good


def test_a_server_that_tells_no_identifier_of_its_own_is_backed_up(server: Server, tmp_path: Path) -> None:
    server.sql("postgres", "CREATE DATABASE plain TEMPLATE orders")
    server.sql(
        "plain", "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC; CREATE ROLE guest LOGIN PASSWORD 'g'"
    )
    server.sql("plain", "GRANT SELECT ON line TO guest")
    url = server.url("plain").replace("//rota@", "//guest@")
    context = _backup(server, tmp_path, url=url)
    context.secrets = {"pg": "g"}
    Backup().run(context)
    [found] = survey_url(f"{tmp_path}/to/orders").complete
    assert set(found.identity or {}) == {"type", "database"}


_TWO = ((1, "node-1"), (2, "node-2"))


def _at(context: FakeContext[BackupParams], token: int, node: str) -> FakeContext[BackupParams]:
    context.token, context.node = token, node
    (context.scratch / "pgpass").unlink(missing_ok=True)
    return context
