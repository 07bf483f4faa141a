"""The identity of a backup's source: another source at its path is refused, and `keep` counts one source only."""

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tasks import disk_identity
from tasks.backup import lineage, manifest
from tasks.backup.kind import Backup
from tasks.backup.manifest import survey_url
from tasks.backup.params import BackupParams
from tasks.places.mounts import Mount
from tasks.places.place import Place
from tasks.source_identity import OtherSource, identity_id
from testkit.fake_context import FakeContext

MOUNTS = "22 1 254:0 / / rw - ext4 /dev/vda rw\n23 22 0:9 / /run rw - tmpfs tmpfs rw\n"
MACHINE_ID = "3d1219c7c4c5404aaa1f6d2a48adfda4"


class Site:
    """A path at which nodes have a source, and where its backups go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = path / "uploads"
        self.url = f"{path}/to/nightly"
        self._token = 0

    def have(self, source: Path) -> None:
        """Put this at the path from now on."""
        self.source.unlink(missing_ok=True)
        self.source.symlink_to(source)

    def backup(self, node: str = "node-1", *, shared: bool = False, **params: Any) -> dict[str, Any]:
        """The result of one attempt on `node`."""
        self._token += 1
        source = {"type": "folder", "path": str(self.source), "shared": shared}
        given = {"source": source, "destination": f"{self.path}/to", "keep": 2} | params
        context = FakeContext(
            BackupParams.model_validate(given), self.path, task="nightly", token=self._token, node=node
        )
        self.last = context
        return Backup().run(context)

    def refused(self, node: str, **params: Any) -> str:
        """The error of an attempt that is refused; it has written and removed nothing."""
        before = self.everything()
        with pytest.raises(OtherSource) as raised:
            self.backup(node, **params)
        assert self.everything() == before
        assert self.last.saved == [], "not even a checkpoint"
        return str(raised.value)

    def everything(self) -> list[str]:
        """All files and folders where the backups are."""
        return sorted(str(path) for path in Path(f"{self.path}/to").rglob("*"))

    def urls(self) -> list[str]:
        """The backups there, the oldest first."""
        return [found.url for found in reversed(survey_url(self.url).complete)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "photo").write_text("the real one")
    made.have(tmp_path / "one")
    return made


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than the tests' own."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to write to")
    folder = Path(tempfile.mkdtemp(dir=memory))
    yield folder
    shutil.rmtree(folder)


def test_another_nodes_folder_at_the_same_path_is_refused_and_backups_are_kept(site: Site) -> None:
    """An older task, neither bound nor shared: it is accepted only where its backups were made."""
    good = [site.backup("node-1")["url"], site.backup("node-1")["url"]]
    told = site.refused("node-2")
    assert site.urls() == good
    assert f"{good[1]}, made on node-1, is of node node-1; on node-2 the source now is node node-2" in told
    assert "group: {node: node-1}" in told
    assert "another destination" in told
    assert "set `shared: true`" in told
    assert site.backup("node-1")["removed"] == 1


def test_a_shared_source_is_one_lineage_while_it_is_on_one_file_system(site: Site, other_disk: Path) -> None:
    good = [site.backup(node, shared=True)["url"] for node in ("node-1", "node-2")]
    assert site.backup("node-3", shared=True)["removed"] == 1
    site.have(other_disk)
    assert "file system" in site.refused("node-2", shared=True)
    assert good[1] in site.urls()


def test_an_unmounted_disk_is_another_source(site: Site, other_disk: Path) -> None:
    site.have(other_disk)
    good = [site.backup()["url"], site.backup()["url"]]
    site.have(site.path / "one")  # the folder below the mount point
    site.refused("node-1")
    site.have(other_disk)
    assert site.backup()["removed"] == 1
    assert good[1] in site.urls()


def test_a_moved_source_is_accepted_by_its_id_only(site: Site, other_disk: Path) -> None:
    site.backup()
    site.backup()
    site.have(other_disk)
    told = site.refused("node-1")
    accepted = told.partition("accept_source: ")[2][:16]
    assert site.backup(accept_source=accepted)["removed"] == 1, "the lineage continues"
    assert site.backup(accept_source=[accepted])["removed"] == 1
    site.refused("node-2", accept_source=accepted)
    assert site.backup()["removed"] == 1, "accept_source is needed once"
    site.have(site.path / "one")
    site.refused("node-1", accept_source=accepted)


def test_changing_shared_later_keeps_the_lineage(site: Site) -> None:
    for shared in (False, True, False):
        site.backup("node-1", shared=shared)
    assert len({found.lineage for found in survey_url(site.url).complete}) == 1


def test_another_path_in_the_params_is_another_source(site: Site) -> None:
    site.backup()
    (site.path / "two").mkdir()
    other = {"type": "folder", "path": str(site.path / "two")}
    assert f"path {site.path / 'two'}" in site.refused("node-1", source=other)
    site.backup(source={"type": "folder", "path": f"{site.source}/"})


def test_a_recreated_folder_is_the_same_source(site: Site) -> None:
    site.backup()
    (site.path / "three").mkdir()
    site.have(site.path / "three")
    site.backup()


def _as_before(url: str) -> None:
    """Make it a backup of a version that recorded no sources."""
    path = Path(url) / manifest.NAME
    path.write_text(
        json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k not in ("node", "identity", "lineage")})
    )


def test_backups_without_a_recorded_source_are_neither_counted_nor_removed(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    old = [site.backup()["url"], site.backup()["url"]]
    for url in old:
        _as_before(url)
    new = [site.backup("node-2"), site.backup("node-2"), site.backup("node-2")]
    assert [one["removed"] for one in new] == [0, 0, 1]
    assert [one["others"] for one in new] == [2, 2, 2]
    assert site.urls() == [*old, new[1]["url"], new[2]["url"]]
    accepted = caplog.text.rpartition("accept_source: ")[2][:16]
    adopting = site.backup("node-2", accept_source=accepted)
    assert (adopting["removed"], adopting["others"]) == (3, 0)
    assert site.urls() == [new[2]["url"], adopting["url"]]


def test_two_first_runs_on_two_nodes_keep_each_others_backups(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """`overlap: allow`: neither run has seen the other's backup."""
    monkeypatch.setattr(lineage, "newest_identified", lambda place: None)
    for node in ("node-1", "node-2", "node-1", "node-2", "node-2"):
        result = site.backup(node)
    assert result["others"] == 2
    assert sorted(str(found.node) for found in survey_url(site.url).complete) == ["node-1"] * 2 + ["node-2"] * 2


