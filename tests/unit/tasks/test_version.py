"""Which build this is: from git's files, of clones, worktrees and packed repositories, or from the sources."""

import subprocess
import sys
from pathlib import Path

import pytest

from tasks import version
from tasks.version import RELEASE, commit_at, version_at

COMMIT = "a3b1c9d4e5f60718293a4b5c6d7e8f9001122334"
ROOT = Path(__file__).parents[3]


def git(folder: Path, *files: tuple[str, str]) -> Path:
    for name, text in files:
        (folder / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / ".git" / name).write_text(text)
    return folder


def test_the_commit_of_a_clone_is_that_of_its_branch_wherever_git_keeps_it(tmp_path: Path) -> None:
    head = ("HEAD", "ref: refs/heads/main\n")
    loose = git(tmp_path / "loose", head, ("refs/heads/main", COMMIT + "\n"))
    packed = git(
        tmp_path / "packed",
        head,
        (
            "packed-refs",
            f"# pack-refs with: peeled\n{'0' * 40} refs/heads/mainly\n{COMMIT} refs/heads/main\n^{'1' * 40}\n",
        ),
    )
    detached = git(tmp_path / "detached", ("HEAD", COMMIT + "\n"))
    for folder in (loose, packed, detached):
        assert version_at(folder) == f"{RELEASE}+ga3b1c9d"


def test_a_worktree_has_the_commit_of_its_own_branch(tmp_path: Path) -> None:
    git(
        tmp_path / "main",
        ("HEAD", "ref: refs/heads/main\n"),
        ("refs/heads/other", COMMIT + "\n"),
        ("worktrees/other/HEAD", "ref: refs/heads/other\n"),
        ("worktrees/other/commondir", "../..\n"),
    )
    for where in (tmp_path / "main" / ".git" / "worktrees" / "other", Path("../main/.git/worktrees/other")):
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / ".git").write_text(f"gitdir: {where}\n")
        assert version_at(tmp_path / "other") == f"{RELEASE}+ga3b1c9d"


@pytest.mark.parametrize(
    "files",
    [
        (("HEAD", "ref: refs/heads/main\n"),),
        (("HEAD", "ref: refs/heads/.invalid\n"),),
        (("HEAD", "not a commit"),),
        (("HEAD", "ref: refs/heads/main\n"), ("refs/heads/main", "\x00" * 40)),
        (),
    ],
)
def test_what_git_does_not_say_is_not_guessed(tmp_path: Path, files: tuple[tuple[str, str], ...]) -> None:
    assert commit_at(git(tmp_path, *files) / ".git") is None


def test_sources_without_git_and_not_installed_have_a_digest_that_differs_with_them(tmp_path: Path) -> None:
    """As in the build of an image. setuptools asks the module alone, in an environment where Rota is not installed."""
    for name in ("one", "other"):
        (tmp_path / name / "tasks").mkdir(parents=True)
        (tmp_path / name / "tasks" / "version.py").write_text(Path(version.__file__).read_text())
    (tmp_path / "other" / "tasks" / "more.py").write_text("")
    said = [
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", f"import runpy; print(runpy.run_path({path!r})['version']())"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for path in (str(tmp_path / name / "tasks" / "version.py") for name in ("one", "other"))
    ]
    assert all(one.startswith(f"{RELEASE}+s") and len(one) == len(RELEASE) + 9 for one in said)
    assert said[0] != said[1]


def test_this_clone_says_its_commit() -> None:
    told = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=False, capture_output=True, text=True)
    if told.returncode:
        pytest.skip("the sources are no clone here")
    assert version_at(ROOT) == f"{RELEASE}+g{told.stdout[:7]}"
