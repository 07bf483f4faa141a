"""Whole servers are backed up as their files, and restored as servers that run."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyrage
import pytest

pytest.importorskip("psycopg2")

from examples.demo.postgres import USER, Server, postgres_server
from node.cli.local import wait_for
from tasks.backup.archive import Damaged, TargetExists
from tasks.backup.chain import BrokenChain
from tasks.backup.encryption import BackupKeys, Identities, NoIdentity
from tasks.backup.kind import Backup
from tasks.backup.manifest import Manifest, newest_backup
from tasks.backup.params import BackupParams
from tasks.backup.restore import restore_backup
from tasks.backup.sources import data_folder
from tasks.backup.sources.data_folder import NoTablespacePath
from tasks.backup.sources.postgres_tools import installed_tools
from tasks.backup.verify import verify
from tasks.postgres.replication import PostgresAway, PostgresRefused
from testkit.fake_context import FakeContext
from testkit.servers.postgres_servers import recovered

pytestmark = pytest.mark.integration

PASSWORD = r"it's: a \ password"

KEY = str(pyrage.x25519.Identity.generate())
MEMBERS = str(pyrage.x25519.Identity.generate())


@pytest.fixture
def server() -> Iterator[Server]:
    with postgres_server(PASSWORD) as running:
        yield running


def context(url: str, folder: Path, token: int = 1, encryption: Any = None, **more: Any) -> FakeContext[BackupParams]:
    source = {"type": "postgres_physical", "url": url, "password": {"secret": "pg"}} | more
    params = BackupParams.model_validate({"source": source, "destination": f"{folder}/to", "encryption": encryption})
    scratch = folder / f"scratch-{token}"
    scratch.mkdir(exist_ok=True)
    return FakeContext(params, scratch, task="base", token=token, secrets={"pg": PASSWORD, "members": MEMBERS})


def tablespace(server: Server, name: str) -> None:
    place = server.folder / name
    place.mkdir()
    if os.getuid() == 0:
        shutil.chown(place, "nobody")
    server.sql("postgres", f"CREATE TABLESPACE {name} LOCATION '{place}'")


@pytest.mark.more
def test_a_server_is_restored_with_its_tablespaces(server: Server, tmp_path: Path) -> None:
    for name in ("history", "fast"):
        tablespace(server, name)
    rows = "SELECT n, repeat(md5(n::text), 4) AS text FROM generate_series(1, 5000) n"
    server.sql("postgres", f"CREATE TABLE a AS {rows}; CREATE TABLE b TABLESPACE history AS {rows}")
    server.sql("postgres", f"CREATE TABLE c TABLESPACE fast AS {rows} WHERE n < 100")
    ctx = context(server.url("postgres"), tmp_path)
    url = Backup().run(ctx)["url"]
    assert ctx.shown[-1][1] is not None, "the server says how large the backup will be"
    manifest = newest_backup(url)
    assert manifest.wal is not None
    assert manifest.wal.included
    spaces = {entry.tablespace.name: entry.tablespace for entry in manifest.files if entry.tablespace}
    assert {name: space.path for name, space in spaces.items()} == {
        "history": f"{server.folder}/history",
        "fast": f"{server.folder}/fast",
    }
    assert verify(url).ok
    new = {"history": str(tmp_path / "new" / "history"), "fast": str(tmp_path / "new" / "fast")}
    with pytest.raises(NoTablespacePath, match=r"add --tablespace fast=PATH$"):
        restore_backup(url, str(tmp_path / "data"), tablespaces={"history": new["history"]})
    with pytest.raises(NoTablespacePath, match=r"no tablespace slow \(it has: fast, history\)"):
        restore_backup(url, str(tmp_path / "data"), tablespaces=new | {"slow": "/x"})
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    with pytest.raises(TargetExists, match="another path for the tablespace"):
        restore_backup(url, str(tmp_path / "data"), tablespaces=new | {"fast": str(full)})
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "data").exists()

    place = Path(f"{server.folder}-new")
    place.mkdir()
    new = {name: f"{place}/{name}" for name in new}
    shutil.rmtree(server.folder / "fast")  # what runs from the restored files does not read the old ones

    def restore(target: Path) -> None:
        assert restore_backup(url, str(target), tablespaces=new).remarks == ()
        if os.getuid() == 0:
            subprocess.run(["chown", "-R", "nobody:nogroup", str(place)], check=True)

    try:
        with recovered(server, restore) as again:
            sums = "SELECT count(*), md5(string_agg(text, '|' ORDER BY n)) FROM "
            assert again.sql("postgres", f"{sums} a") == server.sql("postgres", f"{sums} a")
            assert again.sql("postgres", f"{sums} b") == server.sql("postgres", f"{sums} b")
            assert again.sql("postgres", "SELECT count(*) FROM c") == "99"
            where = "SELECT pg_tablespace_location(oid) FROM pg_tablespace WHERE spcname = 'fast'"
            assert again.sql("postgres", where) == new["fast"]
    finally:
        shutil.rmtree(place)


class Chain:
    """Backups of a server, one after another, under load, and what its tables held at each."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.sums: list[str] = []
        self.results: list[dict[str, Any]] = []

    def back_up(self, **more: Any) -> Manifest:
        """Make the next backup."""
        token = len(self.results) + 1
        params = {"full_every": 7} | more
        ctx = context(self.server.url("postgres"), self.folder, token, **params)
        ctx.run_id = f"base~{token}"
        self.results.append(Backup().run(ctx))
        return newest_backup(self.results[-1]["url"])


