"""Objects of a backup: several in one folder, and whole ones that the next attempt takes over."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
import zstandard

from tasks.backup import archive
from tasks.backup.content import BadSetting, backup_threads
from tasks.backup.manifest import Manifest
from tasks.backup.objects import NewObjects, RestoreWatch, StoredObjects, remove_unnamed
from tasks.backup.pace import ReadingPace
from tasks.places.place import Place


def _new(folder: Path) -> NewObjects:
    return NewObjects(Place(str(folder)), 3, archive.quiet)


def _write(out: NewObjects, name: str, content: bytes, *, whole: bool) -> None:
    with out.writing(name, whole=whole) as writer:
        writer.write(content)


def _read(folder: Path, out: NewObjects) -> dict[str, bytes]:
    now = datetime(2026, 11, 27, tzinfo=UTC)
    manifest = Manifest(
        task="nightly",
        run_id="run",
        attempt=1,
        token=1,
        created=now,
        finished=now,
        source_type="folder",
        source={},
        tools={},
        files=out.entries,
        url=str(folder),
    )
    stored = StoredObjects(manifest, None, RestoreWatch())
    return {entry.name: stored.content(entry).readall() for entry in manifest.files}


def test_the_next_attempt_uses_whole_objects_and_removes_the_others(tmp_path: Path) -> None:
    dead, mine = tmp_path / "1", tmp_path / "2"
    first = _new(dead)
    _write(first, "a.zst", b"a", whole=True)
    _write(first, "b.zst", b"b", whole=True)
    _write(first, "c.zst", b"c", whole=False)

    second = _new(mine)
    second.adopt([Place(str(dead))])
    assert sorted(second.kept) == ["a.zst", "b.zst"]
    second.keep("a.zst")
    _write(second, "d.zst", b"d", whole=True)
    remove_unnamed(Place(str(mine)), second.entries)

    assert _read(mine, second) == {"a.zst": b"a", "d.zst": b"d"}
    assert sorted(path.name for path in mine.iterdir()) == ["a.zst", "d.zst"]


def test_an_object_that_is_not_as_recorded_is_not_taken_over(tmp_path: Path) -> None:
    dead = tmp_path / "1"
    first = _new(dead)
    _write(first, "cut.zst", b"cut", whole=True)
    _write(first, "gone.zst", b"gone", whole=True)
    _write(first, "unknown.zst", b"unknown", whole=True)
    (dead / "cut.zst").write_bytes(b"")
    (dead / "gone.zst").unlink()
    (dead / "unknown.zst.whole.json").write_text("{}")

    second = _new(tmp_path / "2")
    second.adopt([Place(str(dead)), Place(str(tmp_path / "none"))])
    assert second.kept == {}


def test_progress_counts_the_objects_together(tmp_path: Path) -> None:
    told: list[int] = []
    out = NewObjects(Place(str(tmp_path)), 3, told.append)
    with out.writing("a.zst") as first, out.writing("b.zst") as second:
        first.write(b"1234")
        second.write(b"12")
    assert told == [4, 6]


def test_an_object_whose_block_raises_is_no_part_of_the_backup(tmp_path: Path) -> None:
    out = _new(tmp_path)
    with pytest.raises(RuntimeError), out.writing("a.zst", whole=True):
        raise RuntimeError
    assert out.entries == ()
    assert not (tmp_path / "a.zst.whole.json").exists()


def test_a_pace_is_held_by_all_threads_together_and_a_pause_is_not_made_up_for() -> None:
    now_s = 100.0
    pace = ReadingPace(1000, clock=lambda: now_s)
    pace.take(500)
    pace.take(1500)
    assert pace.wait_s() == 2.0
    now_s = 102.0
    assert pace.wait_s() == 0.0
    now_s = 200.0
    pace.take(1000)
    assert pace.wait_s() == 1.0


def test_content_is_read_at_the_pace(tmp_path: Path) -> None:
    now_s, told = 0.0, []
    pace = ReadingPace(1 << 20, clock=lambda: now_s)

    def advance(done_bytes: int) -> None:
        nonlocal now_s
        now_s += 1.0
        told.append(done_bytes)

    out = NewObjects(Place(str(tmp_path)), 3, advance, pace=pace)
    with out.writing("a.zst") as writer:
        writer.write(bytes(2 << 20))
    assert told == [2 << 20] * 3 and pace.wait_s() == 0.0


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_threads_make_one_frame_that_any_zstd_unpacks(tmp_path: Path, threads: int) -> None:
    content = os.urandom(5 << 20) + bytes(7 << 20)
    out = NewObjects(Place(str(tmp_path)), 3, archive.quiet, threads=threads)
    with out.writing("a.zst") as writer:
        for at in range(0, len(content), 1 << 20):
            writer.write(content[at : at + (1 << 20)])
    packed = (tmp_path / "a.zst").read_bytes()
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == content
    assert _read(tmp_path, out) == {"a.zst": content}


@pytest.mark.parametrize("text", ["many", "-1", "65", ""])
def test_a_setting_that_is_no_number_of_threads_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="ROTA_BACKUP_THREADS"):
        backup_threads({"RUN_BACKUP_THREADS": text})
