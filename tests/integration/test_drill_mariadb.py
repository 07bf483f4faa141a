"""Drills of MariaDB: a scratch server of the same version, all databases with accounts, and rows compared."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.backup.kind import Backup
from tasks.backup.manifest import NAME, read_manifest, write_manifest
from tasks.backup.params import BackupParams
from tasks.backup.proofs import read_proofs
from tasks.drill.kind import Drill, DrillFailed
from tasks.drill.params import DrillParams
from tasks.places.place import Place
from testkit.fake_context import FakeContext
from testkit.servers.mariadb_server import ROOT_PASSWORD, RunningMariadb, mariadb_server, why_no_mariadb

pytestmark = [
    pytest.mark.integration,
    pytest.mark.more,
    pytest.mark.skipif(bool(why_no_mariadb()), reason=why_no_mariadb()),
]

AWKWARD_SQL = (Path(__file__).parents[2] / "testkit/servers/awkward_mariadb.sql").read_text()
CHECKS = [
    {"sql": "SELECT COUNT(*) FROM line", "expect": 2000, "database": "shop"},
    {"sql": "SELECT COUNT(*) = 2000 FROM shop.line", "expect": True, "database": "shop"},
    {"sql": "SELECT id, v FROM line WHERE id < 3 ORDER BY id", "expect": "1|one\n2|two", "database": "shop"},
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningMariadb]:
    with mariadb_server() as running:
        running.sql("CREATE DATABASE shop; CREATE TABLE shop.line (id int PRIMARY KEY, v text)")
        running.sql("INSERT INTO line SELECT seq, ELT(LEAST(seq, 3), 'one', 'two', 'more') FROM seq_1_to_2000", "shop")
        running.sql("CREATE USER reader@localhost IDENTIFIED BY 'x-x-x'; GRANT SELECT ON shop.* TO reader@localhost")
        running.sql(AWKWARD_SQL)
        yield running


def back_up(server: RunningMariadb, tmp_path: Path, token: int = 1, **more: Any) -> Path:
    source = {"type": "mariadb", "url": server.url(), "password": {"secret": "maria"}} | more
    params = BackupParams.model_validate({"source": source, "destination": str(tmp_path / "to")})
    scratch = tmp_path / f"scratch-{token}"
    scratch.mkdir()
    made = FakeContext(params, scratch, task="db", token=token, secrets={"maria": ROOT_PASSWORD})
    return Path(Backup().run(made)["url"])


def drilled(tmp_path: Path, token: int = 50, **params: Any) -> dict[str, Any]:
    scratch = tmp_path / f"drill-{token}"
    scratch.mkdir()
    given = DrillParams.model_validate({"backups": {"url": str(tmp_path / "to" / "db")}} | params)
    try:
        return Drill().run(FakeContext(given, scratch, task="drill", token=token))
    finally:
        shutil.rmtree(scratch)


@pytest.mark.parametrize("one_moment", [False, True])
def test_all_databases_are_proven(server: RunningMariadb, tmp_path: Path, one_moment: bool) -> None:
    back_up(server, tmp_path, one_moment=one_moment)
    result = drilled(tmp_path, checks=CHECKS)
    assert result["checks"] == 3
    assert any("compared with the dump" in line for line in result["how"]), result["how"]
    assert result["rows"] > 2000


def test_what_a_dump_lacks_and_what_a_check_may_not_do_is_named(server: RunningMariadb, tmp_path: Path) -> None:
    good = back_up(server, tmp_path, databases=["shop"])
    write = {"sql": "DELETE FROM line", "expect": "", "database": "shop"}
    with pytest.raises(DrillFailed, match=r"the check DELETE FROM line fails: .*(denied|READ ONLY)"):
        drilled(tmp_path, checks=[write])
    server.sql("CREATE TABLE shop.gone AS SELECT 1 AS id; DELETE FROM shop.line WHERE id = 7")
    with_table = back_up(server, tmp_path, 2, databases=["shop"])
    server.sql("DROP TABLE shop.gone; INSERT INTO shop.line VALUES (7, 'more')")
    recorded, said = (read_manifest(Place(str(folder))) for folder in (good, with_table))
    assert recorded is not None
    assert said is not None
    # The dump of another moment, with checksums that are right, and the records of this one.
    name = good.rename(good.with_name("aside")).joinpath(recorded.files[0].name)
    (name.parent / NAME).unlink()
    shutil.copy(with_table / name.name, name)
    files = [said.files[0].model_copy(update={"tables": recorded.files[0].tables})]
    shutil.rmtree(with_table)
    name.parent.rename(good)
    write_manifest(Place(str(good)), recorded.model_copy(update={"files": tuple(files)}))
    with pytest.raises(
        DrillFailed, match=r"shop\.line has 1999 rows; the dump had 2000; shop\.gone was not in the dump"
    ):
        drilled(tmp_path, 51)
    assert [proof.result for proof in read_proofs(Place(str(tmp_path / "to" / "db"))).proofs] == ["failed", "failed"]