SUMS = (
    "SELECT count(*), md5(string_agg(l::text, '|' ORDER BY n)), (SELECT count(*) FROM pgbench_accounts) FROM ledger l"
)


@contextmanager
def load(server: Server) -> Iterator[None]:
    """Run pgbench at full speed during the block."""
    bench = [str(server.programs / "pgbench"), "-h", str(server.folder), "-U", USER, "postgres"]
    environ = {"PGPASSWORD": server.password, "PATH": ""}
    subprocess.run([*bench, "-i", "-q"], env=environ, check=True, capture_output=True)
    quiet = subprocess.DEVNULL
    with subprocess.Popen([*bench, "-T", "600", "-c", "2"], env=environ, stdout=quiet, stderr=quiet) as running:
        try:
            yield
        finally:
            running.terminate()


def summarize(server: Server) -> None:
    server.sql("postgres", "ALTER SYSTEM SET summarize_wal = on")
    server.sql("postgres", "SELECT pg_reload_conf()")


@pytest.mark.more
def test_a_chain_of_backups_under_load_is_restored_to_each(server: Server, tmp_path: Path) -> None:
    summarize(server)
    tablespace(server, "history")
    server.sql("postgres", "CREATE TABLE ledger (n int PRIMARY KEY, text text) TABLESPACE history")
    server.sql(
        "postgres", "CREATE TABLE big AS SELECT n, repeat(md5(n::text), 30) AS t FROM generate_series(1, 20000) n"
    )
    chain = Chain(server, tmp_path)
    sums: list[str] = []
    made: list[Manifest] = []
    with load(server):
        for step in range(4):
            rows = f"SELECT n, md5(n::text) FROM generate_series({step * 1000 + 1}, {step * 1000 + 1000}) n"
            server.sql("postgres", f"INSERT INTO ledger {rows}; DELETE FROM ledger WHERE n % 7 = {step}")
            sums.append(server.sql("postgres", SUMS))
            made.append(chain.back_up())
    assert [len(each.parents) for each in made] == [0, 1, 2, 3]
    assert [parent.name for parent in made[3].parents] == [each.name for each in made[:3]]
    assert not any(each.remarks for each in made)
    assert max(each.size_bytes for each in made[1:]) < made[0].size_bytes
    assert verify(made[3].url).ok
    for step in (0, 3, 1):
        place = Path(f"{server.folder}-{step}")
        place.mkdir()

        def restore(target: Path, step: int = step, place: Path = place) -> None:
            spaces = {"history": f"{place}/history"}
            restored = restore_backup(made[step].url, str(target), tablespaces=spaces)
            assert len(restored.remarks) == (1 if step else 0), restored.remarks
            assert [each.name for each in target.parent.iterdir() if each.name.endswith(".partial")] == []
            if os.getuid() == 0:
                subprocess.run(["chown", "-R", "nobody:nogroup", str(place)], check=True)

        try:
            with recovered(server, restore) as again:
                assert again.sql("postgres", SUMS) == sums[step]
                assert again.sql("postgres", "SELECT count(*), sum(length(t)) FROM big") == "20000|19200000"
                balances = (
                    "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)"
                )
                assert again.sql("postgres", balances) in ({"t", ""} if step == 0 else {"t"})
        finally:
            shutil.rmtree(place)