def test_an_unreadable_manifest_is_skipped(site: Site) -> None:
    first = site.backup()["url"]
    (Path(site.backup()["url"]) / manifest.NAME).write_text("{ not whole")
    found = lineage.newest_identified(Place(site.url))
    assert found is not None
    assert found.url == first
    site.refused("node-2")


def test_a_node_that_may_write_but_not_list_makes_a_backup_without_a_lineage(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good = [site.backup()["url"], site.backup()["url"]]

    def refuse(place: Place) -> None:
        raise PermissionError("AccessDenied: ListBucket")

    with monkeypatch.context() as patched:
        patched.setattr(Place, "folders", refuse)
        blind = site.backup("node-2")
    assert "AccessDenied" in caplog.text
    assert site.urls() == [*good, blind["url"]]
    assert site.backup("node-1")["removed"] == 1
    assert blind["url"] in site.urls()


def _database(path: Path, application: int = 0) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA application_id = {application}")
        database.execute("CREATE TABLE t (a)")
        database.commit()


@pytest.mark.parametrize("application", [0, 0x1234])
def test_a_database_is_identified_by_application_id_or_file(site: Site, application: int) -> None:
    path = site.path / "app.db"
    source = {"type": "sqlite", "path": str(path)}
    _database(path, application)
    site.backup(source=source)
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO t VALUES (1)")
        database.commit()
    site.backup(source=source)
    _database(site.path / "new", application)
    (site.path / "new").rename(path)
    if application:
        site.backup(source=source)
        _database(site.path / "new", 0x999)
        (site.path / "new").rename(path)
        assert "application_id 0x1234; on node-1 the source now is application_id 0x999" in site.refused(
            "node-1", source=source
        )
    else:
        assert "inode of the file" in site.refused("node-1", source=source)


def test_an_invalid_source_id_is_refused_at_registration(site: Site) -> None:
    with pytest.raises(ValidationError, match="accept_source"):
        site.backup(accept_source="node-2")


def test_a_containers_machine_id_is_ignored() -> None:
    real = disk_identity.machine(MACHINE_ID, MOUNTS, in_container=False)
    assert len(real) == 16
    assert real != MACHINE_ID[:16]
    assert disk_identity.machine(MACHINE_ID, MOUNTS, in_container=True) == ""
    assert disk_identity.machine(MACHINE_ID, MOUNTS.replace("- ext4", "- overlay"), in_container=False) == ""
    for none in ("", "uninitialized", MACHINE_ID.upper()):
        assert disk_identity.machine(none, MOUNTS, in_container=False) == ""


def test_the_machine_id_is_omitted_for_shared_sources_on_network_file_systems() -> None:
    local, network = Mount("/", "ext4"), Mount("/", "nfs")
    here = disk_identity.place_facts("node-1", "m1", local, shared=True)
    assert (here["machine"], here["node"]) == ("m1", "")
    assert disk_identity.place_facts("node-1", "m1", network, shared=True)["machine"] == ""
    alone = disk_identity.place_facts("node-1", "m1", network, shared=False)
    assert alone == {"machine": "m1", "node": "node-1", "file_system": "nfs"}


def test_a_lineage_is_named_after_its_first_source(site: Site) -> None:
    site.backup()
    [found] = survey_url(site.url).complete
    assert found.identity is not None
    assert found.lineage == identity_id(found.identity)
