"""The files, links, mounts and servers that a task of kind `backup` may not reach."""

import os
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tasks.access import EVERYTHING, Access, AccessRefused
from tasks.backup.kind import Backup
from tasks.backup.params import BackupParams, backup_location
from tasks.backup.restore import restore_backup
from tasks.backup.sources import sqlite
from tasks.backup.tree import read_tree, walk
from tasks.file_guard import open_within, path_of
from testkit.fake_context import FakeContext

SECRET = "the-secret-of-the-members"


class Site:
    """A node's files: data, secrets, a folder to back up and one for backups."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data, self.own, self.srv, self.backups = (root / name for name in ("data", "own", "srv", "backups"))
        for each in (self.data / "raft", self.own, self.srv, self.backups, root / "scratch"):
            each.mkdir(parents=True)
        (self.data / "raft" / "raft.sqlite").write_text(SECRET)
        (self.data / "history.db").write_text(SECRET)
        (self.own / "rota_secret").write_text(SECRET)
        (self.srv / "a.txt").write_text("a")
        own = (str(self.data), str(self.own), str(self.own / "rota_secret"))
        self.access = Access("node-1", (str(self.srv),), (str(self.backups),), ("db",), (), own)
        self.attempts = 0

    def back_up(
        self, source: Any, destination: Any = None, access: Access | None = None, **more: Any
    ) -> dict[str, Any]:
        given = source if isinstance(source, dict) else {"type": "folder", "path": str(source)}
        params = BackupParams.model_validate({"source": given, "destination": str(destination or self.backups), **more})
        self.attempts += 1
        made = FakeContext(params, self.root / "scratch", task="t", token=self.attempts, access=access or self.access)
        return Backup().run(made)

    def everywhere(self) -> Access:
        """The policy of a node that allows every folder."""
        return Access("node-1", ("/",), ("/",), ("*",), ("*",), self.access.own)

    def restored(self, result: dict[str, Any]) -> dict[str, str]:
        """What is in a backup: names and contents."""
        back = self.root / f"back-{self.attempts}"
        restore_backup(result["url"], str(back))
        return {
            path.relative_to(back).as_posix(): path.read_text()
            for path in back.rglob("*")
            if path.is_file() and not path.is_symlink()
        }


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_folder_in_a_root_is_backed_up_and_links_in_it_stay_links(site: Site) -> None:
    (site.srv / "out").symlink_to(site.own)
    assert site.restored(site.back_up(site.srv)) == {"a.txt": "a"}
    assert (site.root / "back-1" / "out").is_symlink()


@pytest.mark.parametrize("access", ["roots", "everywhere"])
@pytest.mark.parametrize(
    "named",
    [
        lambda site: site.own,
        lambda site: site.data,
        lambda site: site.data / "raft",
        lambda site: f"{site.srv}/../own",
        lambda site: f"/{site.own}",
        lambda site: "/proc/self/root",
        lambda site: f"/proc/self/root{site.own}",
        lambda site: f"/proc/{os.getpid()}",
        lambda site: _link(site.srv / "link", site.own),
        lambda site: _link(site.srv / "above", site.root) / "own",
        lambda site: _link(site.srv / "deep", site.data) / "raft",
    ],
)
def test_no_path_reaches_the_nodes_own_files(site: Site, named: Callable[[Site], Any], access: str) -> None:
    path = str(named(site)).replace("//", "/", 1)
    policy = site.access if access == "roots" else site.everywhere()
    if path == "/proc/self/root" and access == "everywhere":
        path = "/proc"  # through the link it is `/`, which that node allows
    with pytest.raises(AccessRefused):
        site.back_up(path, access=policy)
    assert list(site.backups.iterdir()) == [], "the destination is not contacted"


def _link(path: Path, to: Path) -> Path:
    path.symlink_to(to)
    return path


def test_the_nodes_own_files_below_a_source_are_skipped_and_reported(site: Site) -> None:
    result = site.back_up(site.root, site.root.parent / f"{site.root.name}-to", site.everywhere())
    content = site.restored(result)
    assert "srv/a.txt" in content
    assert [name for name, text in content.items() if SECRET in text or name.startswith(("own", "data"))] == []
    assert result["remarks"] == 2


def test_a_hard_link_to_the_nodes_own_files_is_skipped(site: Site) -> None:
    (site.srv / "innocent").hardlink_to(site.own / "rota_secret")
    (site.srv / "journal").hardlink_to(site.data / "raft" / "raft.sqlite")
    result = site.back_up(site.srv)
    assert (site.restored(result), result["remarks"]) == ({"a.txt": "a"}, 2)


@contextmanager
def _bound(what: Path, at: Path) -> Iterator[None]:
    """A bind mount, where this user may make one; else the test is skipped."""
    import subprocess

    at.mkdir(exist_ok=True)
    if subprocess.run(["mount", "--bind", what, at], capture_output=True, check=False).returncode:
        pytest.skip("no bind mounts here")
    try:
        yield
    finally:
        subprocess.run(["umount", at], check=True)


@pytest.mark.parametrize("what", ["own", "data", "data/raft"])
def test_a_bind_mount_of_the_nodes_own_files_is_recognised(site: Site, what: str) -> None:
    with _bound(site.root / what, site.srv / "mounted"):
        for path in (site.srv / "mounted", f"{site.srv}/mounted/."):
            with pytest.raises(AccessRefused, match="another path to"):
                site.back_up(path)
        with pytest.raises(AccessRefused, match="another path to"):
            site.back_up({"type": "sqlite", "path": str(next((site.srv / "mounted").iterdir()))})
        result = site.back_up(site.srv)
        assert (site.restored(result), result["remarks"]) == ({"a.txt": "a"}, 1)


def test_a_file_replaced_by_a_link_before_opening_is_not_followed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.srv / "b").write_text("b")

    def swapped(inside: int, name: str, **kwargs: Any) -> int:
        if name == "b":
            os.unlink(name, dir_fd=inside)
            os.symlink(site.own / "rota_secret", name, dir_fd=inside)
        return open_within(inside, name, **kwargs)

    monkeypatch.setattr(read_tree, "open_within", swapped)
    assert site.restored(site.back_up(site.srv)) == {"a.txt": "a"}


def test_a_folder_replaced_by_a_link_during_reading_is_not_followed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap comes before the folder is opened, and after: an open folder does not change."""
    for name in ("early", "late"):
        (site.srv / name).mkdir()
        (site.srv / name / "rota_secret").write_text("mine")

    def swapped(inside: int, name: str, **kwargs: Any) -> int:
        for which, when in (("early", name == "early"), ("late", path_of(inside).endswith("/late"))):
            if when and (site.srv / which).is_dir() and not (site.srv / which).is_symlink():
                (site.srv / which).rename(site.root / which)
                (site.srv / which).symlink_to(site.own)
        return open_within(inside, name, **kwargs)

    monkeypatch.setattr(read_tree, "open_within", swapped)
    monkeypatch.setattr(walk, "open_within", swapped)
    content = site.restored(site.back_up(site.srv))
    assert content == {"a.txt": "a", "late/rota_secret": "mine"}