def test_a_broken_chain_is_refused_by_name_and_the_next_backup_is_full(server: Server, tmp_path: Path) -> None:
    summarize(server)
    server.sql("postgres", "CREATE TABLE ledger AS SELECT 1 AS n")
    chain = Chain(server, tmp_path)
    made = [chain.back_up() for _ in range(3)]
    assert [len(each.parents) for each in made] == [0, 1, 2]
    manifest = Path(made[1].url) / "manifest.json"
    manifest.rename(tmp_path / "kept")
    with pytest.raises(BrokenChain, match=f"needs the backup {made[1].name}, which is not there"):
        restore_backup(made[2].url, str(tmp_path / "data"))
    assert not verify(made[2].url).ok
    assert restore_backup(made[0].url, str(tmp_path / "full")).remarks == ()
    full = chain.back_up()
    assert full.parents == ()
    assert made[1].name in full.remarks[0]
    (tmp_path / "kept").rename(manifest)
    assert verify(made[2].url).ok

    # Its manifest is spoilt.
    object_ = Path(full.url) / "backup_manifest.zst"
    content = bytearray(object_.read_bytes())
    content[len(content) // 2] ^= 1
    object_.write_bytes(content)
    again = chain.back_up()
    assert again.parents == ()
    assert f"after {full.url}, " in again.remarks[0]
    assert chain.back_up().parents[0].name == again.name


@pytest.mark.more
def test_rows_deleted_between_two_backups_are_not_counted_after_a_restore(server: Server, tmp_path: Path) -> None:
    summarize(server)
    server.sql("postgres", "ALTER SYSTEM SET autovacuum = off")
    server.sql("postgres", "SELECT pg_reload_conf()")
    server.sql("postgres", "CREATE TABLE v (n int PRIMARY KEY); INSERT INTO v SELECT generate_series(1, 100000)")
    server.sql("postgres", "VACUUM v")
    chain = Chain(server, tmp_path)
    chain.back_up()
    server.sql("postgres", "DELETE FROM v WHERE n % 2 = 0")
    last = chain.back_up()
    assert len(last.parents) == 1
    index_only = "SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM v"
    with recovered(server, lambda target: restore_backup(last.url, str(target))) as again:
        assert again.sql("postgres", index_only) == "50000"
        again.sql("postgres", "VACUUM v")
        assert again.sql("postgres", index_only) == "50000"


@pytest.mark.more
def test_what_the_server_lacks_makes_a_full_backup_that_says_so(server: Server, tmp_path: Path) -> None:
    chain = Chain(server, tmp_path)
    made = [chain.back_up() for _ in range(2)]
    assert [each.parents for each in made] == [(), ()]
    assert "`summarize_wal` is off" in made[1].remarks[0]
    summarize(server)
    assert len(chain.back_up().parents) == 1
    server.sql("postgres", "CREATE TABLE t AS SELECT generate_series(1, 10000) n")
    written = server.sql("postgres", "SELECT pg_current_wal_lsn()")
    server.sql("postgres", "CHECKPOINT")
    summarized = f"SELECT summarized_lsn >= '{written}' FROM pg_get_wal_summarizer_state()"
    wait_for("summaries of the log", lambda: server.sql("postgres", summarized) == "t", 60)
    for summary in (server.folder / "data" / "pg_wal" / "summaries").glob("*.summary"):
        summary.unlink()
    gone = chain.back_up()
    assert gone.parents == ()
    assert "summaries" in gone.remarks[0]
    assert len(chain.back_up().parents) == 1
    assert len(chain.back_up(full_every=2).parents) == 0


@pytest.mark.more
def test_members_continue_an_encrypted_chain_with_a_key_that_reads_no_content(server: Server, tmp_path: Path) -> None:
    summarize(server)
    server.sql("postgres", "CREATE TABLE ledger AS SELECT 1 AS n")
    chain = Chain(server, tmp_path)
    public = str(pyrage.x25519.Identity.from_str(KEY).to_public())
    alone = {"recipients": [public]}
    chain.back_up(encryption=alone)
    full = chain.back_up(encryption=alone | {"metadata": {"secret": "members"}})
    assert full.parents == ()
    server.sql("postgres", "INSERT INTO ledger VALUES (2)")
    last = chain.back_up(encryption=alone | {"metadata": {"secret": "members"}})
    assert [parent.name for parent in last.parents] == [full.name]
    members, owner = (BackupKeys(Identities.of_text(key, "a test")) for key in (MEMBERS, KEY))
    with pytest.raises(NoIdentity):
        restore_backup(last.url, str(tmp_path / "data"), keys=members)
    [remark] = restore_backup(last.url, str(tmp_path / "data"), keys=owner).remarks
    assert remark.startswith("the visibility maps were left out")
    assert restore_backup(full.url, str(tmp_path / "full"), keys=owner).remarks[0].startswith("this backup is full")


def test_a_restored_file_that_was_changed_is_found(server: Server, tmp_path: Path) -> None:
    url = Backup().run(context(server.url("postgres"), tmp_path))["url"]
    restore_backup(url, str(tmp_path / "good"))
    table = next((tmp_path / "good/base").rglob("1259"))
    content = bytearray(table.read_bytes())
    content[100] ^= 1
    table.write_bytes(content)
    with pytest.raises(Damaged, match="checksum mismatch"):
        data_folder._verified(tmp_path / "good", installed_tools(None, os.environ), 17)


def test_a_server_that_refuses_or_is_away_is_named(server: Server, tmp_path: Path) -> None:
    ctx = context(server.url("postgres"), tmp_path)
    ctx.secrets = {"pg": "not this"}
    with pytest.raises(PostgresRefused, match="password authentication failed"):
        Backup().run(ctx)
    server.sql("postgres", f"CREATE ROLE plain LOGIN PASSWORD '{PASSWORD.replace(chr(39), chr(39) * 2)}'")
    with pytest.raises(PostgresRefused, match="REPLICATION"):
        Backup().run(context(server.url("postgres").replace("rota@", "plain@"), tmp_path))
    with pytest.raises(PostgresAway, match="No such file"):
        Backup().run(context("postgresql://rota@/postgres?host=/nowhere", tmp_path))
    assert not (tmp_path / "to").exists()
