"""Which files are new, and in which order they are read."""

import errno
import os
from pathlib import Path

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_tasks.files.faults import BadFile
from spark_tasks.files.listing import (
    BATCH_BYTES,
    NoSourceFiles,
    Source,
    batches,
    canonical,
    fixed_folder,
    listing,
    new_and_changed,
)
from spark_tasks.files.ready import Ready, complete
from spark_tasks.files.staging import check_unchanged, staged
from spark_tasks.storage.errors import StoreAway
from tasks.file_guard import FileGuard


def _fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def test_files_come_in_the_order_of_their_paths_and_each_once(tmp_path: Path) -> None:
    _fill(tmp_path, "b.csv", "a.csv", "c.txt", "deep/d.csv")
    (tmp_path / "e.csv").symlink_to(tmp_path / "c.txt")
    found = listing([f"{tmp_path}/*.csv", f"file://{tmp_path}/a.*", f"{tmp_path}/**/d.csv"])
    assert [Path(source.path).relative_to(tmp_path).as_posix() for source in found] == [
        "a.csv",
        "b.csv",
        "deep/d.csv",
        "e.csv",
    ]
    assert [source.size_bytes for source in found] == [5, 5, 10, 5]


def test_names_that_spark_passes_over_are_passed_over_here_too(tmp_path: Path) -> None:
    _fill(tmp_path, ".half.csv", "_half.csv", "whole.csv")
    assert [Path(source.path).name for source in listing([f"{tmp_path}/*", f"{tmp_path}/_*"])] == ["whole.csv"]


def test_what_lies_in_a_hidden_folder_is_passed_over_unless_the_glob_begins_there(tmp_path: Path) -> None:
    """It will be renamed to its place when it is whole, and would be read again there."""
    _fill(tmp_path, "in/_temporary/0/part-0.csv", "in/.staging/x.csv", "in/2013/a.csv")
    assert [Path(source.path).name for source in listing([f"{tmp_path}/in/**/*.csv", f"{tmp_path}/in/*/*.csv"])] == [
        "a.csv"
    ]
    assert [Path(source.path).name for source in listing([f"{tmp_path}/in/.staging/*.csv"])] == ["x.csv"]
    memory = fsspec.filesystem("memory")
    memory.pipe({"/hidden/_temporary/0/part-0.csv": b"1", "/hidden/2013/a.csv": b"1"})
    try:
        assert listing(["memory://hidden/**/*.csv"]) == (Source("memory:///hidden/2013/a.csv", 1),)
    finally:
        memory.rm("/hidden", recursive=True)


@pytest.mark.parametrize(
    "spelt", ["{}//in/*.csv", "{}/./in/*.csv", "/{}/in/./*.csv", "{}/x/../in/*.csv", "file://{}//in/*"]
)
def test_a_file_has_one_name_however_its_glob_is_spelt(tmp_path: Path, spelt: str) -> None:
    """Else an edited glob would ingest everything again."""
    _fill(tmp_path, "in/a.csv", "x/other")
    [source] = listing([spelt.format(tmp_path), f"{tmp_path}/in/*.csv"])
    assert source.path == f"{tmp_path}/in/a.csv"


def test_what_is_above_a_link_is_what_is_above_its_target(tmp_path: Path) -> None:
    _fill(tmp_path, "elsewhere/sub/x", "elsewhere/in/a.csv", "in/a.csv")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "sub")
    found = listing([f"{tmp_path}/link/../in/*.csv"])
    assert [source.path for source in found] == [f"{tmp_path.resolve()}/elsewhere/in/a.csv"]
    assert canonical(f"{tmp_path}/gone/../in/a.csv") == f"{tmp_path}/in/a.csv"


def test_a_folder_that_is_not_here_is_an_error_and_an_empty_one_is_not(tmp_path: Path) -> None:
    assert listing([f"{tmp_path}/*.csv"]) == ()
    with pytest.raises(NoSourceFiles, match="mount it here"):
        listing([f"{tmp_path}/missing/*.csv"])


