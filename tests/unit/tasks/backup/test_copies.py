"""Copies at further destinations: made at once or afterwards, owed if a destination fails, and caught up."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tasks.backup import tee
from tasks.backup.copies import lacking_backups
from tasks.backup.keep import KeepRules
from tasks.backup.kind import Backup
from tasks.backup.manifest import Manifest, folder_name, survey_url
from tasks.backup.restore import restore_backup
from tasks.backup.tree import plan, read_tree
from tasks.backup.verify import verify
from tasks.kind import Fenced
from testkit.fake_context import FakeContext
from tests.unit.tasks.backup.backups import backup_context, fill


def _context(tmp_path: Path, token: int = 1, attempt: int = 1, copy: str = "now", **params: Any) -> FakeContext[Any]:
    copies = [{"destination": str(tmp_path / name), "copy": copy} for name in ("near", "far")]
    context = backup_context(tmp_path, token, **{"copies": copies, **params})
    context.attempt = attempt
    context.run_id = f"nightly~{token - attempt + 1}"
    return context


def _names(tmp_path: Path, place: str) -> list[str]:
    folder = tmp_path / place / "nightly"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _objects(tmp_path: Path, place: str) -> set[tuple[str, int]]:
    found = (tmp_path / place / "nightly").glob("*/*")
    return {(path.name, path.stat().st_size) for path in found if not path.name.endswith(".json")}


def _all_whole(tmp_path: Path, *places: str) -> None:
    for place in places:
        for backup in survey_url(f"{tmp_path}/{place}/nightly").complete:
            assert verify(backup.url).ok
    assert len({tuple(_names(tmp_path, place)) for place in places}) == 1


@pytest.mark.parametrize("copy", ["now", "later"])
def test_every_destination_gets_the_same_backup(tmp_path: Path, copy: str) -> None:
    fill(tmp_path / "from")
    (tmp_path / "from" / "big").write_bytes(os.urandom(3 << 20))
    result = Backup().run(_context(tmp_path, copy=copy))
    assert (result["owed"], result["degraded"]) == ([], None)
    assert result["copies"] == [f"{tmp_path}/near/nightly", f"{tmp_path}/far/nightly"]
    _all_whole(tmp_path, "to", "near", "far")
    restore_backup(f"{tmp_path}/far/nightly", str(tmp_path / "back"))
    assert (tmp_path / "back" / "big").read_bytes() == (tmp_path / "from" / "big").read_bytes()


def test_a_destination_that_fails_is_owed_the_backup_and_the_next_run_catches_up(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    Backup().run(_context(tmp_path, 1))
    (tmp_path / "near" / "nightly").rename(tmp_path / "kept")
    (tmp_path / "near" / "nightly").write_text("not a folder")
    for token in (2, 3):
        result = Backup().run(_context(tmp_path, token))
        (owed,) = result["owed"]
        assert (owed["destination"], owed["reason"]) == (f"{tmp_path}/near/nightly", "unreachable")
        assert result["degraded"].startswith(f"{tmp_path}/near/nightly lacks {token}: ")
        assert result["copies"] == [f"{tmp_path}/far/nightly"]
    _all_whole(tmp_path, "to", "far")
    (tmp_path / "near" / "nightly").unlink()
    assert Backup().run(_context(tmp_path, 4))["owed"] == []
    _all_whole(tmp_path, "to", "near", "far")
    assert len(_names(tmp_path, "near")) == 4


def test_a_missing_secret_and_another_tasks_backups_are_named(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a").write_text("a")
    other = {"source": {"type": "folder", "path": str(tmp_path / "other")}, "destination": str(tmp_path / "far")}
    theirs = Backup().run(backup_context(tmp_path, 1, **other))["url"]
    secret = {"destination": "s3://near/x", "options": {"key": {"secret": "k"}, "secret": {"secret": "s"}}}
    copies = [secret, {"destination": str(tmp_path / "far")}]
    result = Backup().run(_context(tmp_path, 2, copies=copies))
    assert [one["reason"] for one in result["owed"]] == ["credentials", "other_task"]
    assert "secret 'k'" in result["owed"][0]["why"]
    assert "holds backups of another source" in result["owed"][1]["why"]
    assert [backup.url for backup in survey_url(f"{tmp_path}/far/nightly").complete] == [theirs]
    _all_whole(tmp_path, "to")


def test_a_destination_that_falls_behind_is_copied_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tee, "BEHIND_MAX_BYTES", 10)
    fill(tmp_path / "from")
    assert Backup().run(_context(tmp_path))["owed"] == []
    assert "behind the first destination; it is copied afterwards" in caplog.text
    _all_whole(tmp_path, "to", "near", "far")


def test_each_destination_keeps_by_its_own_rules(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    copies = [{"destination": str(tmp_path / "near"), "keep": 2}, {"destination": str(tmp_path / "far")}]
    for token in range(1, 5):
        assert Backup().run(_context(tmp_path, token, copies=copies, keep=1))["owed"] == []
    assert [len(_names(tmp_path, place)) for place in ("to", "near", "far")] == [1, 2, 4]


def test_a_failed_attempt_leaves_nothing_at_any_destination(tmp_path: Path) -> None:
    fill(tmp_path / "from")

    def fence(value: Any) -> None:
        if "finishing" in value:
            raise Fenced

    context = _context(tmp_path)
    context.before_checkpoint = fence
    with pytest.raises(Fenced):
        Backup().run(context)
    assert [_names(tmp_path, place) for place in ("to", "near", "far")] == [[], [], []]


def test_an_empty_copy_beside_older_backups_is_told_and_filled(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    assert Backup().run(_context(tmp_path, 1))["unusual"] == []
    (tmp_path / "far").rename(tmp_path / "unmounted")
    result = Backup().run(_context(tmp_path, 2))
    told = f"{tmp_path}/far/nightly held no backup, and {tmp_path}/to/nightly holds 1: "
    assert result["unusual"] == [f"{told}it is new, was emptied, or its disk is not mounted"]
    assert (result["owed"], result["degraded"]) == ([], None)
    _all_whole(tmp_path, "to", "near", "far")
    (tmp_path / "to").rename(tmp_path / "unmounted too")
    found = Backup().run(_context(tmp_path, 3))["unusual"]
    assert [each.partition(": ")[0] for each in found] == [
        f"{tmp_path}/to/nightly held no backup, and {tmp_path}/{place}/nightly holds 2" for place in ("far", "near")
    ]


def test_a_copy_that_is_the_first_destination_or_in_the_source_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    (tmp_path / "to").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "to")
    (tmp_path / "far").symlink_to(tmp_path / "from" / "deep")
    result = Backup().run(_context(tmp_path))
    assert [one["reason"] for one in result["owed"]] == ["access", "access"]
    assert "the first destination itself" in result["owed"][0]["why"]
    assert "the destination is inside the folder to back up" in result["owed"][1]["why"]
    assert len(_names(tmp_path, "to")) == 1
    assert not (tmp_path / "from" / "deep" / "nightly").exists()


class Killed(BaseException):
    """The worker is gone."""


def test_the_next_attempt_goes_on_copying_a_complete_backup(tmp_path: Path) -> None:
    fill(tmp_path / "from")

    def kill(value: Any) -> None:
        if "finished" in value:
            raise Killed

    first = _context(tmp_path, 1)
    first.before_checkpoint = kill
    with pytest.raises(Killed):
        Backup().run(first)
    (made,) = _names(tmp_path, "to")
    far = tmp_path / "far" / "nightly" / made
    (far / "manifest.json").unlink()
    stamps = {path.name: path.stat().st_ino for path in far.iterdir()}
    second = _context(tmp_path, 2, attempt=2)
    second.checkpoint = first.saved[-1]
    result = Backup().run(second)
    assert (result["url"], result["owed"]) == (f"{tmp_path}/to/nightly/{made}", [])
    assert {path.name: path.stat().st_ino for path in far.iterdir() if path.name in stamps} == stamps
    _all_whole(tmp_path, "to", "near", "far")


def test_what_is_whole_at_a_copy_is_not_sent_again_by_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_tree, "PACK_FILES", 3)
    monkeypatch.setattr(plan, "_FRESH_NS", -(10**18))
    fill(tmp_path / "from")

    def kill(value: Any) -> None:
        if "finishing" in value:
            raise Killed

    first = _context(tmp_path, 1)
    first.before_checkpoint = kill
    with pytest.raises(Killed):
        Backup().run(first)
    (dead,) = _names(tmp_path, "near")
    end_s = time.monotonic() + 30
    while not _objects(tmp_path, "near") == _objects(tmp_path, "far") == _objects(tmp_path, "to"):
        assert time.monotonic() < end_s, "the threads that write copies go on"
        time.sleep(0.02)
    packs = {path.name: path for path in (tmp_path / "near" / "nightly" / dead).iterdir()}
    assert len(packs) > 1
    spoilt = min(packs.values())
    spoilt.write_bytes(bytes(spoilt.stat().st_size))
    before = {name: path.stat().st_ino for name, path in packs.items()}
    second = _context(tmp_path, 2, attempt=2)
    second.checkpoint = first.saved[-1]
    assert Backup().run(second)["owed"] == []
    _all_whole(tmp_path, "to", "near", "far")
    (made,) = _names(tmp_path, "near")
    for name, number in before.items():
        assert (tmp_path / "near" / "nightly" / made / name).stat().st_ino == number or name == spoilt.name


def test_of_one_run_the_backup_with_the_greatest_token_counts(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    first = _context(tmp_path, 1)
    name = Backup().run(first)["url"].rpartition("/")[2]
    for place in ("to", "near", "far"):
        (tmp_path / place / "nightly" / name).rename(tmp_path / f"{place}-{name}")

    def thaw(value: Any) -> None:
        """The first attempt was frozen after its checkpoint, and writes its manifest only now."""
        if "finishing" in value:
            for place in ("to", "near", "far"):
                (tmp_path / f"{place}-{name}").rename(tmp_path / place / "nightly" / name)
        if "finished" in value:
            assert [backup.token for backup in survey_url(f"{tmp_path}/to/nightly").complete] == [2]

    context = _context(tmp_path, 2, attempt=2)
    context.checkpoint, context.before_checkpoint = first.saved[-1], thaw
    second = Backup().run(context)["url"]
    for place in ("to", "near", "far"):
        assert _names(tmp_path, place) == [second.rpartition("/")[2]], "the first one was removed by the second"


def test_what_a_destination_lacks_is_what_its_keep_would_retain() -> None:
    def backup(day: int) -> Manifest:
        at = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(days=day)
        return Manifest(
            task="nightly",
            run_id=f"nightly~{day}",
            attempt=1,
            token=day,
            created=at,
            finished=at,
            source_type="folder",
            source={},
            tools={},
            files=(),
            url=f"/to/nightly/{folder_name(at, day)}",
        )

    days = [backup(day) for day in range(1, 8)]
    done = days[-1]
    assert lacking_backups(days, [], done, None) == days[:-1]
    assert lacking_backups(days, days[:4], done, None) == days[4:6]
    assert lacking_backups(days, [days[5]], done, KeepRules(last=3)) == [days[4]]
    assert lacking_backups(days[4:], days[:4], done, KeepRules(last=7)) == days[4:6]
