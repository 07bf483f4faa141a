"""What is in a folder beside the node's own, and a domain that is made ahead."""

import os
from pathlib import Path

import pytest

from node.execution.domain import Commands, MadeAhead, installation, prepared_since
from node.execution.nodes_own import Own, without
from tasks import landlock
from tasks.access import Access, Use
from tasks.file_guard import path_of
from tasks.needs import Needs
from tasks.places.mounts import MountWatch
from tasks.reach import Reach


def made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)


def parts(folder: str, own: list[str]) -> list[str]:
    descriptor = os.open(folder, os.O_PATH)
    try:
        return sorted(path_of(part) for part in without(descriptor, folder, Own(tuple(own))))
    finally:
        os.close(descriptor)


def test_a_folder_without_anything_of_the_nodes_own_is_allowed_whole(tmp_path: Path) -> None:
    made(tmp_path, "a/b")
    assert parts(str(tmp_path), ["/elsewhere", f"{tmp_path}2"]) == [str(tmp_path)]


def test_beside_the_nodes_own_everything_is_allowed_that_is_there(tmp_path: Path) -> None:
    made(tmp_path, "a/own/x", "a/other", "b")
    (tmp_path / "file").touch()
    (tmp_path / "a/link").symlink_to("own")
    found = parts(str(tmp_path), [f"{tmp_path}/a/own", f"{tmp_path}/a/own/x"])
    assert found == [f"{tmp_path}/a/other", f"{tmp_path}/b", f"{tmp_path}/file"], "and no link"
    assert parts(f"{tmp_path}/a/own/x", [f"{tmp_path}/a/own"]) == []
    assert parts(f"{tmp_path}/a/own", [f"{tmp_path}/a/own"]) == []


def test_what_is_not_there_yet_is_kept_from_being_made(tmp_path: Path) -> None:
    made(tmp_path, "a", "b")
    assert parts(str(tmp_path), [f"{tmp_path}/a/secrets"]) == [f"{tmp_path}/b"]


def test_python_and_rota_are_installed_in_folders_none_within_another() -> None:
    found = installation()
    assert found
    assert not [path for path in found for other in found if path != other and path.startswith(f"{other}/")]


@pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock")
def test_a_domain_made_ahead_is_taken_only_while_nothing_has_come_or_gone_beside_the_nodes_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests mount file systems at the same time, for which a domain is made anew, too.
    monkeypatch.setattr(MountWatch, "changed", lambda _: False)
    made(tmp_path, "a/own", "a/other", "b")
    commands = Commands((f"{tmp_path}/a/own",), (str(tmp_path),), landlock.abi())
    ahead = MadeAhead(commands)
    assert ahead.take(commands) is None, "the folders have changed too lately: another change would not show"
    for folder in (tmp_path, tmp_path / "a"):
        os.utime(folder, ns=(1_000_000_000, 1_000_000_000))
    ahead = MadeAhead(commands)
    assert ahead.take(commands) is not None
    assert ahead.take(commands._replace(own=())) is None
    (tmp_path / "b/below").touch()
    assert ahead.take(commands) is not None, "it is allowed whole"
    (tmp_path / "a/new").touch()
    assert ahead.take(commands) is None
    os.utime(tmp_path / "a", ns=(0, 0))
    assert ahead.take(commands) is None, "a folder whose time was set back has changed as well"
    os.utime(tmp_path / "a", ns=(1_000_000_000, 1_000_000_000))
    ahead.refresh()
    taken = ahead.take(commands)
    assert taken is not None
    ahead.refresh()
    assert ahead.take(commands) is taken, "it is current, and so it is kept"


def test_a_prepared_process_may_open_what_was_there_before_it_beside_the_nodes_own(tmp_path: Path) -> None:
    made(tmp_path, "own", "old/below", "roots/a")
    access = Access("", (f"{tmp_path}",), (f"{tmp_path}", f"{tmp_path}/roots"), own=(f"{tmp_path}/own",))
    os.utime(tmp_path, ns=(1_000, 1_000))

    def may(use: Use, name: str) -> bool:
        return prepared_since(Needs(reaches=(Reach("", use, "", f"{tmp_path}/{name}"),)), access, 2_000)

    assert may("source", "old")
    assert not may("destination", "old"), "the folder above, in which its name is, is not allowed"
    assert may("destination", "roots")
    assert may("destination", "old/below/new"), "its folder is allowed whole"
    assert may("destination", "roots/a/new"), "and so is a root"
    assert not may("destination", "new"), "it is not there"
    assert not may("source", "own/x")
    (tmp_path / "new").mkdir()
    assert not may("destination", "new"), "it came later"
    assert prepared_since(Needs(), access, 0)
    assert not prepared_since(Needs(reaches=(Reach("", "source", "", "/elsewhere"),)), access, 2_000)
