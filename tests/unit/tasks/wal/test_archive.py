"""Which stored pieces of the log count, whoever writes and dies when."""

import json
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from node.cli.local import wait_for
from tasks.backup.archive import Damaged
from tasks.backup.encryption import BackupKeys, Encryption, Identities, NoIdentity, new_identity
from tasks.backup.manifest import NoBackup, WalRange
from tasks.errors import Fenced
from tasks.places.place import Place
from tasks.postgres.wal_position import Fork, WalPosition
from tasks.wal.archive import ArchiveAway, chapter_segments, page_name, read_archive
from tasks.wal.counted import covered
from tasks.wal.fetch import FAILED, FOLDER, FOUND, NOT_THERE, main, server_commands
from tasks.wal.pages import WalGap
from tasks.wal.reader import write_config
from tasks.wal.report import check_archives, describe_archives
from tasks.wal.retention import needed_log, remove_unneeded
from tasks.wal.writer import ArchiveUnfit, ArchiveWriter, ClaimedElsewhere

SEGMENT = 1 << 10
"""The size of a segment here, in bytes."""

AT = datetime(2026, 11, 27, tzinfo=UTC)


def log(start: int, end: int) -> bytes:
    """The bytes of the server's log between two LSNs."""
    return b"".join(at.to_bytes(4, "big") for at in range(start // 4, -(-end // 4)))[start % 4 :][: end - start]


class Site:
    """An archive in a folder, and its writers."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(str(folder / "to" / "77"))
        self.folder = folder

    def writer(self, token: int, claim: bool = True, **more: Any) -> ArchiveWriter:
        made = ArchiveWriter(self.place, token, f"node-{token}", SEGMENT, **more)
        if claim:
            made.claim()
        return made

    def fetch(self, name: str) -> tuple[int, bytes]:
        config = self.folder / "config.json"
        write_config(config, self.place.url, {}, read_archive(self.place))
        target = self.folder / "fetched"
        target.unlink(missing_ok=True)
        code = main(str(config), name, str(target))
        return code, target.read_bytes() if target.exists() else b""


def put(writer: ArchiveWriter, start: int, end: int, timeline: int = 1) -> None:
    """Archive a range as one object: a whole segment, if it is one."""
    whole = start % SEGMENT == 0 and end - start == SEGMENT
    kind: Any = "segment" if whole else "piece"
    writer.add([writer.store(kind, timeline, start, end, lambda out: _written(out.write, log(start, end)))])


def _written(write: Callable[[bytes], int], content: bytes) -> None:
    write(content)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_segments_and_pieces_are_read_back_as_they_were(site: Site) -> None:
    writer = site.writer(1)
    put(writer, 0, SEGMENT)
    put(writer, SEGMENT, SEGMENT + 100)
    put(writer, SEGMENT + 100, SEGMENT + 300)
    assert writer.counted.position == WalPosition(1, SEGMENT + 300)
    segment = f"{1:08X}{0:08X}"
    assert site.fetch(f"{segment}{0:08X}") == (FOUND, log(0, SEGMENT))
    assert site.fetch(f"{segment}{1:08X}") == (FOUND, log(SEGMENT, SEGMENT + 300) + bytes(SEGMENT - 300))
    assert site.fetch(f"{segment}{2:08X}") == (NOT_THERE, b"")
    assert site.fetch("00000002.history") == (NOT_THERE, b"")


def test_a_piece_behind_a_hole_is_not_handed_out(site: Site) -> None:
    writer = site.writer(1)
    put(writer, 0, 100)
    put(writer, 200, 300)
    assert site.fetch(f"{1:08X}{0:016X}") == (FOUND, log(0, 100) + bytes(SEGMENT - 100))


def test_what_cannot_be_read_is_not_taken_for_the_end_of_the_log(site: Site) -> None:
    writer = site.writer(1)
    put(writer, 0, SEGMENT)
    name = f"{1:08X}{0:016X}"
    [stored] = writer.counted.segments.values()
    path = Path(site.place.path) / stored.file.name
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    assert site.fetch(name)[0] == FAILED
    path.unlink()
    assert site.fetch(name)[0] == FAILED
    (Path(site.place.path) / page_name(1)).unlink()
    with pytest.raises(Damaged, match="page"):
        read_archive(site.place)


def test_objects_of_an_attempt_that_was_taken_over_do_not_count(site: Site) -> None:
    first = site.writer(1)
    put(first, 0, 100)
    late = first.store("piece", 1, 100, 200, lambda out: _written(out.write, b"x" * 100))
    second = site.writer(2)
    with pytest.raises(Fenced, match="claimed by an attempt with the token 2"):
        first.add([late])
    put(second, 0, 300)
    assert read_archive(site.place).position == WalPosition(1, 300)
    assert site.fetch(f"{1:08X}{0:016X}")[1][:300] == log(0, 300)
    with pytest.raises(Fenced):
        first.check_claim()
    with pytest.raises(Fenced):
        site.writer(1)


def test_a_page_whose_acknowledgement_was_lost_is_written_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = site.writer(1)
    write_new = Place.write_new
    monkeypatch.setattr(Place, "write_new", lambda self, name, content: write_new(self, name, content) and False)
    put(writer, 0, 100)
    monkeypatch.undo()
    assert (writer.counted.number, read_archive(site.place).number) == (2, 2)


def test_a_place_that_replaces_files_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "write_new", lambda self, name, content: self.write_whole(name, content) is None)
    with pytest.raises(ArchiveUnfit, match="conditional writes"):
        site.writer(1)


def test_an_error_of_the_storage_is_no_error_of_the_attempt(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = site.writer(1)

    def full(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Place, "write_new", full)
    with pytest.raises(ArchiveAway, match="No space left"):
        put(writer, 0, 100)


def test_a_server_with_other_segments_is_refused(site: Site) -> None:
    site.writer(1)
    with pytest.raises(ArchiveUnfit, match="--wal-segsize"):
        ArchiveWriter(site.place, 2, "node-2", SEGMENT * 2).claim()


@pytest.mark.parametrize("every", [1, 3, 10_000])
def test_an_index_says_what_all_pages_before_it_say(site: Site, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.wal.writer.INDEX_PAGES", every)
    writer = site.writer(1)
    for start in range(0, 10 * SEGMENT, SEGMENT // 2):
        put(writer, start, start + SEGMENT // 2)
        if start % SEGMENT:
            put(writer, start - SEGMENT // 2, start + SEGMENT // 2)
        writer.add_index()
    writer.add_gap(WalGap(timeline=1, start=10 * SEGMENT, end=20 * SEGMENT))
    put(writer, 20 * SEGMENT, 20 * SEGMENT + 5)
    found = read_archive(site.place)
    assert (found.indexed > 0) == (every < 10_000)
    assert found == writer.counted
    again = site.writer(2)
    assert (again.counted.segments, again.counted.gaps) == (found.segments, found.gaps)
    assert list(found.missing(1, 0, 20 * SEGMENT + 5)) == [(n * SEGMENT, (n + 1) * SEGMENT) for n in range(10, 20)]
    if every == 3:
        for number in range(1, found.indexed):
            (Path(site.place.path) / page_name(number)).unlink()
        assert read_archive(site.place) == again.counted


@pytest.mark.parametrize("seed", range(30))
def test_whoever_writes_in_whatever_order_the_archive_is_the_log(site: Site, seed: int) -> None:
    """Attempts are taken over at any moment and go on writing until they notice."""
    draw = random.Random(seed)
    writers: list[tuple[ArchiveWriter, int]] = []
    confirmed = 0
    for token in range(1, 8):
        writer = site.writer(token)
        begins = writer.counted.position.lsn if writer.counted.position else 0
        assert begins >= confirmed, "what was confirmed to the server counts"
        writers.append((writer, begins - begins % SEGMENT))
        for _ in range(draw.randint(0, 12)):
            number = draw.randrange(len(writers)) if draw.random() < 0.3 else len(writers) - 1
            one, at = writers[number]
            end = min(at + draw.randint(1, 400), at - at % SEGMENT + SEGMENT)
            try:
                put(one, at, end)
                if end % SEGMENT == 0:
                    put(one, end - SEGMENT, end)
            except Fenced:
                assert number < len(writers) - 1
                continue
            assert number == len(writers) - 1, "only the last that claimed adds"
            writers[number] = (one, end)
            confirmed = max(confirmed, end)
    found = read_archive(site.place)
    assert list(found.missing(1, 0, confirmed)) == []
    for start in range(0, confirmed, SEGMENT):
        code, content = site.fetch(f"{1:08X}{start // SEGMENT:016X}")
        upto = min(SEGMENT, confirmed - start)
        assert (code, content[:upto]) == (FOUND, log(start, start + upto))


def test_ranges_cover_what_is_next_to_them() -> None:
    assert covered(0, []) == 0
    assert covered(0, [(5, 9)]) == 0
    assert covered(5, [(0, 7), (7, 9), (9, 9), (10, 12)]) == 9


def objects(site: Site) -> set[str]:
    """The names of all stored objects of the log."""
    root = Path(site.place.path)
    return {str(path.relative_to(root)) for path in root.glob("0*/**/*") if path.is_file()}


def test_log_from_before_a_backup_is_removed_and_the_rest_is_there(site: Site) -> None:
    writer = site.writer(1)
    for start in range(0, 6 * SEGMENT, SEGMENT):
        put(writer, start, start + SEGMENT)
    put(writer, 6 * SEGMENT, 6 * SEGMENT + 10)
    needed = WalPosition(1, 3 * SEGMENT + 7)
    assert writer.remove_before(needed) == 3
    assert writer.remove_before(needed) == 0
    found = read_archive(site.place)
    assert found == writer.counted
    assert sorted(found.segments) == [WalPosition(1, number * SEGMENT) for number in (3, 4, 5)]
    assert objects(site) == found.names()
    assert site.fetch(f"{1:08X}{2:016X}")[0] == NOT_THERE
    assert site.fetch(f"{1:08X}{3:016X}") == (FOUND, log(3 * SEGMENT, 4 * SEGMENT))


def test_log_of_later_timelines_and_the_way_to_them_stays(site: Site) -> None:
    writer = site.writer(1)
    for timeline in (1, 2, 3):
        put(writer, 0, SEGMENT, timeline)
        put(writer, SEGMENT, 2 * SEGMENT, timeline)
    writer.remove_before(WalPosition(2, SEGMENT))
    assert sorted(writer.counted.segments) == [(1, SEGMENT), (2, SEGMENT), (3, 0), (3, SEGMENT)]


def test_a_removal_that_stopped_midway_is_finished_by_a_sweep(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = site.writer(1)
    for start in range(0, 4 * SEGMENT, SEGMENT // 2):
        put(writer, start, start + SEGMENT // 2)
        if start % SEGMENT:
            put(writer, start - SEGMENT // 2, start + SEGMENT // 2)
    put(writer, 4 * SEGMENT, 4 * SEGMENT + 9)
    assert len(objects(site)) == 13, "pieces of whole segments are still there"

    def gone(*_: object) -> None:
        raise OSError("the network is gone")

    monkeypatch.setattr(Place, "remove", gone)
    with pytest.raises(ArchiveAway):
        writer.remove_before(WalPosition(1, 2 * SEGMENT))
    monkeypatch.undo()
    found = read_archive(site.place)
    assert list(found.missing(1, 2 * SEGMENT, 4 * SEGMENT + 9)) == []
    again = site.writer(2)
    later = ArchiveWriter(site.place, 3, "node-3", SEGMENT)
    unnamed = later.store("piece", 1, 0, 5, lambda out: _written(out.write, b"12345"))
    mine = again.store("piece", 1, 4 * SEGMENT + 9, 4 * SEGMENT + 12, lambda out: _written(out.write, b"123"))
    again.sweep()
    assert objects(site) == again.counted.names() | {unnamed.file.name, mine.file.name}


def test_old_pages_go_and_readers_still_find_all(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.wal.writer.INDEX_PAGES", 4)
    writer = site.writer(1)
    for start in range(0, 20 * SEGMENT, SEGMENT):
        put(writer, start, start + SEGMENT)
        writer.add_index()
        writer.sweep()
    found = read_archive(site.place)
    assert found == writer.counted
    pages = site.place.names("pages")
    assert len(pages) < 15 and len(site.place.names("index")) == 2
    assert site.writer(2).counted.segments == found.segments


def test_an_index_and_a_config_do_not_grow_with_the_log(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.wal.writer.INDEX_PAGES", 3)
    monkeypatch.setattr("tasks.wal.writer.CHAPTER_SEGMENTS", 4)
    writer = site.writer(1)
    for number in range(40):
        if number != 18:
            put(writer, number * SEGMENT, (number + 1) * SEGMENT)
        writer.add_index()
    writer.add_gap(WalGap(timeline=1, start=18 * SEGMENT, end=19 * SEGMENT))
    found = read_archive(site.place)
    assert found == writer.counted
    assert len(found.segments) < 12
    assert list(found.missing(1, 0, 40 * SEGMENT)) == [(18 * SEGMENT, 19 * SEGMENT)]
    assert found.end_of(1) == 40 * SEGMENT
    for number in range(40):
        code, content = site.fetch(f"{1:08X}{number:016X}")
        assert (code, content) == ((FOUND, log(number * SEGMENT, (number + 1) * SEGMENT)) if number != 18 else (1, b""))
    config = site.folder / "bounded.json"
    write_config(config, site.place.url, {}, found, WalPosition(1, 30 * SEGMENT + 5))
    assert all(int(name[8:], 16) >= 30 for name in json.loads(config.read_text())["known"])
    assert all(chapter["end"] > 30 * SEGMENT for chapter in json.loads(config.read_text())["chapters"])


def test_log_in_chapters_is_removed_and_swept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.wal.writer.INDEX_PAGES", 3)
    monkeypatch.setattr("tasks.wal.writer.CHAPTER_SEGMENTS", 4)
    writer = site.writer(1)
    for number in range(30):
        put(writer, number * SEGMENT, (number + 1) * SEGMENT)
        writer.add_index()
    again = site.writer(2)
    again.store("segment", 1, 3 * SEGMENT, 4 * SEGMENT, lambda out: _written(out.write, log(0, SEGMENT)))
    assert again.remove_before(WalPosition(1, 10 * SEGMENT + 3)) == 10
    assert again.sweep() >= 1
    found = read_archive(site.place)
    assert found == again.counted
    assert min(chapter.start for chapter in found.chapters) == 10 * SEGMENT
    assert list(found.missing(1, 10 * SEGMENT, 30 * SEGMENT)) == []
    assert len(objects(site)) == 20
    assert site.fetch(f"{1:08X}{9:016X}")[0] == NOT_THERE
    assert site.fetch(f"{1:08X}{10:016X}") == (FOUND, log(10 * SEGMENT, 11 * SEGMENT))


def test_segments_are_fetched_ahead_of_the_server_and_the_rest_is_removed(site: Site) -> None:
    writer = site.writer(1)
    for number in range(30):
        put(writer, number * SEGMENT, (number + 1) * SEGMENT)
    config = site.folder / "config.json"
    write_config(config, site.place.url, {}, read_archive(site.place))
    ahead, taken = site.folder / FOLDER, 0
    for number in range(30):
        name, target = f"{1:08X}{number:016X}", site.folder / "RECOVERYXLOG"
        taken += (ahead / name).exists()
        assert main(str(config), name, str(target)) == FOUND
        assert target.read_bytes() == log(number * SEGMENT, (number + 1) * SEGMENT)
        assert (ahead.stat().st_mode & 0o777) == 0o700
        # A segment that the server has passed may still come, and is removed then.
        wait_for("16 segments at most", lambda: len([path for path in ahead.iterdir() if len(path.name) == 24]) <= 16)
        if number % 10 == 5:
            wait_for("the next segment", (ahead / f"{1:08X}{number + 1:016X}").exists, 60)
    assert taken >= 3
    assert main(str(config), f"{1:08X}{30:016X}", str(target)) == NOT_THERE
    assert main(str(config)) == FOUND
    assert not ahead.exists()
    assert not config.exists()


def test_what_is_moved_away_has_the_next_segments_fetched(site: Site) -> None:
    writer = site.writer(1)
    for number in range(40):
        put(writer, number * SEGMENT, (number + 1) * SEGMENT)
    config, target = site.folder / "config.json", site.folder / "RECOVERYXLOG"
    write_config(config, site.place.url, {}, read_archive(site.place))
    assert server_commands(config)[0].startswith(f"mv {site.folder}/{FOLDER}/%f %p 2>/dev/null || ")
    assert main(str(config), f"{1:08X}{0:016X}", str(target)) == FOUND
    for number in range(1, 40):
        ready = site.folder / FOLDER / f"{1:08X}{number:016X}"
        wait_for(f"segment {number}", ready.exists, 60)
        ready.rename(target)  # as `mv` does
        assert target.read_bytes() == log(number * SEGMENT, (number + 1) * SEGMENT)
    assert main(str(config)) == FOUND


def test_a_damaged_segment_is_not_handed_out_by_the_process_that_fetches_ahead(site: Site) -> None:
    writer = site.writer(1)
    for number in range(4):
        put(writer, number * SEGMENT, (number + 1) * SEGMENT)
    path = Path(site.place.path) / writer.counted.segments[WalPosition(1, 2 * SEGMENT)].file.name
    path.write_bytes(path.read_bytes()[:-3])
    config, target = site.folder / "config.json", site.folder / "RECOVERYXLOG"
    write_config(config, site.place.url, {}, read_archive(site.place))
    codes = [main(str(config), f"{1:08X}{number:016X}", str(target)) for number in range(3)]
    assert codes == [FOUND, FOUND, FAILED]
    assert main(str(config)) == FOUND


def test_encrypted_log_is_read_with_an_identity_only_and_an_attempt_needs_none(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.wal.writer.INDEX_PAGES", 3)
    monkeypatch.setattr("tasks.wal.writer.CHAPTER_SEGMENTS", 4)
    public, private = new_identity(None)
    encryption = Encryption((public,))
    writer = site.writer(1)
    put(writer, 0, SEGMENT)
    writer = site.writer(2, encryption=encryption)
    history = b"1\t0/200\tbefore a secret\n"
    writer.add([writer.store_history(2, history)])
    for number in range(1, 15):
        put(writer, number * SEGMENT, (number + 1) * SEGMENT)
        writer.add_index()
    again = site.writer(3, encryption=encryption)
    put(again, 15 * SEGMENT, 15 * SEGMENT + 50)
    assert again.ancestors(2) == (Fork(1, 0x200),)
    assert all(name.endswith(".age") for name in objects(site) if not name.endswith(f"{0:08X}.1.zst"))
    assert not any(b"secret" in path.read_bytes() for path in site.folder.glob("to/**/*") if path.is_file())
    found, config, target = read_archive(site.place), site.folder / "config.json", site.folder / "fetched"
    for identities, code in (("", FAILED), (new_identity(None)[1], FAILED), (private, FOUND)):
        write_config(config, site.place.url, {}, found, identities=identities)
        for number in (2, 14, 15):
            assert main(str(config), f"{1:08X}{number:016X}", str(target)) == code
        assert main(str(config), f"{1:08X}{0:016X}", str(target)) == FOUND
        assert main(str(config), "00000002.history", str(target)) == code
    assert target.read_bytes() == history
    assert main(str(config)) == FOUND
    keys = BackupKeys(Identities.of_text(private, "test"))
    url = str(site.folder / "to")
    assert [check.problems for check in (*check_archives(url, None), *check_archives(url, None, keys=keys))] == [(), ()]
    with pytest.raises(NoIdentity):
        check_archives(url, None, keys=BackupKeys(Identities.of_text(new_identity(None)[1], "other")))


def test_what_is_missing_or_damaged_is_told_and_what_the_server_removed_is_a_note(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.wal.writer.INDEX_PAGES", 3)
    monkeypatch.setattr("tasks.wal.writer.CHAPTER_SEGMENTS", 4)
    url = str(site.folder / "to")
    with pytest.raises(NoBackup, match="holds no archive"):
        check_archives(url, None)
    writer = site.writer(1)
    for number in range(20):
        if number != 9:
            put(writer, number * SEGMENT, (number + 1) * SEGMENT)
        writer.add_index()
    put(writer, 20 * SEGMENT, 20 * SEGMENT + 7)
    [told] = check_archives(url, None)
    assert told.problems == (f"{site.place.url} lacks the log from 0/2400 to 0/2800 of timeline 1",)
    writer.add_gap(WalGap(timeline=1, start=9 * SEGMENT, end=10 * SEGMENT))
    [good] = check_archives(url, None)
    assert (good.problems, good.objects, good.read_bytes) == ((), 20, 19 * SEGMENT + 7)
    assert good.gaps == ("the server had removed 0/2400 to 0/2800",)
    [report] = describe_archives(url, None)
    [timeline] = report.timelines
    assert (timeline.start, timeline.end, timeline.missing) == (0, 20 * SEGMENT + 7, ((9 * SEGMENT, 10 * SEGMENT),))
    listed = chapter_segments(site.place, writer.counted.chapters[0])[WalPosition(1, SEGMENT)]
    (Path(site.place.path) / listed.file.name).unlink()
    newest = Path(site.place.path) / writer.counted.segments[WalPosition(1, 19 * SEGMENT)].file.name
    newest.write_bytes(newest.read_bytes()[:-1])
    [damaged] = check_archives(url, None)
    assert [problem.rpartition("/")[2] for problem in damaged.problems] == [
        f"{Path(listed.file.name).name} is missing",
        damaged.problems[1].rpartition("/")[2],
    ]
    assert newest.name in damaged.problems[1]


def test_the_task_of_another_cluster_is_refused_with_both_named(site: Site) -> None:
    first = site.writer(50, cluster="aaaa")
    put(first, 0, 100)
    with pytest.raises(ClaimedElsewhere, match="claimed by the cluster aaaa, and this task is of the cluster bbbb"):
        site.writer(80, cluster="bbbb")
    put(first, 100, 200)
    second = site.writer(3, cluster="bbbb", accept=True)
    put(second, 0, 300)
    with pytest.raises(ClaimedElsewhere, match="claimed by the cluster bbbb"):
        put(first, 200, 250)
    with pytest.raises(ClaimedElsewhere):
        site.writer(90, cluster="aaaa")
    third = site.writer(4, cluster="bbbb")
    assert second.token < third.token
    put(third, 0, 400)
    with pytest.raises(Fenced):
        put(second, 300, 400)
    back = site.writer(51, cluster="aaaa", accept=True)
    assert back.token > third.token
    assert read_archive(site.place).cluster == "aaaa"
    assert site.fetch(f"{1:08X}{0:016X}")[1][:400] == log(0, 400)


def test_log_that_backups_need_begins_at_the_oldest_of_their_system(site: Site) -> None:
    def made(start: int, timeline: int = 1, system: str = "77") -> Any:
        return WalRange(system=system, timeline=timeline, start=start, end=start + 1, included=True)

    assert needed_log([], "77", None, AT) is None
    backups = [_Backup(made(500)), _Backup(made(300)), _Backup(made(100, system="78")), _Backup(None)]
    assert needed_log(cast(Any, backups), "77", None, AT) == (WalPosition(1, 300), ())
    assert needed_log(cast(Any, [_Backup(made(400, 3)), _Backup(made(500, 2))]), "77", None, AT) == (
        WalPosition(2, 500),
        (),
    )


def test_with_days_older_backups_keep_their_own_range_only(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.wal.writer.INDEX_PAGES", 3)
    monkeypatch.setattr("tasks.wal.writer.CHAPTER_SEGMENTS", 4)
    writer, now = site.writer(1), AT
    for number in range(30):
        put(writer, number * SEGMENT, (number + 1) * SEGMENT)
        writer.add_index()

    def made(days: int, segment: int) -> Any:
        start = segment * SEGMENT + 3
        wal = WalRange(system="77", timeline=1, start=start, end=start + SEGMENT, included=False)
        return _Backup(wal, now - timedelta(days=days))

    backups = cast(Any, [made(40, 1), made(20, 6), made(8, 15), made(1, 25)])
    needed = needed_log(backups, "77", 7, now)
    assert needed is not None
    assert (needed.start.lsn // SEGMENT, [one.start // SEGMENT for one in needed.kept]) == (15, [1, 6])
    assert needed_log(backups, "77", 100, now) == needed_log(backups, "77", None, now)
    assert writer.remove_before(*needed) == 11
    assert writer.remove_before(*needed) == 0
    left = {1, 2, 6, 7, *range(15, 30)}
    assert {number for number in range(30) if site.fetch(f"{1:08X}{number:016X}")[0] == FOUND} == left
    writer.add_index()
    found = read_archive(site.place)
    assert found == writer.counted
    writer.sweep()
    assert len(objects(site)) == len(left)
    [check] = check_archives(str(site.folder / "to"), None)
    assert check.problems == ()


def test_no_log_is_removed_while_a_manifest_cannot_be_read(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    writer = site.writer(1)
    for start in range(0, 3 * SEGMENT, SEGMENT):
        put(writer, start, start + 100)
        put(writer, start, start + SEGMENT)
    log_of_test = logging.getLogger("attempt")
    remove_unneeded(writer, None, "77", log_of_test, None, AT)
    assert objects(site) == writer.counted.names(), "pieces are swept without backups, too"
    backups = Place(str(site.folder / "base"))
    remove_unneeded(writer, backups, "77", log_of_test, None, AT)
    made = site.folder / "base" / "20261126T020000.000000Z-1"
    made.mkdir(parents=True)
    (made / "manifest.json").write_text("{}")
    remove_unneeded(writer, backups, "77", log_of_test, None, AT)
    assert "no log is removed, because a backup may need it" in caplog.text
    assert len(writer.counted.segments) == 3


@dataclass
class _Backup:
    wal: WalRange | None
    finished: datetime = datetime(2026, 1, 1, tzinfo=UTC)
