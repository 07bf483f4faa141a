"""The node's own files are known under every path, and only they are."""

import os
from pathlib import Path

import pytest

from tasks.access import Access, AccessRefused
from tasks.file_guard import FileGuard, OwnFiles, born_ns, file_id


def test_a_file_of_the_node_is_known_under_another_name_and_as_an_open_file(tmp_path: Path) -> None:
    own, link = tmp_path / "own", tmp_path / "link"
    own.mkdir()
    (own / "secret").write_text("x")
    link.hardlink_to(own / "secret")
    files = OwnFiles.at([str(own)])
    assert files.has(link.stat(), str(link))
    folder = os.open(tmp_path, os.O_RDONLY)
    with link.open() as file:
        assert files.has(link.stat(), file.fileno())
        assert files.has(link.stat(), "link", folder)
    os.close(folder)
    guard = FileGuard(Access("node-1", destination_roots=(str(tmp_path),), own=(str(own),)), "destination")
    with pytest.raises(AccessRefused, match="is another path to one of node-1's own files"):
        guard.resolve(link)


def test_a_new_file_with_the_inode_of_one_that_the_node_has_removed_is_not_the_nodes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    when = born_ns(str(file))
    if not when:
        pytest.skip("this file system does not say when a file was made")
    about = file.stat()
    assert OwnFiles({file_id(about): when}).has(about, str(file))
    assert not OwnFiles({file_id(about): when - 1}).has(about, str(file)), "an earlier file had this inode"
    assert OwnFiles({file_id(about): 0}).has(about, str(tmp_path / "gone")), "where nothing is known, it may be"


def test_when_a_file_was_made_is_not_what_its_owner_says(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    when = born_ns(str(file))
    os.utime(file, (1, 1))
    assert born_ns(str(file)) == when
    assert born_ns(str(tmp_path / "gone")) == 0
