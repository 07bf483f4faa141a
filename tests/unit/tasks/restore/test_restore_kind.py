"""The kind `restore`: what it refuses, what it makes, and what it leaves when it is stopped or was killed before."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.backup.archive import Damaged, PlaceFailed
from tasks.backup.encryption import NoIdentity
from tasks.backup.kind import Backup
from tasks.backup.manifest import NoBackup
from tasks.backup.sources import restore_folder
from tasks.backup.tree import packs, plan, read_tree
from tasks.errors import MissingSecret
from tasks.kind import Fenced
from tasks.places.place import Place
from tasks.restore.kind import Restore, RestoreStopped, TargetTaken
from tasks.restore.params import RestoreParams
from testkit.fake_context import FakeContext
from tests.unit.tasks.backup.backups import backup_context, fill


def _context(tmp_path: Path, **params: Any) -> FakeContext[RestoreParams]:
    given = {"backups": {"url": str(tmp_path / "to" / "nightly")}, "target": str(tmp_path / "back")}
    scratch = tmp_path / "scratch-restore"
    scratch.mkdir(exist_ok=True)
    return FakeContext(RestoreParams.model_validate(given | params), scratch, task="again")


def _backed_up(tmp_path: Path, token: int = 1) -> str:
    if token == 1:
        fill(tmp_path / "from")
    url: str = Backup().run(backup_context(tmp_path, token))["url"]
    return url.rpartition("/")[2]


def test_the_newest_backup_is_restored_or_the_one_that_is_named(tmp_path: Path) -> None:
    first = _backed_up(tmp_path)
    (tmp_path / "from" / "a.txt").write_text("later")
    second = _backed_up(tmp_path, 2)
    context = _context(tmp_path)
    result = Restore().run(context)
    assert result["backup"].endswith(second)
    assert result["target"] == str(tmp_path / "back")
    assert (tmp_path / "back" / "a.txt").read_text() == "later"
    assert context.shown[-1] == (result["bytes"], result["bytes"], "bytes")
    Restore().run(_context(tmp_path, backup=first, target=str(tmp_path / "older")))
    assert (tmp_path / "older" / "a.txt").read_text() == "a"


def test_nothing_is_replaced(tmp_path: Path) -> None:
    _backed_up(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    for taken in ("folder", "file", "link"):
        with pytest.raises(TargetTaken, match="exists on node-1"):
            Restore().run(_context(tmp_path, target=str(tmp_path / taken)))


def test_a_target_that_was_backed_up_is_named_as_that(tmp_path: Path) -> None:
    _backed_up(tmp_path)
    with pytest.raises(TargetTaken, match=r"from is what was backed up, and a restore replaces nothing: name"):
        Restore().run(_context(tmp_path, target=str(tmp_path / "from")))


@pytest.fixture
def three_places(tmp_path: Path) -> dict[str, Any]:
    """The params for a restore of a backup that lies at three places."""
    fill(tmp_path / "from")
    names = ("to", "near", "far")
    copies = [{"destination": str(tmp_path / name)} for name in names[1:]]
    Backup().run(backup_context(tmp_path, copies=copies))
    first, *others = ({"url": str(tmp_path / name / "nightly")} for name in names)
    return {"backups": first, "copies": others}


def _objects(place: Path) -> list[Path]:
    return list(place.glob("nightly/*/folder.tar.zst"))


def test_the_next_place_is_read_if_one_lacks_the_backup_or_it_is_damaged_there(
    tmp_path: Path, three_places: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(tmp_path / "to")
    [cut] = _objects(tmp_path / "near")
    cut.write_bytes(cut.read_bytes()[:-9] + bytes(9))  # of the right size
    with caplog.at_level("INFO"):
        result = Restore().run(_context(tmp_path, **three_places))
    assert result["backup"].startswith(f"{tmp_path}/far/nightly/")
    assert (tmp_path / "back" / "a.txt").read_text() == "a"
    said = [record.getMessage() for record in caplog.records]
    assert any(line.startswith(f"skipped: {tmp_path}/to/nightly holds no folder with a manifest") for line in said)
    assert any(line.startswith(str(cut)) and f"now {tmp_path}/far/nightly is read" in line for line in said)
    [far] = _objects(tmp_path / "far")
    far.unlink()
    with pytest.raises(Damaged, match=str(cut)):
        Restore().run(_context(tmp_path, **three_places, target=str(tmp_path / "again")))
    cut.unlink()
    with pytest.raises(NoBackup, match=r"is whole at no destination .*near.* lacks .*far.* lacks .*no older one"):
        Restore().run(_context(tmp_path, **three_places, target=str(tmp_path / "again")))
    assert not (tmp_path / "again").exists()


def test_a_place_that_fails_while_it_is_read_is_left_for_the_next(
    tmp_path: Path, three_places: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Place.reading

    @contextmanager
    def refused(place: Place, name: str, version: str | None = None) -> Iterator[Any]:
        if str(tmp_path / "to") in place.url:
            raise PermissionError("the token has expired")
        with reading(place, name, version) as file:
            yield file

    monkeypatch.setattr(Place, "reading", refused)
    result = Restore().run(_context(tmp_path, **three_places))
    assert result["backup"].startswith(f"{tmp_path}/near/")
    alone = _context(tmp_path, backups=three_places["backups"], target=str(tmp_path / "again"))
    with pytest.raises(PlaceFailed, match=r"folder\.tar\.zst cannot be read: PermissionError: the token has expired"):
        Restore().run(alone)


def test_a_place_that_this_member_may_not_read_is_skipped(
    tmp_path: Path, three_places: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    three_places["backups"]["options"] = {"auto_mkdir": {"secret": "absent"}}
    result = Restore().run(_context(tmp_path, **three_places))
    assert result["backup"].startswith(f"{tmp_path}/near/")
    assert "skipped: " in caplog.text and "absent" in caplog.text
    with pytest.raises(MissingSecret):
        Restore().run(_context(tmp_path, backups=three_places["backups"], target=str(tmp_path / "again")))


def test_an_attempt_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    _backed_up(tmp_path)
    context = _context(tmp_path)
    context.cancelled = True
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RestoreStopped):
        Restore().run(context)
    assert sorted(tmp_path.iterdir()) == before


def test_the_next_attempt_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    _backed_up(tmp_path)
    left, other = tmp_path / ".back.0123.partial", tmp_path / ".back2.0123.partial"
    for path in (left, other):
        path.mkdir()
    context = _context(tmp_path)
    context.attempt = 2
    Restore().run(context)
    assert (left.exists(), other.exists()) == (False, True)


@pytest.mark.parametrize("replaced", [False, True])
def test_the_next_attempt_knows_a_target_that_a_killed_one_completed(tmp_path: Path, replaced: bool) -> None:
    made = _backed_up(tmp_path)
    first = _context(tmp_path)
    Restore().run(first)
    _backed_up(tmp_path, 2)
    if replaced:
        (tmp_path / "back").rename(tmp_path / "away")
        (tmp_path / "back").mkdir()
    second = _context(tmp_path)
    second.attempt, second.checkpoint = 2, first.saved[-1]
    if replaced:
        with pytest.raises(TargetTaken, match="exists on node-1"):
            Restore().run(second)
        return
    assert Restore().run(second)["backup"].endswith(made)
    assert second.saved == []


def test_nothing_appears_once_another_attempt_has_taken_over(tmp_path: Path) -> None:
    _backed_up(tmp_path)
    context = _context(tmp_path)

    def fence(value: Any) -> None:
        raise Fenced

    context.before_checkpoint = fence
    with pytest.raises(Fenced):
        Restore().run(context)
    assert not (tmp_path / "back").exists()


def test_an_encrypted_backup_needs_its_identity(tmp_path: Path) -> None:
    pyrage = pytest.importorskip("pyrage")
    identity = pyrage.x25519.Identity.generate()
    fill(tmp_path / "from")
    Backup().run(backup_context(tmp_path, encryption={"recipients": [str(identity.to_public())]}))
    with pytest.raises(NoIdentity):
        Restore().run(_context(tmp_path))
    context = _context(tmp_path, identity={"secret": "night"})
    context.secrets = {"night": str(identity)}
    Restore().run(context)
    assert (tmp_path / "back" / "a.txt").read_text() == "a"


def test_a_place_without_backups_is_named(tmp_path: Path) -> None:
    (tmp_path / "to" / "nightly").mkdir(parents=True)
    with pytest.raises(NoBackup, match="nightly holds no folder with a manifest"):
        Restore().run(_context(tmp_path))


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"target": "back"}, "absolute path"),
        ({"target": "/"}, "name of a new file or folder"),
        ({"target": "/srv/.."}, "name of a new file or folder"),
        ({"target": "postgresql://r:hush@db/x"}, "password"),
        ({"backup": "newest"}, "is no backup's name"),
        ({"password": {"secret": "pg"}}, "only for a target that is a database"),
        ({"to_lsn": "16/B374D848"}, "need `wal`"),
        ({"target": "mysql://@db/"}, "names no user"),
        ({"table": "line"}, "table"),
        ({"wal": {"url": "/log"}, "table": "public.line"}, "as a whole"),
        ({"wal": {"url": "/log"}, "to_lsn": "there"}, "there"),
        ({"wal": {"url": "/log"}, "backup": "20261121T030000.000000Z-42"}, "leave `backup` out"),
        ({"wal": {"url": "/log"}, "to_lsn": "1/2", "to_time": "2026-11-27T00:00:00Z"}, "not both"),
        ({"wal": {"url": "/log"}, "to_time": "2026-11-27T00:00:00"}, "timezone"),
        ({"backups": {"url": "/to", "options": {"key_filename": "/x"}}}, "key_filename"),
    ],
)
def test_params_that_cannot_be_meant_are_refused(params: dict[str, Any], why: str) -> None:
    given = {"backups": {"url": "/to/nightly"}, "target": "/back"}
    with pytest.raises(ValidationError, match=why):
        RestoreParams.model_validate(given | params)


def test_a_database_is_a_host_and_a_path_is_on_one_member() -> None:
    backups = {"url": "s3://backups/orders"}
    database = RestoreParams.model_validate({"backups": backups, "target": "postgresql://r@db.internal/orders"})
    path = RestoreParams.model_validate({"backups": backups, "target": "/srv/back"})
    assert [reach.addresses for reach in Restore.reaches(database, "t")] == [("s3://backups",), ("db.internal:5432",)]
    assert [Restore.local_data(params) for params in (database, path)] == [[], ["target"]]
    assert Restore.needs(database, "t").own_credentials[0] == "s3"


class _Died(BaseException):
    """The worker is gone."""


def test_a_large_folder_goes_on_with_the_pack_it_was_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_tree, "PACK_FILES", 10)
    monkeypatch.setattr(plan, "_FRESH_NS", -(10**18))
    (tmp_path / "from").mkdir()
    for number in range(45):
        (tmp_path / "from" / f"f{number:02}").write_text(f"{number}")
    copies = [{"destination": str(tmp_path / "near")}]
    Backup().run(backup_context(tmp_path, copies=copies))
    reading, read = Place.reading, list[tuple[str, str]]()

    @contextmanager
    def fails(place: Place, name: str, version: str | None = None) -> Iterator[Any]:
        read.append(("to" if str(tmp_path / "to") in place.url else "near", name))
        if read[-1] == ("to", packs.pack_name(4)):
            raise PermissionError("the token has expired")
        with reading(place, name, version) as file:
            yield file

    monkeypatch.setattr(Place, "reading", fails)
    places = {"copies": [{"url": str(tmp_path / "near" / "nightly")}]}
    noted = restore_folder._note_done

    def dies(marker: int, aside: Path, number: int) -> None:
        if number == 3:
            raise _Died
        noted(marker, aside, number)

    with monkeypatch.context() as patched:
        patched.setattr(restore_folder, "_note_done", dies)
        with pytest.raises(_Died):
            Restore().run(_context(tmp_path, **places))
    assert not (tmp_path / "back").exists()
    assert read == [("to", packs.pack_name(number)) for number in (1, 2, 3)]
    read.clear()
    context = _context(tmp_path, **places)
    context.attempt = 2
    result = Restore().run(context)
    at = (("to", 3), ("to", 4), ("near", 4), ("near", 5))
    assert read == [(place, packs.pack_name(number)) for place, number in at]
    assert result["backup"].startswith(str(tmp_path / "near"))
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == [f"f{number:02}" for number in range(45)]
    assert [path.name for path in tmp_path.glob(".back*")] == []
