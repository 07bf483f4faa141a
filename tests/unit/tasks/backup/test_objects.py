"""Objects of a backup: several in one folder, and whole ones that the next attempt takes over."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tasks.backup import archive
from tasks.backup.manifest import Manifest
from tasks.backup.objects import NewObjects, StoredObjects
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
    stored = StoredObjects(manifest, None, archive.quiet)
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
    second.tidy()

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
