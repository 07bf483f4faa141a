"""A real server's log, archived by real attempts that are killed, frozen and taken over, and restored to moments."""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg2")

from examples.demo.postgres import Server, postgres_server
from node.cli.local import wait_for
from tasks.backup.encryption import BackupKeys, Identities, NoIdentity, new_identity
from tasks.backup.kind import Backup
from tasks.backup.manifest import newest_backup, survey_url
from tasks.backup.params import BackupParams
from tasks.backup.verify import verify
from tasks.places.place import Place
from tasks.wal import receiver
from tasks.wal.archive import archived_systems, read_archive
from tasks.wal.counted import Counted
from tasks.wal.kind import LogLost, OtherSystem, UnboundedSlot, Wal
from tasks.wal.params import WalParams, slot_of
from tasks.wal.restore import Moment, NotRestorable, restore_server
from testkit.execution.one_attempt import start_attempt
from testkit.fake_context import FakeContext
from testkit.servers.postgres_servers import recovered, standby

pytestmark = pytest.mark.integration

PASSWORD = r"it's: a \ password"
WAIT_S = 60.0


@contextmanager
def bounded_server(programs: Path | None = None, *initdb: str) -> Iterator[Server]:
    with postgres_server(PASSWORD, programs, initdb) as running:
        running.sql("postgres", "ALTER SYSTEM SET max_slot_wal_keep_size = '1GB'")
        running.sql("postgres", "SELECT pg_reload_conf()")
        running.sql("postgres", "CREATE TABLE ledger (n int PRIMARY KEY, text text)")
        yield running


@pytest.fixture
def server() -> Iterator[Server]:
    with bounded_server() as running:
        yield running


class Archiving:
    """The archive of a test: its attempts, and what counts of it."""

    def __init__(self, folder: Path, *servers: Server, task: str = "log", **params: Any) -> None:
        self.folder = folder
        self.task = task
        self.url = f"{folder}/to/{task}"
        named = [{"url": server.url("postgres"), "password": {"secret": "pg"}} for server in servers]
        self.params: dict[str, Any] = {"servers": named, "destination": f"{folder}/to", "piece_s": 0.2} | params

    @property
    def slot(self) -> str:
        return slot_of(WalParams.model_validate(self.params), self.task)

    def context(self, token: int) -> FakeContext[WalParams]:
        scratch = self.folder / f"scratch-{token}"
        scratch.mkdir()
        return FakeContext(
            WalParams.model_validate(self.params), scratch, task=self.task, token=token, secrets={"pg": PASSWORD}
        )

    @contextmanager
    def running(self, token: int = 1) -> Iterator[FakeContext[WalParams]]:
        """An attempt in a thread, which is cancelled at the end of the block."""
        ctx = self.context(token)
        results: list[Any] = []

        def attempt() -> None:
            try:
                results.append(Wal().run(ctx))
            except Exception as error:
                results.append(error)

        thread = threading.Thread(target=attempt)
        thread.start()
        try:
            yield ctx
        finally:
            ctx.cancelled = True
            thread.join()
        assert isinstance(results[0], dict), results

    def process(self, token: int) -> Any:
        """An attempt in a process of its own."""
        scratch = self.folder / f"scratch-{token}"
        scratch.mkdir()
        given: dict[str, Any] = {"kind": "tasks.wal.kind:Wal", "params": self.params, "run_id": "log~1"}
        given |= {"task": self.task, "token": token, "scratch": str(scratch), "secrets": {"pg": PASSWORD}}
        with (self.folder / f"attempt-{token}.err").open("wb") as errors:
            return start_attempt(self.folder / f"attempt-{token}.json", given, {}, errors)

    def counted(self) -> Counted:
        place = Place(self.url)
        systems = archived_systems(place)
        return read_archive(place.inside(systems[0])) if systems else Counted()

    def has(self, lsn: int) -> bool:
        position = self.counted().position
        return position is not None and position.lsn >= lsn

    def catch_up(self, server: Server) -> None:
        """Wait until what the server has committed is archived."""
        lsn = int(server.sql("postgres", "SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn"))
        wait_for(f"the log up to {lsn:X}", lambda: self.has(lsn), WAIT_S)


def back_up(server: Server, folder: Path, token: int = 1, **source: Any) -> str:
    params = {
        "source": {"type": "postgres_physical", "url": server.url("postgres"), "password": {"secret": "pg"}} | source,
        "destination": f"{folder}/to",
    }
    scratch = folder / f"backup-{token}"
    scratch.mkdir()
    ctx = FakeContext(BackupParams.model_validate(params), scratch, task="base", run_id=f"base~{token}", token=token)
    ctx.secrets = {"pg": PASSWORD}
    return str(Backup().run(ctx)["url"])


