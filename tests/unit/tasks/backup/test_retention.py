"""Which backups and leftovers are removed, and which are not, in any order of attempts."""

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import fsspec
import pytest
from click.testing import CliRunner

from node.cli.main import rota
from tasks.backup import copies as copying
from tasks.backup import manifest, retention
from tasks.backup import params as backup_params
from tasks.backup.content import Vanished
from tasks.backup.keep import KeepRules
from tasks.backup.kind import Backup
from tasks.backup.manifest import NoBackup, folder_name, newest_backup, survey_url
from tasks.backup.params import BackupParams
from tasks.backup.proofs import FOLDER, Proof, write_proof
from tasks.backup.tree.packs import pack_name
from tasks.backup.verify import verify
from tasks.kind import Fenced
from tasks.places.place import Place
from testkit.fake_context import FakeContext

NIGHTLY = "nightly"
DAY_S = 86_400


class Killed(BaseException):
    """The worker is gone."""


class Site:
    """A folder to back up, and where its backups go."""

    def __init__(self, path: Path, url: str) -> None:
        self.path, self.destination = path, url
        (path / "from").mkdir()
        (path / "from" / "a").write_text("a")
        self.url = f"{url}/{NIGHTLY}"

    def attempt(self, token: int, checkpoint: Any = None, **params: Any) -> FakeContext[BackupParams]:
        source = {"type": "folder", "path": str(self.path / "from")}
        given = BackupParams.model_validate({"source": source, "destination": self.destination} | params)
        return FakeContext(given, self.path, task=NIGHTLY, token=token, checkpoint=checkpoint)

    def backup(self, token: int, **params: Any) -> dict[str, Any]:
        return Backup().run(self.attempt(token, **params))

    def killed(self, token: int, checkpoint: Any = None) -> FakeContext[BackupParams]:
        """An attempt that dies after writing everything but its manifest."""

        def kill(value: Any) -> None:
            if "finishing" in value:
                raise Killed

        context = self.attempt(token, checkpoint)
        context.before_checkpoint = kill
        with pytest.raises(Killed):
            Backup().run(context)
        return context

    def names(self) -> list[str]:
        return Place(self.url).folders()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, str(tmp_path / "to"))


@pytest.fixture
def in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """As an object store: there a manifest can be written though the folder is gone."""
    monkeypatch.delitem(backup_params.KEEPS_NOTHING, "memory")
    yield Site(tmp_path, "memory://kept")
    files = fsspec.filesystem("memory")
    if files.exists("/kept"):
        files.rm("/kept", recursive=True)


def _old(site: Site, day: int, token: int, like: str | None = None) -> str:
    """A folder of an earlier day, last written on it: a backup like `like` (a URL), or what an attempt left."""
    created = datetime(2020, 1, day, tzinfo=UTC)
    path = Path(site.url) / folder_name(created, token)
    path.mkdir(parents=True)
    (path / pack_name(1)).write_text("x")
    if like is not None:
        value = json.loads((Path(like) / manifest.NAME).read_text()) | {"created": created.isoformat()}
        (path / manifest.NAME).write_text(json.dumps(value))
    for file in path.iterdir():
        os.utime(file, (created.timestamp(), created.timestamp()))
    return path.name


def test_keep_removes_the_oldest_backups_and_old_leftovers(site: Site) -> None:
    first = site.backup(91)["url"]
    old = [_old(site, day, day, first) for day in (1, 3, 5)]
    for day in (2, 4, 6):
        _old(site, day, day)
    result = site.backup(92, keep=3)
    assert site.names() == [old[2], retention.name_of(first), retention.name_of(result["url"])]
    assert (result["removed"], result["not_removed"], result["unreadable"]) == (5, [], 0)


def test_the_last_proven_backup_is_kept_until_a_newer_one_is_proven(site: Site) -> None:
    first, second = (retention.name_of(site.backup(token)["url"]) for token in (1, 2))
    at = datetime(2026, 11, 21, tzinfo=UTC)

    def drilled(backup: str, token: int, result: Literal["proven", "failed"]) -> None:
        about: Any = {"drill": "drill", "run_id": "drill~1", "node": "node-2", "same_member": False}
        proof = Proof(backup=backup, result=result, token=token, began=at, finished=at + timedelta(token), **about)
        write_proof(Place(site.url), proof)

    drilled(first, 10, "proven")
    drilled(second, 11, "failed")
    third = retention.name_of(site.backup(3, keep=1)["url"])
    assert site.names() == [first, third, FOLDER]
    drilled(third, 12, "proven")
    newest = retention.name_of(site.backup(4, keep=1)["url"])
    assert site.names() == [third, newest, FOLDER]


def test_the_new_backup_is_kept_though_an_older_one_has_a_later_date(site: Site) -> None:
    first = site.backup(1)["url"]
    ahead = folder_name(datetime(2999, 1, 1, tzinfo=UTC), 2)
    Path(first).rename(Path(site.url) / ahead)
    result = site.backup(3, keep=1)
    assert site.names() == [retention.name_of(result["url"])]
    assert retention.surplus(survey_url(site.url).complete, result["url"], KeepRules(last=1), 3) == []


