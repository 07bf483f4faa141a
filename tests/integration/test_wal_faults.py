"""What goes wrong around the archive of a server's log: servers, slots and places that are not as they should be."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg2")

import psycopg2
import psycopg2.extras

from examples.demo.postgres import Server, run_as_server
from node.cli.local import wait_for
from tasks.places.place import Place
from tasks.postgres.url import with_password
from tasks.postgres.wal_position import segment_name
from tasks.wal import kind
from tasks.wal.archive import ArchiveAway
from tasks.wal.kind import LogLost, Wal
from tasks.wal.plan import OtherHistory
from tasks.wal.restore import NotRestorable
from tasks.wal.server import WalServerAway, WalServerRefused
from testkit.faults import small_disk
from testkit.servers.postgres_servers import standby
from tests.integration.test_wal import (
    PASSWORD,
    WAIT_S,
    Archiving,
    add,
    back_up,
    bounded_server,
    restored,
    rows,
    server,
)

pytestmark = pytest.mark.integration

__all__ = ["server"]


def test_a_role_that_cannot_log_in_or_replicate_is_an_error_at_once(server: Server, tmp_path: Path) -> None:
    archiving = Archiving(tmp_path, server)
    wrong = archiving.context(1)
    wrong.secrets = {"pg": "not this"}
    with pytest.raises(WalServerRefused, match="password authentication failed"):
        Wal().run(wrong)
    server.sql("postgres", "CREATE ROLE plain LOGIN PASSWORD 'plain'")
    archiving.params["servers"][0]["url"] = server.url("postgres").replace("rota@", "plain@")
    plain = archiving.context(2)
    plain.secrets = {"pg": "plain"}
    with pytest.raises(WalServerRefused, match="REPLICATION"):
        Wal().run(plain)


def test_a_logical_slot_of_that_name_is_left_alone(server: Server, tmp_path: Path) -> None:
    server.sql("postgres", "ALTER SYSTEM SET wal_level = 'logical'")
    restart(server)
    archiving = Archiving(tmp_path, server)
    server.sql("postgres", f"SELECT pg_create_logical_replication_slot('{archiving.slot}', 'pgoutput')")
    with pytest.raises(WalServerRefused, match="has a logical replication slot named"):
        Wal().run(archiving.context(1))


def test_a_slot_that_another_program_streams_from_ends_the_attempt(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "_AWAY_S", 3.0)
    archiving = Archiving(tmp_path, server)
    with streaming(server, archiving.slot):
        threads = threading.active_count()
        with pytest.raises(WalServerAway, match=r"is active for .*give one of them another `slot`"):
            Wal().run(archiving.context(1))
        assert threading.active_count() == threads


def test_a_place_that_cannot_be_written_ends_the_attempt(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "_AWAY_S", 3.0)
    monkeypatch.setattr("tasks.wal.receiver.RETRY_S", 0.5)
    archiving = Archiving(tmp_path, server)
    with archiving.running(1):
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
    add(server, 1, 100)

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Place, "writing", full)
    with pytest.raises(ArchiveAway, match="No space left on device"):
        Wal().run(archiving.context(2))


@pytest.mark.more
def test_a_full_disk_of_the_place_is_named_and_goes_on_once_there_is_room(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if (why := small_disk.why_not()) is not None:
        pytest.skip(why)
    archiving = Archiving(tmp_path, server)
    with ExitStack() as disk:
        small = small_disk.SmallDisk(tmp_path / "to")
        disk.callback(small.close)
        with archiving.running():
            wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
            back_up(server, tmp_path)
            ballast = small.folder / "ballast"
            with ballast.open("wb") as file, suppress(OSError):
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
            with ballast.open("ab") as file:
                file.truncate(ballast.stat().st_size - (3 << 20))
            for number in range(10):
                add_random(server, number * 1000, number * 1000 + 900)
            wait_for("a full disk", lambda: "No space left on device" in caplog.text, WAIT_S)
            ballast.unlink()
            archiving.catch_up(server)
        assert not archiving.counted().gaps
        assert restored(archiving, server) == rows(server)


@pytest.mark.more
def test_a_slow_place_does_not_end_the_stream(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tasks.wal.receiver.FEEDBACK_S", 0.5)
    server.sql("postgres", "ALTER SYSTEM SET wal_sender_timeout = '2s'")
    server.sql("postgres", "SELECT pg_reload_conf()")
    archiving = Archiving(tmp_path, server)
    with archiving.running():
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        writing = Place.writing

        stored: list[str] = []

        def slow(place: Place, name: str) -> Any:
            time.sleep(3)  # longer than the server waits for feedback
            stored.append(name)
            return writing(place, name)

        monkeypatch.setattr(Place, "writing", slow)
        for first in range(1, 80_000, 20_000):
            add(server, first, first + 19_999)
        wait_for("slow files", lambda: len(stored) >= 4, WAIT_S)
        monkeypatch.undo()
        archiving.catch_up(server)
    assert "connecting again" not in caplog.text


def test_a_place_that_hangs_does_not_keep_the_server_from_stopping(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.wal.receiver.STORE_MAX_S", 1.0)
    archiving = Archiving(tmp_path, server)
    with archiving.running():
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        answers, writing = threading.Event(), Place.writing

        def hang(place: Place, name: str) -> Any:
            answers.wait(WAIT_S)
            return writing(place, name)

        monkeypatch.setattr(Place, "writing", hang)
        try:
            add(server, 1, 100)
            restart(server)
            assert server.sql("postgres", "SELECT count(*) FROM pg_stat_replication") == "0"
        finally:
            answers.set()
        archiving.catch_up(server)
    assert not archiving.counted().gaps


@pytest.mark.more
def test_of_two_primaries_the_one_on_the_newest_timeline_counts(tmp_path: Path) -> None:
    with bounded_server() as first, standby(first) as other:
        archiving = Archiving(tmp_path, first, other)
        with archiving.running(1):
            wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
            back_up(first, tmp_path)
            add(first, 1, 500)
            archiving.catch_up(first)
        wait_for("the rows", lambda: rows(other) == rows(first), WAIT_S)
        other.sql("postgres", "SELECT pg_promote(true, 60)")
        add(other, 501, 1000)
        add(first, 501, 510)
        with archiving.running(2):
            archiving.catch_up(other)
        assert restored(archiving, other) == rows(other)


@pytest.mark.more
def test_a_promotion_beside_a_living_primary_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tasks.wal.others.LOOK_S", 0.2)
    with bounded_server() as first, standby(first) as other, bounded_server() as basis, standby(basis) as stranger:
        archiving = Archiving(tmp_path, first, other)
        kept = f"SELECT restart_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{archiving.slot}'"
        archiving.params["servers"].append({"url": stranger.url("postgres"), "password": {"secret": "pg"}})
        with archiving.running():
            wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
            back_up(first, tmp_path)
            for number in range(3):
                add(first, number * 100, number * 100 + 50)
                first.sql("postgres", "SELECT pg_switch_wal()")
            archiving.catch_up(first)
            segment = archiving.counted().position.lsn >> 24 << 24  # type: ignore[union-attr]
            wait_for("the slot of the standby", lambda: int(other.sql("postgres", kept) or 0) >= segment, WAIT_S)
            wait_for("the rows", lambda: rows(other) == rows(first), WAIT_S)
            other.sql("postgres", "SELECT pg_promote(true, 60)")
            add(first, 1000, 1010)
            add(other, 501, 1000)
            archiving.catch_up(other)
            assert archiving.counted().position.timeline == 2  # type: ignore[union-attr]
        assert "is now the primary, on timeline 2" in caplog.text
        assert "is another database system" in caplog.text
        assert stranger.sql("postgres", "SELECT count(*) FROM pg_replication_slots") == "0"
        assert not archiving.counted().gaps
        assert restored(archiving, other) == rows(other)


@pytest.mark.more
def test_a_write_that_failed_is_tried_again_within_the_stream(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    archiving = Archiving(tmp_path, server)
    with archiving.running():
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        writing, write_new, left = Place.writing, Place.write_new, [2, 2]

        def fails(number: int, place: Place, *what: Any) -> Any:
            left[number] -= 1
            if left[number] >= 0:
                raise OSError(104, "Connection reset by peer")
            return (writing, write_new)[number](place, *what)

        monkeypatch.setattr(Place, "writing", lambda *what: fails(0, *what))
        monkeypatch.setattr(Place, "write_new", lambda *what: fails(1, *what))
        add(server, 1, 100)
        archiving.catch_up(server)
    assert max(left) < 0
    assert "trying again" in caplog.text
    assert "connecting again" not in caplog.text


def test_a_place_that_removes_slowly_does_not_hold_up_the_archive(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.wal.receiver.HOUSEKEEPING_S", 0.5)
    monkeypatch.setattr("tasks.wal.receiver._SETTLED_S", 0.0)
    asked, answers, remove = threading.Event(), threading.Event(), Place.remove

    def slow(place: Place, name: str) -> None:
        if name.startswith("0000"):
            asked.set()
            answers.wait(WAIT_S)
        remove(place, name)

    monkeypatch.setattr(Place, "remove", slow)
    archiving = Archiving(tmp_path, server)
    with archiving.running():
        try:
            before = int(server.sql("postgres", "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))
            for number in range(3):
                add(server, number * 10, number * 10 + 5)
                archiving.catch_up(server)
            server.sql("postgres", "SELECT pg_switch_wal()")
            assert asked.wait(WAIT_S), "pieces of a whole segment are removed"
            add(server, 100, 200)
            archiving.catch_up(server)
        finally:
            answers.set()
        first = f"{segment_name(1, before, 16 << 20)}.*-*.zst"
        wait_for("the removal of its pieces", lambda: not list(Path(archiving.url).rglob(first)), WAIT_S)


def test_a_cancelled_attempt_does_not_wait_for_a_place_that_hangs(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.wal.receiver.CANCELLED_S", 0.2)
    archiving = Archiving(tmp_path, server)
    answers, asked, writing = threading.Event(), threading.Event(), Place.writing

    def hang(place: Place, name: str) -> Any:
        asked.set()
        answers.wait(WAIT_S)
        return writing(place, name)

    with archiving.running():
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        monkeypatch.setattr(Place, "writing", hang)
        add(server, 1, 100)
        assert asked.wait(WAIT_S)
    monkeypatch.undo()
    try:
        with archiving.running(2):
            archiving.catch_up(server)
            before = archiving.counted().number
    finally:
        answers.set()
    assert archiving.counted().number >= before, "the page of the attempt that hung does not count"
    assert archiving.counted().holder == 2


@pytest.mark.more
def test_a_standby_is_followed_through_its_promotion(tmp_path: Path) -> None:
    with ExitStack() as primary:
        first = primary.enter_context(bounded_server())
        with standby(first) as other:
            archiving = Archiving(tmp_path, other)
            with archiving.running():
                back_up(first, tmp_path)
                add(first, 1, 500)
                archiving.catch_up(first)
                wait_for("the rows", lambda: rows(other) == rows(first), WAIT_S)
                primary.close()
                other.sql("postgres", "SELECT pg_promote(true, 60)")
                add(other, 501, 1000)
                archiving.catch_up(other)
            assert restored(archiving, other) == rows(other)


@pytest.mark.more
def test_a_copy_that_was_promoted_on_its_own_is_refused(tmp_path: Path) -> None:
    with bounded_server() as first, standby(first) as other, standby(first) as copy:
        archiving = Archiving(tmp_path, first)
        with archiving.running(1):
            wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
            add(first, 1, 10)
            archiving.catch_up(first)
        wait_for("the rows", lambda: rows(other) == rows(first) == rows(copy), WAIT_S)
        other.sql("postgres", "SELECT pg_promote(true, 60)")
        add(first, 11, 20)
        wait_for("the rows of the copy", lambda: rows(copy) == rows(first), WAIT_S)
        copy.sql("postgres", "SELECT pg_promote(true, 60)")
        archiving.params["servers"][0]["url"] = other.url("postgres")
        with archiving.running(2):
            add(other, 21, 30)
            archiving.catch_up(other)
        before = archiving.counted()
        add(copy, 31, 5000)
        archiving.params["servers"][0]["url"] = copy.url("postgres")
        with pytest.raises(OtherHistory, match="began elsewhere"):
            Wal().run(archiving.context(3))
        assert archiving.counted().position == before.position


@pytest.mark.more
def test_log_that_was_lost_in_a_switch_over_is_told(tmp_path: Path) -> None:
    with bounded_server() as first, standby(first) as other:
        archiving = Archiving(tmp_path, first)
        with archiving.running(1):
            wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
            back_up(first, tmp_path)
            archiving.catch_up(first)
        for number in range(3):
            add(first, number, number)
            first.sql("postgres", "SELECT pg_switch_wal()")
        wait_for("the rows", lambda: rows(other) == rows(first), WAIT_S)
        other.sql("postgres", "SELECT pg_promote(true, 60)")
        for number in range(10, 13):
            add(other, number, number)
            other.sql("postgres", "SELECT pg_switch_wal()")
            other.sql("postgres", "CHECKPOINT")
        archiving.params["servers"][0]["url"] = other.url("postgres")
        with pytest.raises(LogLost):
            Wal().run(archiving.context(2))
        with archiving.running(3):
            archiving.catch_up(other)
        with pytest.raises(NotRestorable, match="the archive lacks"):
            restored(archiving, other)


def add_random(server: Server, first: int, last: int) -> None:
    """Add rows that cannot be compressed much: 2 KiB each."""
    text = "(SELECT string_agg(md5(random()::text || n || m), '') FROM generate_series(1, 64) m)"
    server.sql("postgres", f"INSERT INTO ledger SELECT n, {text} FROM generate_series({first}, {last}) n")


def restart(server: Server, how: str = "fast") -> None:
    """Stop a server's processes as pg_ctl's mode `how` says, and start them again with the options they had."""
    control = [str(server.programs / "pg_ctl"), "-D", f"{server.folder}/data", "-w", "-t", "60", "-m", how]
    run_as_server([*control, "-l", str(server.folder / "server.log"), "restart"], server.folder)


@contextmanager
def streaming(server: Server, slot: str) -> Iterator[Any]:
    """Another program's connection, which streams from a new slot."""
    server.sql("postgres", f"SELECT pg_create_physical_replication_slot('{slot}', true)")
    start = server.sql("postgres", f"SELECT restart_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'")
    factory = psycopg2.extras.PhysicalReplicationConnection
    with closing(
        psycopg2.connect(with_password(server.url("postgres"), PASSWORD), connection_factory=factory)
    ) as other:
        asked = other.cursor()
        asked.start_replication(slot_name=slot, slot_type=psycopg2.extras.REPLICATION_PHYSICAL, start_lsn=start)
        yield other