def add(server: Server, first: int, last: int) -> None:
    server.sql(
        "postgres", f"INSERT INTO ledger SELECT n, repeat(md5(n::text), 20) FROM generate_series({first}, {last}) n"
    )


def rows(server: Server) -> str:
    return server.sql("postgres", "SELECT count(*), md5(string_agg(l::text, '|' ORDER BY n)) FROM ledger l")


def restored(archiving: Archiving, server: Server, keys: BackupKeys | None = None, **moment: Any) -> str:
    """The rows of the server that is restored to a moment."""
    found = survey_url(f"{archiving.folder}/to/base").complete

    def restore(target: Path) -> None:
        restore_server(found, target, Moment(**moment), archiving.url, keys=keys)

    with recovered(server, restore) as again:
        assert not list((again.folder / "data").glob("rota_wal*")), "the server has removed what it recovered by"
        add(again, 1_000_000, 1_000_001)  # it takes writes
        again.sql("postgres", "DELETE FROM ledger WHERE n >= 1000000")
        return rows(again)


def test_a_server_is_restored_to_moments(server: Server, tmp_path: Path) -> None:
    archiving = Archiving(tmp_path, server)
    with archiving.running():
        wait_for("a claim", lambda: archiving.counted().holder, WAIT_S)
        url = back_up(server, tmp_path)
        assert verify(url).ok
        wal = newest_backup(url).wal
        assert wal is not None and wal.included and wal.start < wal.end
        add(server, 1, 20_000)  # more than a segment
        first = rows(server)
        lsn = int(server.sql("postgres", "SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn"))
        add(server, 20_001, 20_100)
        at = datetime.fromisoformat(server.sql("postgres", "SELECT clock_timestamp()")).astimezone(UTC)
        second = rows(server)
        server.sql("postgres", "DELETE FROM ledger WHERE n > 100")
        third = rows(server)
        archiving.catch_up(server)
    counted = archiving.counted()
    assert counted.segments and not counted.gaps
    assert restored(archiving, server, lsn=lsn) == first
    assert restored(archiving, server, time=at) == second
    assert restored(archiving, server) == third
    with pytest.raises(NotRestorable, match="was finished after it"):
        restored(archiving, server, time=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(NotRestorable, match="the archive lacks"):
        restored(archiving, server, lsn=lsn << 8)


@pytest.mark.more
def test_encrypted_log_and_backup_are_restored_with_the_identity(server: Server, tmp_path: Path) -> None:
    public, private = new_identity(None)
    encryption = {"recipients": [public]}
    archiving = Archiving(tmp_path, server, encryption=encryption)
    with archiving.running():
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        back_up(server, tmp_path)
        add(server, 1, 20_000)
        archiving.catch_up(server)
    with archiving.running(2):
        add(server, 20_001, 20_100)
        archiving.catch_up(server)
    with pytest.raises(NoIdentity):
        restored(archiving, server)
    keys = BackupKeys(Identities.of_text(private, "test"))
    assert restored(archiving, server, keys) == rows(server)


def test_a_backup_without_log_needs_the_archive(server: Server, tmp_path: Path) -> None:
    archiving = Archiving(tmp_path, server)
    with archiving.running():
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        add(server, 1, 100)
        url = back_up(server, tmp_path, wal="archived")
        archiving.catch_up(server)
    wal = newest_backup(url).wal
    assert wal is not None and not wal.included
    assert not list((tmp_path / "to" / "base").glob("*/pg_wal"))
    assert restored(archiving, server) == rows(server)


@pytest.mark.more
def test_a_frozen_attempt_that_wakes_up_spoils_nothing(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    archiving = Archiving(tmp_path, server)
    first = archiving.process(1)
    try:
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        back_up(server, tmp_path)
        add(server, 1, 1000)
        archiving.catch_up(server)
        os.kill(first.pid, signal.SIGSTOP)
        add(server, 1001, 60_000)  # more than the connection of the frozen attempt takes
        with archiving.running(2):
            archiving.catch_up(server)
            assert "is active for PID" not in caplog.text
            add(server, 60_001, 61_000)
            os.kill(first.pid, signal.SIGCONT)
            assert first.wait(WAIT_S) == 1
            archiving.catch_up(server)
    finally:
        first.kill()
        first.wait()
    assert "Fenced: " in (tmp_path / "attempt-1.err").read_text()
    assert "is claimed by an attempt with the token 2" in (tmp_path / "attempt-1.err").read_text()
    assert archiving.counted().holder == 2
    assert restored(archiving, server) == rows(server)


def test_an_attempt_that_is_killed_leaves_the_server_its_log(server: Server, tmp_path: Path) -> None:
    archiving = Archiving(tmp_path, server, piece_s=3600)
    first = archiving.process(1)
    wait_for("a claim", lambda: archiving.counted().holder, WAIT_S)
    streams = "SELECT count(*) FROM pg_stat_replication"
    wait_for("a stream", lambda: server.sql("postgres", streams) == "1", WAIT_S)
    back_up(server, tmp_path)
    add(server, 1, 100)
    first.kill()
    first.wait()
    add(server, 101, 200)
    archiving.params["piece_s"] = 0.2
    with archiving.running(2):
        archiving.catch_up(server)
    assert restored(archiving, server) == rows(server)
    kept = server.sql("postgres", "SELECT pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots")
    assert int(kept) < 16 << 20


@pytest.mark.more
def test_a_switch_over_is_followed_to_the_new_timeline(tmp_path: Path) -> None:
    with ExitStack() as primary:
        first = primary.enter_context(bounded_server())
        with standby(first) as other:
            archiving = Archiving(tmp_path, first, other)
            with archiving.running():
                wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
                back_up(first, tmp_path)
                add(first, 1, 500)
                archiving.catch_up(first)
                lsn = first.sql("postgres", "SELECT pg_current_wal_flush_lsn()")
                replayed = f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'"
                wait_for("the standby", lambda: other.sql("postgres", replayed) == "t", WAIT_S)
                primary.close()
                other.sql("postgres", "SELECT pg_promote(true, 60)")
                add(other, 501, 1000)
                archiving.catch_up(other)
            counted = archiving.counted()
            assert counted.position is not None and counted.position.timeline == 2 and 2 in counted.histories
            assert restored(archiving, other) == rows(other)


@pytest.mark.more
def test_log_from_before_the_oldest_backup_is_removed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "HOUSEKEEPING_S", 1.0)
    monkeypatch.setattr(receiver, "_SETTLED_S", 0.0)
    archiving = Archiving(tmp_path, server, backups="base")
    with archiving.running():
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        first = back_up(server, tmp_path)
        for number in range(4):
            add(server, number * 100, number * 100 + 50)
            server.sql("postgres", "SELECT pg_switch_wal()")
            archiving.catch_up(server)
        before = archiving.counted()
        back_up(server, tmp_path, token=2)
        shutil.rmtree(first)
        wait_for("a removal", lambda: len(archiving.counted().segments) < len(before.segments), WAIT_S)
        add(server, 1000, 1100)
        archiving.catch_up(server)
    assert restored(archiving, server) == rows(server)


@pytest.mark.more
def test_a_slot_that_was_lost_is_a_gap_that_is_told(server: Server, tmp_path: Path) -> None:
    archiving = Archiving(tmp_path, server)
    with archiving.running():
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        back_up(server, tmp_path)
        add(server, 1000, 1010)
        known = rows(server)
        before = datetime.fromisoformat(server.sql("postgres", "SELECT clock_timestamp()")).astimezone(UTC)
        add(server, 1011, 1020)
        archiving.catch_up(server)
    server.sql("postgres", f"SELECT pg_drop_replication_slot('{archiving.slot}')")
    for _ in range(3):
        server.sql("postgres", "SELECT pg_switch_wal()")
        server.sql("postgres", "CHECKPOINT")
    with pytest.raises(LogLost, match="Make a full physical backup now"):
        Wal().run(archiving.context(2))
    assert len(archiving.counted().gaps) == 1
    with archiving.running(3):
        with pytest.raises(NotRestorable, match="the archive lacks"):
            restored(archiving, server)
        assert restored(archiving, server, time=before) == known
        back_up(server, tmp_path, token=2)
        add(server, 1, 100)
        archiving.catch_up(server)
    assert restored(archiving, server) == rows(server)


def test_a_server_that_is_another_system_is_refused(server: Server, tmp_path: Path) -> None:
    archiving = Archiving(tmp_path, server)
    with archiving.running():
        wait_for("a claim", lambda: archiving.counted().holder, WAIT_S)
    with postgres_server(PASSWORD) as other:
        elsewhere = Archiving(tmp_path, other, accept_unbounded_slot=True)
        with pytest.raises(OtherSystem, match="holds the log of"):
            Wal().run(elsewhere.context(2))


def test_a_slot_without_a_bound_is_refused_unless_accepted(tmp_path: Path) -> None:
    with postgres_server(PASSWORD) as unbounded:
        with pytest.raises(UnboundedSlot, match="max_slot_wal_keep_size"):
            Wal().run(Archiving(tmp_path, unbounded).context(1))
        assert unbounded.sql("postgres", "SELECT count(*) FROM pg_replication_slots") == "0"
