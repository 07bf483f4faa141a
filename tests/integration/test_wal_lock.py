"""An archive of log in a bucket with Object Lock: a stolen member spoils none of it, and its locks are renewed."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tasks.places.object_lock import LockTime, VersionedBucket
from tasks.places.place import NoObjectLock, Place
from tasks.postgres.wal_position import WalPosition
from tasks.prune.kind import BackupPrune, PruneParams
from tasks.wal import locks, writer
from tasks.wal.archive import read_archive
from tasks.wal.counted import Counted
from tasks.wal.locks import ArchiveLocks
from tasks.wal.report import check_archives
from tasks.wal.writer import ArchiveWriter
from testkit.fake_context import FakeContext
from testkit.servers.object_store import KEY, SECRET, ObjectStore
from testkit.servers.store_proxy import store_proxy

pytestmark = pytest.mark.integration

NOW = datetime.now(UTC).replace(microsecond=0)
SEGMENT = 1 << 10
DAYS = 10


def _place(url: str, endpoint: str) -> Place:
    options = {"key": KEY, "secret": SECRET, "endpoint_url": endpoint}
    return Place(url, options, lock=LockTime.of(DAYS, NOW), removes=False)


def _put(to: ArchiveWriter, start: int, end: int) -> None:
    whole = start % SEGMENT == 0 and end - start == SEGMENT
    content = bytes(number % 251 for number in range(start, end))
    kind: Any = "segment" if whole else "piece"
    to.add([to.store(kind, 1, start, end, lambda out: out.write(content))])
    to.add_index()


def _fill(to: ArchiveWriter, first: int, segments: int) -> None:
    """Archive some segments, each after two pieces of it, and a piece of the next one."""
    for start in range(first * SEGMENT, (first + segments) * SEGMENT, SEGMENT):
        _put(to, start, start + 500)
        _put(to, start + 500, start + SEGMENT)
        _put(to, start, start + SEGMENT)
    _put(to, (first + segments) * SEGMENT, (first + segments) * SEGMENT + 300)


@pytest.fixture(autouse=True)
def small_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "INDEX_PAGES", 10)
    monkeypatch.setattr(writer, "CHAPTER_SEGMENTS", 2)


def _facts(found: Counted) -> Any:
    return found.number, found.position, sorted(found.names()), found.chapters


@pytest.mark.more
def test_a_stolen_member_deletes_nothing_of_the_log_and_no_second_version_is_read(any_store: ObjectStore) -> None:
    url = f"s3://{any_store.new_bucket(locks=True)}/rota/log/77"
    with store_proxy(any_store.endpoint) as members:
        members.may_delete = False
        place = _place(url, members.endpoint)
        first = ArchiveWriter(place, 1, "node-1", SEGMENT)
        first.claim()
        _fill(first, 1, 6)
        assert first.counted.chapters and first.counted.indexed
        plain = {"key": KEY, "secret": SECRET, "endpoint_url": any_store.endpoint}
        before = _facts(read_archive(Place(url, plain)))

        bucket = VersionedBucket(any_store.files, url.removeprefix("s3://"))
        good = bucket.versions()
        for path in any_store.files.find(url):
            any_store.files.pipe_file(path, b"spoilt")
        assert bucket.remove_unlocked(good) == 0
        for path in any_store.files.find(url):
            any_store.files.rm_file(path)  # S3 takes it for a version, too: one that says that there is none
        assert Place(url, plain).names("pages") == []

        assert _facts(read_archive(Place(url, plain))) == before
        (check,) = check_archives(url.rpartition("/")[0], plain)
        assert (check.problems, check.objects > 6) == ((), True)
        # Page numbers can be given once, also those whose present version says that there is none.
        second = ArchiveWriter(_place(url, members.endpoint), 2, "node-2", SEGMENT)
        second.claim()
        assert (second.counted.position, second.counted.number) == (first.counted.position, first.counted.number + 1)
        _put(second, 7 * SEGMENT + 300, 7 * SEGMENT + 400)
        (check,) = check_archives(url.rpartition("/")[0], plain)
        assert check.problems == ()


def test_of_writers_of_one_file_one_succeeds_where_versions_are_kept(any_store: ObjectStore) -> None:
    url = f"s3://{any_store.new_bucket(locks=True)}/rota"
    places = [_place(url, any_store.endpoint) for _ in range(6)]
    for name in ("a", "b", "c"):
        won: list[int] = []

        def write(number: int, name: str = name, won: list[int] = won) -> None:
            if places[number].write_new(name, str(number).encode()):
                won.append(number)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(len(places))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert places[0].read_oldest(name) == str(won[0]).encode()


@pytest.mark.more
def test_what_a_restore_needs_is_locked_anew_once_half_of_the_time_has_passed(
    any_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "PART", 7)
    url = f"s3://{any_store.new_bucket(locks=True)}/rota/log/77"
    place = _place(url, any_store.endpoint)
    made = ArchiveWriter(place, 1, "node-1", SEGMENT)
    made.claim()
    _fill(made, 1, 6)
    bucket = VersionedBucket(any_store.files, url.removeprefix("s3://"))

    def locked_until(until: datetime) -> set[str]:
        found = bucket.versions()
        return {one.path.partition("/77/")[2] for one in found if bucket.locked_until(one) == until}

    assert len(locked_until(NOW + timedelta(days=DAYS))) == len({one.path for one in bucket.versions()})
    renewal = ArchiveLocks(place, DAYS, NOW)
    assert renewal.renew(made.counted, NOW + timedelta(days=4)) == 0
    later = NOW + timedelta(days=6)
    counts: list[int] = []
    while renewal.renewed != later:
        counts.append(renewal.renew(made.counted, later))
    assert set(counts[:-1]) == {7}
    assert renewal.renew(made.counted, later) == 0
    renewed = locked_until(later + timedelta(days=DAYS))
    segments = {
        f"00000001/00000000/{1:024X}.1.zst".replace(f"{1:024X}", f"0000000100000000{n:08X}") for n in range(1, 7)
    }
    assert made.counted.names() | {chapter.file.name for chapter in made.counted.chapters} <= renewed
    assert {name for name in renewed if name.startswith("00000001/") and name.count(".") == 2} == segments
    assert any(name.startswith("index/") for name in renewed) and any(name.startswith("pages/") for name in renewed)
    # A piece of a segment that is stored whole is needed by none.
    assert len([name for name in renewed if name.count(".") == 3]) == 1

    made.remove_before(WalPosition(1, 4 * SEGMENT))
    last = NOW + timedelta(days=12)
    again = ArchiveLocks(place, DAYS, later)
    while again.renewed != last:
        again.renew(made.counted, last)
    kept = {name for name in locked_until(last + timedelta(days=DAYS)) if name.count(".") == 2 and "/0000" in name}
    assert {name for name in kept if name.startswith("00000001/")} == {
        name for name in segments if int(name.split("/")[2][16:24], 16) >= 4
    }


def test_what_the_log_no_longer_needs_is_removed_by_another_task_once_no_lock_keeps_it(
    any_store: ObjectStore, tmp_path: Path
) -> None:
    destination = f"s3://{any_store.new_bucket(locks=True)}/rota"
    url = f"{destination}/log/77"
    expired = _place(url, any_store.endpoint)
    expired.files.s3_additional_kwargs.clear()  # no store locks until a time that is over
    unlocked = ArchiveWriter(expired, 1, "node-1", SEGMENT)
    unlocked.claim()
    _fill(unlocked, 1, 3)
    made = ArchiveWriter(_place(url, any_store.endpoint), 2, "node-1", SEGMENT)
    made.claim()
    _fill(made, 5, 3)
    assert (made.remove_before(WalPosition(1, 7 * SEGMENT)), made.sweep()) == (6, 0)
    before = any_store.files.find(url)
    secrets = {"key": KEY, "secret": SECRET}
    options = {name: {"secret": name} for name in secrets} | {"endpoint_url": any_store.endpoint}
    params = {"backups": "nightly", "wal": "log", "destination": destination, "options": options, "keep": 1}
    context = FakeContext(PruneParams.model_validate(params), tmp_path, task="prune", token=9, secrets=secrets)
    removed = BackupPrune().run(context)["log_removed"]
    gone = {path.rpartition("/")[2] for path in set(before) - set(any_store.files.find(url))}
    of_log = {name for name in gone if name.startswith("0000000100000000")}
    assert of_log and {name.split(".")[-2] for name in of_log} == {"1"}
    assert len(of_log) == 3 * 3 + 1
    assert removed >= len(of_log)
    plain = {"key": KEY, "secret": SECRET, "endpoint_url": any_store.endpoint}
    (check,) = check_archives(f"{destination}/log", plain)
    assert check.problems == ()


def test_a_bucket_without_object_lock_is_named(any_store: ObjectStore) -> None:
    place = _place(f"s3://{any_store.new_bucket()}/rota", any_store.endpoint)
    with pytest.raises(NoObjectLock, match="needs a bucket that was made with Object Lock"):
        place.check_lock()