def test_a_named_pipe_in_place_of_a_file_does_not_block(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.srv / "b").write_text("b")

    def swapped(inside: int, name: str, **kwargs: Any) -> int:
        if name == "b":
            os.unlink(name, dir_fd=inside)
            os.mkfifo(name, dir_fd=inside)
        return open_within(inside, name, **kwargs)

    monkeypatch.setattr(read_tree, "open_within", swapped)
    assert site.restored(site.back_up(site.srv)) == {"a.txt": "a"}


def test_the_file_that_sqlite_opens_is_the_one_that_was_checked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (site.srv / "app.db", site.data / "theirs.db"):
        with closing(sqlite3.connect(path)) as made:
            made.execute("CREATE TABLE t (x)")
            made.commit()
    source = {"type": "sqlite", "path": str(site.srv / "app.db")}
    assert site.back_up(source)["bytes"] > 0
    with pytest.raises(AccessRefused):
        site.back_up({"type": "sqlite", "path": str(site.data / "theirs.db")})
    opened = sqlite._open

    def swapped(path: Path) -> sqlite3.Connection:
        path.unlink()
        path.symlink_to(site.data / "theirs.db")
        return opened(path)

    monkeypatch.setattr(sqlite, "_open", swapped)
    with pytest.raises(AccessRefused, match="node-1's own"):
        site.back_up(source)


@pytest.mark.parametrize(
    "named",
    [
        lambda site: site.data,
        lambda site: site.own,
        lambda site: f"file://{site.root}/own",
        lambda site: f"local://{site.root}/elsewhere",
        lambda site: f"{site.backups}/../data",
        lambda site: _link(site.backups / "link", site.data),
        lambda site: "/proc/self/cwd",
        lambda site: site.root / "elsewhere",
    ],
)
def test_a_destination_outside_the_policy_is_refused(site: Site, named: Callable[[Site], Any]) -> None:
    before = sorted(site.root.rglob("*"))
    with pytest.raises(AccessRefused, match=r"ROTA_DESTINATION_ROOTS|own"):
        site.back_up(site.srv, named(site))
    assert [path for path in sorted(site.root.rglob("*")) if path not in before and path.name != "link"] == []