def test_a_file_that_is_removed_while_the_others_are_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(tmp_path, "a.csv", "b.csv")
    resolve = FileGuard.resolve

    def remove_and_resolve(guard: FileGuard, path: str | Path) -> Path:
        if Path(path).name == "a.csv":  # it was there when it was looked at
            Path(path).unlink()
        return resolve(guard, path)

    monkeypatch.setattr(FileGuard, "resolve", remove_and_resolve)
    assert [source.path for source in listing([f"{tmp_path}/*.csv"])] == [f"{tmp_path}/b.csv"]


@pytest.mark.parametrize(
    ("fault", "raised", "advice"),
    [(errno.EACCES, NoSourceFiles, "let the user that runs this task read it"), (errno.EIO, StoreAway, "file system")],
)
def test_a_folder_of_the_glob_that_cannot_be_listed_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int, raised: type[Exception], advice: str
) -> None:
    _fill(tmp_path, "2013/01/a.csv", "2013/_half/a.csv", "2014/01/a.csv", "lost+found/01/a.csv")
    scandir, closed = os.scandir, [tmp_path / "lost+found", tmp_path / "2013" / "_half"]

    def refusing(path: str) -> object:
        if Path(path) in closed:
            raise OSError(fault, os.strerror(fault), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert len(listing([f"{tmp_path}/20*/*/*.csv"])) == 2, "what the glob does not cover is not asked for"
    closed.append(tmp_path / "2014")
    with pytest.raises(raised, match=f"2014 cannot be listed .*{advice}"):
        listing([f"{tmp_path}/20*/*/*.csv"])
    closed.remove(tmp_path / "2014")
    with pytest.raises(raised, match=r"lost\+found cannot be listed"):
        listing([f"{tmp_path}/**/a.csv"])


def test_urls_are_listed_and_fetched_through_fsspec(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe({"/news/b.csv": b"22", "/news/a.csv": b"1", "/news/_half.csv": b"0"})
    try:
        found = listing(["memory://news/*.csv"])
        assert found == (Source("memory:///news/a.csv", 1), Source("memory:///news/b.csv", 2))
        with staged(found, tmp_path / "fetched") as places:
            assert [place.read_bytes() for place in places] == [b"1", b"22"]
            check_unchanged(places)
        assert not (tmp_path / "fetched").exists(), "each batch of a long ingest would stay on the node's disk"
        memory.rm("/news/b.csv")
        with pytest.raises(BadFile, match=r"b\.csv was there"), staged(found, tmp_path / "again"):
            pass
        assert not (tmp_path / "again").exists()
    finally:
        memory.rm("/news", recursive=True)


def test_a_file_that_is_still_being_written_is_found_out(tmp_path: Path) -> None:
    _fill(tmp_path, "a.csv")
    with staged(listing([f"{tmp_path}/*.csv"]), tmp_path / "fetched") as places:
        check_unchanged(places)
        (tmp_path / "a.csv").write_text("longer than it was")
        with pytest.raises(BadFile, match=r"a\.csv had 5 bytes"):
            check_unchanged(places)
        (tmp_path / "a.csv").unlink()
        with pytest.raises(BadFile):
            check_unchanged(places)


def test_the_folder_above_the_first_wildcard() -> None:
    assert fixed_folder("/*.csv") == "/"
    assert fixed_folder("/data/[ab]/x.csv") == "/data"


names = st.text("abc", min_size=1, max_size=3)


@settings(max_examples=50)
@given(
    st.dictionaries(names, st.integers(0, 9)),
    st.dictionaries(names, st.integers(0, 9)),
    st.integers(1, 4),
    st.integers(1, 12),
)
def test_every_new_file_is_in_one_batch_and_no_taken_one(
    there: dict[str, int], taken: dict[str, int], files_max: int, bytes_max: int
) -> None:
    found = sorted(Source(path, size) for path, size in there.items())
    fresh = new_and_changed(found, taken)
    cut = batches(fresh.new, files_max, bytes_max)
    assert [source for batch in cut for source in batch] == [source for source in found if source.path not in taken]
    assert all(0 < len(batch) <= files_max for batch in cut)
    assert all(len(batch) == 1 or sum(source.size_bytes for source in batch) <= bytes_max for batch in cut)
    for done in range(len(cut)):
        rest = [source for batch in cut[done:] for source in batch]
        assert batches(rest, files_max, bytes_max) == cut[done:], "the next attempt cuts what is left alike"
    assert {source.path for source in fresh.changed} == {
        path for path in there.keys() & taken.keys() if there[path] != taken[path]
    }


def test_the_number_of_batches_suits_the_size_of_the_input() -> None:
    small = [Source(f"{number:02d}.csv", 3_000_000) for number in range(72)]
    assert len(batches(small)) == 1
    large = [Source(f"{number:04d}.csv", 100_000_000) for number in range(2000)]
    cut = batches(large)
    assert len(cut) == 200, "200 GB"
    assert max(sum(source.size_bytes for source in batch) for batch in cut) <= BATCH_BYTES
    assert [len(batch) for batch in batches([Source("a", 3 * BATCH_BYTES), Source("b", 1)])] == [1, 1]


def test_a_file_is_complete_when_it_is_old_enough(tmp_path: Path) -> None:
    _fill(tmp_path, "old.csv", "new.csv")
    os.utime(tmp_path / "old.csv", (1000, 1000))
    os.utime(tmp_path / "new.csv", (1050, 1050))
    found = listing([f"{tmp_path}/*.csv"])
    assert [Path(source.path).name for source in complete(found, Ready(age_s=60), now_s=1060)] == ["old.csv"]
    assert len(complete(found, Ready(age_s=60), now_s=1110)) == 2
    (tmp_path / "old.csv").unlink()
    assert complete(found, Ready(age_s=60), now_s=1100) == (), "one that is gone waits, and is gone the next time"


def test_a_file_is_complete_when_its_marker_is_there(tmp_path: Path) -> None:
    _fill(tmp_path, "one/a.csv", "one/b.csv", "two/c.csv", "one/a.csv.done", "two/_SUCCESS")
    found = listing([f"{tmp_path}/*/*"])
    each = complete(found, Ready(marker="{name}.done"), now_s=0)
    assert [Path(source.path).name for source in each] == ["a.csv"], "and no marker is a source"
    folder = complete(listing([f"{tmp_path}/*/*.csv"]), Ready(marker="_SUCCESS"), now_s=0)
    assert [Path(source.path).name for source in folder] == ["c.csv"]
    memory = fsspec.filesystem("memory")
    memory.pipe({"/marked/a.csv": b"1", "/marked/b.csv": b"1", "/marked/b.csv.done": b""})
    try:
        there = complete(listing(["memory://marked/*.csv"]), Ready(marker="{name}.done"), now_s=0)
        assert [source.path for source in there] == ["memory:///marked/b.csv"]
        assert len(complete(listing(["memory://marked/*.csv"]), Ready(age_s=60), now_s=0)) == 0
    finally:
        memory.rm("/marked", recursive=True)


def test_a_folder_in_place_of_its_files_is_refused(tmp_path: Path) -> None:
    """Else a run would find nothing new, and succeed each time."""
    _fill(tmp_path, "in/a.csv")
    for named in (f"{tmp_path}/in", f"{tmp_path}/in/"):
        with pytest.raises(NoSourceFiles, match=r"/in/? is a folder: name its files, as .*/in/\*"):
            listing([named])
    assert listing([f"{tmp_path}/in*"]) == ()
    memory = fsspec.filesystem("memory")
    memory.pipe("/shelf/in/a.csv", b"1")
    try:
        with pytest.raises(
            NoSourceFiles, match=r"memory://shelf/in is a folder: name its files, as memory://shelf/in/\*"
        ):
            listing(["memory://shelf/in"])
    finally:
        memory.rm("/shelf", recursive=True)