def test_files_with_foreign_names_are_not_touched(site: Site) -> None:
    first = Path(site.backup(1)["url"])
    first.rename(first.with_name(f"{first.name}.before-the-move"))
    for name in ("photos", "20200101", "20200101T000000Z-1", "20200101T000000.000000Z-01"):
        (Path(site.url) / name).mkdir()
        (Path(site.url) / name / "mine").write_text("mine")
        os.utime(Path(site.url) / name / "mine", (0, 0))
    (Path(site.url) / "photos" / manifest.NAME).write_text('{"name": "an app of the web"}')
    before = site.names()
    for token in (2, 3):
        assert site.backup(token, keep=1)["unreadable"] == 0
    assert set(site.names()) > set(before)
    assert len(site.names()) == len(before) + 1


@pytest.mark.parametrize("content", ["{ not whole", '{"version": 2}'])
def test_a_backup_with_an_unreadable_manifest_is_reported_and_kept(
    site: Site, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    odd = _old(site, 1, 1, site.backup(1)["url"])
    path = Path(site.url) / odd / manifest.NAME
    path.write_text(content)
    with pytest.raises(NoBackup, match=odd):
        newest_backup(f"{site.url}/{odd}")
    for token in (2, 3):
        result = site.backup(token, keep=1)
    assert site.names() == [odd, retention.name_of(result["url"])]
    assert result["unreadable"] == 1
    assert f"{path} is not a manifest of version 1" in caplog.text
    listed = CliRunner().invoke(rota, ["backup", "list", site.url])
    assert listed.exit_code == 0
    assert f"{path} is not a manifest" in listed.stderr
    assert odd not in listed.stdout
    verified = CliRunner().invoke(rota, ["backup", "verify", site.url])
    assert f"skipped: {path} is not a manifest" in verified.stderr
    with pytest.raises(NoBackup, match="is not a manifest"):
        manifest.Survey((), (f"{path} is not a manifest",), ()).newest(site.url)


def test_the_files_of_a_slower_running_attempt_are_kept(site: Site) -> None:
    """`overlap: allow`: an older token may belong to another run of the task, which has nothing to do with ours."""
    lately, long_ago = _old(site, 1, 1), _old(site, 2, 2)
    os.utime(Path(site.url) / lately / pack_name(1))
    mine = retention.name_of(site.backup(9, keep=1)["url"])
    assert site.names() == [lately, mine], f"{long_ago} was last written years ago"
    begun_today = folder_name(datetime.now(UTC) - timedelta(hours=23), 3)
    (Path(site.url) / begun_today).mkdir()
    newer = retention.name_of(site.backup(10, keep=1)["url"])
    assert site.names() == [lately, begun_today, newer]


def test_leftovers_of_killed_attempts_are_removed_without_keep(site: Site) -> None:
    dead = site.killed(1)
    again = site.killed(2, dead.saved[-1])
    assert len(site.names()) == 1, "the run's second attempt removed the first one's files"
    result = Backup().run(site.attempt(3, again.saved[-1]))
    assert site.names() == [retention.name_of(result["url"])]
    assert result["removed"] == 1, "the first attempt's files were removed before"
    other_run = site.killed(4).saved[-1]["begun"][0]
    Path(site.url, other_run).rename(Path(site.url, yesterday := folder_name(datetime(2020, 1, 1, tzinfo=UTC), 4)))
    os.utime(Path(site.url, yesterday, pack_name(1)), (time.time() - 2 * DAY_S,) * 2)
    site.backup(5)
    assert yesterday not in site.names()
    assert len(survey_url(site.url).complete) == 2


def test_a_complete_backup_of_an_unreported_attempt_is_kept(site: Site) -> None:
    made = Backup().run(first := site.attempt(1))
    Backup().run(site.attempt(2, first.saved[-1]))
    assert retention.name_of(made["url"]) in site.names()


def test_the_next_attempt_removes_what_is_left_of_backups_that_were_being_removed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their age does not matter: the checkpoint names them before they go. The same holds at a further destination."""
    copies: Any = [{"destination": f"{site.destination}-too", "keep": 1}]
    old = [retention.name_of(site.backup(token, copies=copies)["url"]) for token in (1, 2)]
    first = site.attempt(3, keep=1, copies=copies)

    def die(place: Place) -> None:
        place.remove(manifest.NAME)
        if place.url.startswith(f"{site.destination}-too"):
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(retention, "remove", die)
        patch.setattr(copying, "run_errands", lambda errands, step: [errand._work(errand) for errand in errands])
        Backup().run(first)
    urls = (site.url, f"{site.destination}-too/{NIGHTLY}")
    assert [set(old) & set(Place(url).folders()) for url in urls] == [set(old), {old[1]}]
    second = site.attempt(4, first.saved[-1], keep=1, copies=copies)
    second.attempt = 2
    made = retention.name_of(Backup().run(second)["url"])
    assert [Place(url).folders() for url in urls] == [[made], [made]]


def test_of_a_complete_backup_that_is_to_be_copied_only_cut_uploads_go(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, other = _old(site, 1, 1), _old(site, 2, 2)
    aborted: list[str] = []

    def abort(place: Place, chosen: Callable[[str], bool]) -> None:
        aborted.extend(name for name in (complete, other, folder_name(datetime.now(UTC), 9)) if chosen(name))

    monkeypatch.setattr(Place, "remove_uploads", abort)
    retention.remove_unfinished(Place(site.url), [complete, other], 3, complete)
    assert site.names() == [complete]
    assert aborted == [complete, other]


def test_an_attempt_whose_files_were_removed_makes_no_backup_and_removes_none(in_memory: Site) -> None:
    """A passes its last checkpoint and is paused; B takes over, removes what A wrote, and finishes; A resumes."""
    paused = in_memory.attempt(1, keep=1)
    made: list[str] = []

    def overtake(value: Any) -> None:
        if "finishing" in value:
            made.append(Backup().run(in_memory.attempt(2, paused.saved[-1], keep=1))["url"])

    paused.before_checkpoint = overtake
    with pytest.raises(Vanished, match="another attempt"):
        Backup().run(paused)
    assert in_memory.names() == [retention.name_of(made[0])]
    assert verify(in_memory.url).ok


def test_an_attempt_overtaken_during_its_manifest_write_removes_nothing(
    in_memory: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = in_memory.attempt(1, keep=1)
    made: list[str] = []
    write = manifest.write_manifest

    def overtake(place: Place, done: Any) -> None:
        monkeypatch.setattr(manifest, "write_manifest", write)
        made.append(in_memory.backup(2, keep=1)["url"])
        place.remove_folder()
        write(place, done)

    def fence(value: Any) -> None:
        if made and "finishing" not in value:
            raise Fenced

    monkeypatch.setattr(manifest, "write_manifest", overtake)
    paused.before_checkpoint = fence
    with pytest.raises((Fenced, Vanished)):
        Backup().run(paused)
    assert in_memory.names() == [retention.name_of(made[0])], "no manifest without files, and B's backup is there"


def test_a_fenced_attempts_complete_backup_is_kept_and_removes_nothing(site: Site) -> None:
    first = site.backup(1)["url"]
    late = site.attempt(2, keep=1)

    def fence(value: Any) -> None:
        if "finished" in value:
            raise Fenced

    late.before_checkpoint = fence
    with pytest.raises(Fenced):
        Backup().run(late)
    assert {first} < {found.url for found in survey_url(site.url).complete}


def test_backups_of_newer_attempts_are_kept(site: Site) -> None:
    newer = site.backup(7)["url"]
    mine = site.backup(6, keep=1)
    assert site.names() == sorted(map(retention.name_of, (newer, mine["url"])))
    assert mine["removed"] == 0


def test_a_complete_backup_succeeds_though_old_ones_cannot_be_removed(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = site.backup(1)["url"]

    def refuse(place: Place) -> None:
        raise PermissionError(f"no right to delete {place.url}")

    monkeypatch.setattr(Place, "remove_folder", refuse)
    result = site.backup(2, keep=1)
    assert result["removed"] == 0
    assert len(result["not_removed"]) == 1
    assert f"no right to delete {first}" in result["not_removed"][0]
    assert f"no right to delete {first}" in caplog.text
    monkeypatch.setattr(Place, "folders", refuse)
    assert "no right to delete" in site.backup(3, keep=1)["not_removed"][0]


def test_a_file_name_that_is_not_utf8_is_reported_and_leaves_no_copy(site: Site) -> None:
    os.mkfifo(os.fsencode(site.path / "from") + b"/caf\xe9")
    assert site.backup(1)["remarks"] == 1
    assert "caf\\udce9" in newest_backup(site.url).remarks[0]


def test_a_failed_manifest_write_leaves_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(place: Place, done: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(manifest, "write_manifest", full)
    with pytest.raises(OSError, match="no space"):
        site.backup(1)
    assert site.names() == []


def test_no_manifest_is_written_if_the_files_were_changed(site: Site) -> None:
    context = site.attempt(1)

    def change(value: Any) -> None:
        if "finishing" in value:
            with Path(site.url, value["begun"][-1], pack_name(1)).open("ab") as file:
                file.write(b"more")
        if "finished" in value:
            raise Killed

    context.before_checkpoint = change
    with pytest.raises(Vanished, match="now the file has"):
        Backup().run(context)
    assert site.names() == []


def test_a_folder_with_a_greater_token_is_not_a_leftover(site: Site) -> None:
    newer = _old(site, 1, 9)
    site.backup(8)
    assert newer in site.names()
