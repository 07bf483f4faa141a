"""The version of this build: the release, and the commit or a digest of the sources.

setuptools calls this module when a wheel or an image is built (pyproject.toml), so it imports no other module of Rota.
It does not run git, but reads the commit from git's files. Without these files, a digest of the sources takes the
commit's place. The version of an installed wheel is the one in its metadata.
"""

import re
from functools import cache
from pathlib import Path
from typing import Final

RELEASE: Final = "0.2.0.dev0"

PACKAGES: Final = ("hashing", "node", "spark_tasks", "tasks")

_COMMIT: Final = re.compile(r"[0-9a-f]{40,64}")
_SHOWN: Final = 7
"""How many digits of a commit or a digest are shown: as many as git shows."""


@cache
def version() -> str:
    """Return the version of the code that this process has loaded, such as `0.2.0.dev0+g1a2b3c4`: read once."""
    return version_at(Path(__file__).resolve().parents[1])


def version_at(folder: Path) -> str:
    """Find the version of the code in `folder`: by its commit, else by installed metadata, else by its sources."""
    if (commit := commit_at(folder / ".git")) is not None:
        return f"{RELEASE}+g{commit[:_SHOWN]}"
    from importlib import metadata  # not above: the import takes as long as most commands run

    try:
        return metadata.version("rota")
    except metadata.PackageNotFoundError:
        return f"{RELEASE}+s{_digest(folder)[:_SHOWN]}"


def commit_at(git: Path) -> str | None:
    """Read which commit is checked out, from a clone's `.git` or a worktree's file `.git`; None: not known."""
    try:
        if git.is_file():
            git = git.parent / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return _commit(head)
        ref = head.removeprefix("ref: ")
        common = git / "commondir"
        refs = git / common.read_text().strip() if common.is_file() else git
        if (file := refs / ref).is_file():
            return _commit(file.read_text().strip())
        lines = (line.split(" ") for line in (refs / "packed-refs").read_text().splitlines())
        return next((_commit(line[0]) for line in lines if line[1:] == [ref]), None)
    except (OSError, UnicodeDecodeError):
        return None


def _commit(text: str) -> str | None:
    return text if _COMMIT.fullmatch(text) else None


def _digest(folder: Path) -> str:
    """Return a digest of the Python files below the packages in `folder`, and of their names."""
    import hashlib  # not above: commands of a clone need none

    digest = hashlib.sha256()
    for file in sorted(file for package in PACKAGES for file in (folder / package).rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()
