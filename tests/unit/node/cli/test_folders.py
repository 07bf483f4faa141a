"""Which files of a folder are read, and that none is overlooked."""

import os
from pathlib import Path

import click
import pytest

from node.cli.task_files import files_at


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tasks"
    (made / "deep").mkdir(parents=True)
    for name in ("b.yaml", "a.YML", "deep/c.json"):
        (made / name).touch()
    return made


def found(folder: Path) -> list[str]:
    return [str(Path(file).relative_to(folder)) for file in files_at(str(folder))]


def test_tasks_are_found_beside_what_else_lies_there(folder: Path) -> None:
    (folder / ".git").mkdir()
    for name in (".git/config.yaml", ".a.yaml.swp", ".hidden.yaml", "README.md", "a.yaml.bak", "picture.png"):
        (folder / name).touch()
    (folder / ".#b.yaml").symlink_to("an-editor's-lock")
    assert found(folder) == ["a.YML", "b.yaml", "deep/c.json"]


def test_links_are_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "d.yaml").touch()
    (folder / "shared").symlink_to(outside)
    (folder / "e.yaml").symlink_to("../outside/d.yaml")
    assert found(folder) == ["a.YML", "b.yaml", "deep/c.json", "e.yaml", "shared/d.yaml"]


def overlooked(folder: Path) -> str:
    with pytest.raises(click.UsageError) as raised:
        found(folder)
    return raised.value.message


@pytest.mark.parametrize("name", ["d.yaml", "shared"])
def test_a_link_that_leads_nowhere_is_refused(folder: Path, name: str) -> None:
    """It was left out, and so the tasks behind it were pruned."""
    (folder / name).symlink_to("../gone")
    assert overlooked(folder).startswith(f"{folder}/{name} cannot be read: No such file or directory (a link that")


def test_links_that_lead_in_a_circle_are_refused(folder: Path) -> None:
    (folder / "deep" / "up").symlink_to("..")
    assert overlooked(folder) == f"{folder}/deep/up is a link to a folder that it is in: remove it"
    (folder / "deep" / "up").unlink()
    (folder / "x.yaml").symlink_to("x.yaml")
    assert "Too many levels of symbolic links" in overlooked(folder)


@pytest.mark.parametrize(("mode", "what"), [(0, "deep"), (0o111, "deep"), (0o444, "deep/c.json")])
def test_a_folder_that_may_not_be_read_is_refused(folder: Path, mode: int, what: str) -> None:
    (folder / "deep").chmod(mode)
    if os.access(folder / "deep", os.R_OK | os.X_OK):
        pytest.skip("root may read every folder")
    said = overlooked(folder)
    (folder / "deep").chmod(0o700)
    assert said.startswith(f"{folder}/{what} cannot be read: Permission denied")


def test_a_pipe_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "d.yaml")
    assert overlooked(folder) == f"{folder}/d.yaml is neither a file nor a folder"
