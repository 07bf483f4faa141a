"""To which moments the archived log leads: behind a fork, in a gap, in the future, from a chain, by another user."""

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

pytest.importorskip("psycopg2")

from examples.demo.postgres import Server
from node.cli.local import wait_for
from tasks.backup.manifest import newest_backup
from tasks.wal import writer
from tasks.wal.kind import LogLost, Wal
from tasks.wal.restore import NotRestorable
from testkit.servers.postgres_servers import recovered, standby
from tests.integration.test_wal import WAIT_S, Archiving, add, back_up, bounded_server, restored, rows, server

pytestmark = [pytest.mark.integration, pytest.mark.more]

__all__ = ["server"]


LSN = "SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn"


@pytest.mark.parametrize("lost_rows", [50, 30_000], ids=["the same segment", "later segments"])
def test_a_standby_that_was_behind_the_archive_forks_amid_it(tmp_path: Path, lost_rows: int) -> None:
    with ExitStack() as primary:
        first = primary.enter_context(bounded_server())
        with standby(first) as other:
            archiving = Archiving(tmp_path, first, other)
            with archiving.running():
                wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
                back_up(first, tmp_path)
                add(first, 1, 400)
                known, some = int(first.sql("postgres", LSN)), rows(first)
                add(first, 401, 500)
                archiving.catch_up(first)
                wait_for("the rows", lambda: rows(other) == rows(first), WAIT_S)
                other.sql("postgres", "ALTER SYSTEM SET primary_conninfo = ''")
                other.sql("postgres", "SELECT pg_reload_conf()")
                receiving = "SELECT count(*) FROM pg_stat_wal_receiver"
                wait_for("no stream to the standby", lambda: other.sql("postgres", receiving) == "0", WAIT_S)
                add(first, 501, 500 + lost_rows)
                archiving.catch_up(first)
                lost = rows(first)
                primary.close()
                other.sql("postgres", "SELECT pg_promote(true, 60)")
                add(other, 501, 40_000)
                archiving.catch_up(other)
            assert archiving.counted().position.timeline == 2  # type: ignore[union-attr]
            end = archiving.counted().position.lsn  # type: ignore[union-attr]
            assert restored(archiving, other) == restored(archiving, other, lsn=end) == rows(other)
            assert restored(archiving, other, lsn=known) == some
            assert restored(archiving, other, timeline=1) == lost


def test_times_with_an_offset_in_the_future_and_without_log(server: Server, tmp_path: Path) -> None:
    archiving = Archiving(tmp_path, server)
    with archiving.running():
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        back_up(server, tmp_path)
        add(server, 1, 100)
        at, expected = clock(server), rows(server)
        add(server, 101, 200)
        archiving.catch_up(server)
    for hours in (-11, 14):
        assert restored(archiving, server, time=at.astimezone(timezone(timedelta(hours=hours)))) == expected
    with pytest.raises(NotRestorable, match="is in the future: leave the time out"):
        restored(archiving, server, time=datetime.now(UTC) + timedelta(hours=1))
    # No transaction ended after this time: the server itself refuses, and the page about restores says why.
    with pytest.raises(AssertionError, match="recovery ended before configured recovery target was reached"):
        restored(archiving, server, time=datetime.now(UTC))


def test_an_lsn_in_a_gap_is_refused_by_its_range(server: Server, tmp_path: Path) -> None:
    archiving = Archiving(tmp_path, server)
    with archiving.running(1):
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        back_up(server, tmp_path)
        add(server, 1, 10)
        archiving.catch_up(server)
    known = rows(server)
    before = archiving.counted().position
    assert before is not None
    server.sql("postgres", f"SELECT pg_drop_replication_slot('{archiving.slot}')")
    for number in range(3):
        add(server, 100 + number, 100 + number)
        server.sql("postgres", "SELECT pg_switch_wal()")
        server.sql("postgres", "CHECKPOINT")
    with pytest.raises(LogLost):
        Wal().run(archiving.context(2))
    with archiving.running(3):
        archiving.catch_up(server)
    [gap] = archiving.counted().gaps
    for lsn in (gap.start + 8, (gap.start + gap.end) // 2, gap.end + 8):
        with pytest.raises(NotRestorable, match="the archive lacks"):
            restored(archiving, server, lsn=lsn)
    assert restored(archiving, server, lsn=gap.start) == known


@pytest.mark.parametrize("offset_h", [-1, 1], ids=["behind", "ahead"])
def test_the_clock_of_the_member_does_not_matter(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset_h: int
) -> None:
    class Off(datetime):
        @classmethod
        def now(cls, tz: object = None) -> "Off":
            return super().now(UTC) + timedelta(hours=offset_h)

    monkeypatch.setattr(writer, "datetime", Off)
    archiving = Archiving(tmp_path, server)
    with archiving.running(1):
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        back_up(server, tmp_path)
        add(server, 1, 100)
        at, expected = clock(server), rows(server)
        add(server, 101, 200)
        archiving.catch_up(server)
    monkeypatch.undo()
    with archiving.running(2):
        add(server, 201, 300)
        archiving.catch_up(server)
    assert restored(archiving, server, time=at) == expected
    assert restored(archiving, server) == rows(server)


def test_a_chain_of_incremental_backups_is_followed_by_the_log(server: Server, tmp_path: Path) -> None:
    server.sql("postgres", "ALTER SYSTEM SET summarize_wal = on")
    server.sql("postgres", "SELECT pg_reload_conf()")
    archiving = Archiving(tmp_path, server)
    chain = {"full_every": 7, "wal": "archived"}
    with archiving.running(1):
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        moments = []
        for number in range(3):
            add(server, number * 1000, number * 1000 + 500)
            url = back_up(server, tmp_path, token=number + 1, **chain)
            add(server, number * 1000 + 501, number * 1000 + 600)
            moments.append((clock(server), rows(server)))
            server.sql("postgres", f"DELETE FROM ledger WHERE n = {number * 1000 + 1}")
        archiving.catch_up(server)
    assert len(newest_backup(url).parents) == 2
    for at, expected in moments:
        assert restored(archiving, server, time=at) == expected
    assert restored(archiving, server) == rows(server)


RESTORE = """
import sys
from datetime import datetime
from pathlib import Path
from tasks.backup.manifest import survey_url
from tasks.wal.restore import Moment, restore_server
base, target, log = sys.argv[1:]
print(restore_server(survey_url(base).complete, Path(target), Moment(), log).target)
"""


def test_an_ordinary_user_restores(server: Server, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("the other tests restore as this user already")
    archiving = Archiving(tmp_path, server)
    with archiving.running(1):
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        back_up(server, tmp_path)
        add(server, 1, 20_000)
        archiving.catch_up(server)

    def restore(target: Path) -> None:
        shutil.copytree(tmp_path / "to", target.parent / "to")
        subprocess.run(["chown", "-R", "nobody:nogroup", str(target.parent)], check=True)
        # This Python may lie where `nobody` cannot look.
        may_look = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *may_look]
        places = [f"{target.parent}/to/base", str(target), f"{target.parent}/to/log"]
        done = subprocess.run(
            [*user, sys.executable, "-c", RESTORE, *places], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert (target / "rota_wal.json").stat().st_mode & 0o777 == 0o600
        assert (target / "rota_wal.json").owner() == "nobody"

    with recovered(server, restore) as again:
        assert rows(again) == rows(server)


def clock(server: Server) -> datetime:
    """The server's time."""
    return datetime.fromisoformat(server.sql("postgres", "SELECT clock_timestamp()")).astimezone(UTC)
