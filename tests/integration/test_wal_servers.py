"""Servers of other kinds and states: sizes of segments, an older version, too few senders, slots that are lost."""

import itertools
import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

pytest.importorskip("psycopg2")

from examples.demo.postgres import PostgresFailed, Server
from node.cli.local import wait_for
from tasks.wal import kind
from tasks.wal.kind import LogLost, Wal
from tasks.wal.server import WalServerAway
from testkit.servers.postgres_servers import standby
from tests.integration.test_wal import (
    WAIT_S,
    Archiving,
    add,
    back_up,
    bounded_server,
    restored,
    rows,
    server,
)
from tests.integration.test_wal_faults import restart, streaming

pytestmark = pytest.mark.integration

__all__ = ["server"]

OLDER = Path("/usr/lib/postgresql/15/bin")


@pytest.mark.more
@pytest.mark.parametrize(("size_mib", "pieces"), [(1, 12), (64, 1)])
def test_segments_of_another_size_are_archived_and_restored(tmp_path: Path, size_mib: int, pieces: int) -> None:
    with bounded_server(None, f"--wal-segsize={size_mib}") as running:
        archiving = Archiving(tmp_path, running)
        with archiving.running(1):
            wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
            back_up(running, tmp_path)
            add(running, 1, 20_000)
            archiving.catch_up(running)
            running.sql("postgres", "SELECT pg_switch_wal()")
            archiving.catch_up(running)
        with archiving.running(2):
            add(running, 20_001, 20_100)
            archiving.catch_up(running)
        counted = archiving.counted()
        assert counted.segment_bytes == size_mib << 20
        assert len(counted.segments) >= pieces
        assert restored(archiving, running) == rows(running)


@pytest.mark.more
def test_an_older_server_and_its_standby_are_archived(tmp_path: Path) -> None:
    if not (OLDER / "initdb").exists():
        pytest.skip(f"PostgreSQL 15 is not at {OLDER}")
    with ExitStack() as primary:
        first = primary.enter_context(bounded_server(OLDER))
        with standby(first) as other:
            archiving = Archiving(tmp_path, first, other)
            with archiving.running():
                wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
                back_up(first, tmp_path)
                add(first, 1, 20_000)
                archiving.catch_up(first)
                lsn = int(first.sql("postgres", "SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn"))
                replayed = "SELECT pg_last_wal_replay_lsn() - '0/0'::pg_lsn"
                wait_for("the standby", lambda: int(other.sql("postgres", replayed)) >= lsn, WAIT_S)
                primary.close()
                other.sql("postgres", "SELECT pg_promote(true, 60)")
                add(other, 20_001, 20_100)
                archiving.catch_up(other)
            assert restored(archiving, other) == rows(other)


@pytest.mark.more
@pytest.mark.parametrize("setting", ["max_wal_senders", "max_replication_slots"])
def test_a_server_with_too_few_senders_or_slots_is_waited_for(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, setting: str
) -> None:
    server.sql("postgres", f"ALTER SYSTEM SET {setting} = 1")
    restart(server)
    archiving = Archiving(tmp_path, server)
    with archiving.running():
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
    server.sql("postgres", f"SELECT pg_drop_replication_slot('{archiving.slot}')")
    with ExitStack() as taken, streaming(server, "another") as other:
        taken.callback(other.close)
        with archiving.running(2):
            said = "max_wal_senders" if setting == "max_wal_senders" else "all replication slots are in use"
            wait_for("the refusal", lambda: said in caplog.text, WAIT_S)
            other.close()
            server.sql("postgres", "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_replication")
            server.sql("postgres", "SELECT pg_drop_replication_slot('another')")
            add(server, 1, 10)
            archiving.catch_up(server)


def test_two_tasks_of_one_server_have_a_slot_and_an_archive_each(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "_AWAY_S", 2.0)
    first, second = Archiving(tmp_path, server), Archiving(tmp_path, server, task="log-2")
    assert first.slot != second.slot
    with first.running(1):
        wait_for("archived log", lambda: first.counted().position, WAIT_S)
        second.params["slot"] = first.slot
        with pytest.raises(WalServerAway, match=r"active for rota-wal .*give one of them another `slot`"):
            Wal().run(second.context(7))
        del second.params["slot"]
        with second.running(8):
            add(server, 1, 10)
            first.catch_up(server)
            second.catch_up(server)
    assert server.sql("postgres", "SELECT count(*) FROM pg_replication_slots") == "2"


@pytest.mark.more
def test_a_slot_that_the_server_gave_up_while_the_place_was_away_is_a_gap_that_is_told(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.sql("postgres", "ALTER SYSTEM SET max_slot_wal_keep_size = '32MB'")
    server.sql("postgres", "ALTER SYSTEM SET max_wal_size = '64MB'")
    server.sql("postgres", "SELECT pg_reload_conf()")
    archiving = Archiving(tmp_path, server)
    with archiving.running(1):
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        back_up(server, tmp_path)
    status = f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{archiving.slot}'"

    numbers = itertools.count(1000)

    def given_up() -> bool:
        server.sql("postgres", "SELECT pg_switch_wal()")
        add(server, number := next(numbers), number)
        server.sql("postgres", "CHECKPOINT")
        return server.sql("postgres", status) == "lost"

    wait_for("a slot that is given up", given_up, WAIT_S)
    with pytest.raises(LogLost, match="Make a full physical backup now"):
        Wal().run(archiving.context(2))
    assert "gave the slot" in caplog.text
    with archiving.running(3):
        back_up(server, tmp_path, token=2)
        add(server, 1, 100)
        archiving.catch_up(server)
    assert len(archiving.counted().gaps) == 1
    assert restored(archiving, server) == rows(server)


@pytest.mark.more
@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_a_server_that_restarts_amid_a_piece_leaves_no_gap(server: Server, tmp_path: Path, how: str) -> None:
    archiving = Archiving(tmp_path, server, piece_s=0.2)
    with archiving.running():
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        back_up(server, tmp_path)
        for number in range(3):
            stop = threading.Event()
            writing = threading.Thread(target=_write, args=(server, number, stop.is_set))
            writing.start()
            before = archiving.counted().number
            wait_for("a piece", lambda: archiving.counted().number > before, WAIT_S)  # noqa: B023
            restart(server, how)
            stop.set()
            writing.join()
        archiving.catch_up(server)
    assert not archiving.counted().gaps
    assert restored(archiving, server) == rows(server)


def _write(server: Server, number: int, stopped: Callable[[], bool]) -> None:
    with suppress(PostgresFailed):  # it stops amid the writing
        for at in range(number * 10_000, number * 10_000 + 9_000):
            if stopped():
                return
            add(server, at, at)


@pytest.mark.more
def test_a_standby_is_the_only_source(tmp_path: Path) -> None:
    with bounded_server() as first, standby(first) as other:
        archiving = Archiving(tmp_path, other)
        with archiving.running(1):
            wait_for("a claim", lambda: archiving.counted().holder, WAIT_S)
            back_up(first, tmp_path)
            for number in range(3):
                add(first, number * 5_000, number * 5_000 + 4_000)
                archiving.catch_up(first)
        add(first, 50_000, 60_000)
        with archiving.running(2):
            archiving.catch_up(first)
        assert not archiving.counted().gaps
        assert restored(archiving, first) == rows(first)
        kept = "SELECT pg_last_wal_receive_lsn() - restart_lsn FROM pg_replication_slots"
        assert int(other.sql("postgres", kept)) <= 16 << 20