def test_a_task_folder_that_is_a_link_is_refused_as_destination(site: Site) -> None:
    (site.backups / "t").symlink_to(site.data)
    with pytest.raises(AccessRefused, match="node-1's own"):
        site.back_up(site.srv)
    assert sorted(path.name for path in site.data.iterdir()) == ["history.db", "raft"]


@pytest.fixture
def listener() -> Iterator[tuple[str, list[bytes]]]:
    """The attacker's server: its address, and what it received."""
    told: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def hear() -> None:
            while True:
                try:
                    with closing(server.accept()[0]) as caller:
                        told.append(caller.recv(4096))
                except OSError:
                    return

        thread = threading.Thread(target=hear, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", told
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me@{at}/x",
        "postgresql://db/x?host=127.0.0.1&port={port}",
        "postgresql://db/x?hostaddr=127.0.0.1&port={port}",
        "postgresql://db,{at}/x",
        "postgresql://db%2C127.0.0.1:1,{port}/x",
        "postgresql:///x?hostaddr=127.0.0.1&port={port}",
    ],
)
def test_a_database_server_outside_the_policy_receives_nothing(
    site: Site, listener: tuple[str, list[bytes]], url: str
) -> None:
    at, told = listener
    shown = url.format(at=at, port=at.rpartition(":")[2])
    with pytest.raises(AccessRefused, match="ROTA_SOURCE_HOSTS there names db"):
        site.back_up({"type": "postgres", "url": shown, "password": {"secret": "pg"}})
    assert told == []


@pytest.mark.parametrize(
    ("destination", "options"),
    [
        ("s3://backups/x", {"endpoint_url": "http://{at}", "key": "k", "secret": "s"}),
        ("s3://backups/x", {"endpoint_url": "http://{at}"}),  # with whatever credentials the node's user has
        ("ftp://{at}/x", {}),
    ],
)
def test_an_endpoint_outside_the_policy_receives_nothing(
    site: Site, listener: tuple[str, list[bytes]], destination: str, options: dict[str, str]
) -> None:
    at, told = listener
    chosen = {name: value.format(at=at) for name, value in options.items()}
    with pytest.raises(AccessRefused, match="ROTA_DESTINATION_HOSTS there is not set"):
        site.back_up(site.srv, destination.format(at=at), options=chosen)
    assert told == []


def test_a_root_certificate_path_is_checked_against_the_policy(site: Site) -> None:
    with pytest.raises(AccessRefused, match="own"):
        site.back_up({"type": "postgres", "url": f"postgresql://db/x?sslrootcert={site.own}/rota_secret"})
    with pytest.raises(AccessRefused, match="ROTA_SOURCE_ROOTS"):
        site.back_up({"type": "postgres", "url": "postgresql://db/x?sslrootcert=/etc/passwd"})


def test_backups_with_params_that_are_refused_today_can_be_restored() -> None:
    old = {"source": {"type": "postgres", "url": "postgresql://db/x?passfile=/x", "bin": "/b"}, "destination": "/b"}
    assert backup_location(old, "orders") == ("/b/orders", {})


def test_unpacking_stops_at_the_size_in_the_manifest(site: Site) -> None:
    """A zstd bomb: a few kilobytes that would fill the disk of whoever restores or verifies them."""
    import json

    from tasks.backup import archive
    from tasks.backup.archive import Damaged
    from tasks.backup.manifest import FileEntry
    from tasks.places.place import Place

    place = Place(str(site.backups))

    with archive.storing(place, "bomb.zst", 3, archive.quiet) as out:
        for _ in range(256):
            out.write(bytes(archive.CHUNK_BYTES))
    entry = out.entry
    said = FileEntry(**json.loads(entry.model_dump_json()) | {"size_bytes": archive.CHUNK_BYTES})
    seen = 0
    with pytest.raises(Damaged, match="unpacks to more"):
        for chunk in archive.stored_content(place, said, archive.quiet):
            seen += len(chunk)
    assert seen <= archive.CHUNK_BYTES


def test_without_a_policy_only_the_callers_own_rights_apply(site: Site) -> None:
    assert site.back_up(site.srv, access=EVERYTHING)["bytes"] > 0
