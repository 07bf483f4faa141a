"""Folders that tasks have filled, and their removal."""

import os
from pathlib import Path

from node.storage.removal import remove_tree
from testkit.folders import deep_folder


def test_a_deep_tree_is_removed(tmp_path: Path) -> None:
    """Deeper than Python calls itself, than a path may be long, and than descriptors are allowed."""
    root = tmp_path / "root"
    deep_folder(root, 5000)
    assert remove_tree(root)
    assert not root.exists()


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "in" / "it").mkdir(parents=True)
    (outside / "kept").mkdir(parents=True)
    for place in (root, root / "in", root / "in" / "it"):
        (place / "link").symlink_to(outside)
        os.mkfifo(place / "pipe")
    remove_tree(root)
    assert not root.exists()
    assert (outside / "kept").exists()


def test_what_is_no_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "file").touch()
    assert [remove_tree(tmp_path / name) for name in ("link", "file", "nothing")] == [False, False, True]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "kept", "link"]


def test_names_that_are_no_text_are_removed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a\udcff" / "b\udcfe").mkdir(parents=True)
    (root / "a\udcff" / "c\n").touch()
    remove_tree(root)
    assert not root.exists()
