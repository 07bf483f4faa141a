"""On which disks the local sources of an ingest lie: another member's folder of that name is another source.

A file counts as ingested by its path. Without this, files of another machine would be taken for those that are in the
table already, or be added to a table that is not theirs.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from spark_tasks.files import NoSourceFiles, fixed_folder, is_local, local_path
from tasks.disk import facts_of
from tasks.identity import Facts, OtherSource, differing, identity_id, told

FOLDERS_MAX: Final = 50
FOLDER_CHARS_MAX: Final = 512
"""Folders that are looked at, at most, and of names so long: what is known of them is in each checkpoint."""


def disks_of(globs: Iterable[str], node: str) -> dict[str, Facts]:
    """What tells where the local folders of `globs` lie, by folder, on the member `node`. Raises `NoSourceFiles`.

    The node is not among it: a table is mostly on storage that all members share, and so are its sources.
    """
    folders = sorted({fixed_folder(local_path(url)) for url in globs if is_local(url)})
    found: dict[str, Facts] = {}
    for folder in [folder for folder in folders if len(folder) <= FOLDER_CHARS_MAX][:FOLDERS_MAX]:
        try:
            found[folder] = facts_of(Path(folder), node, shared=True)
        except (FileNotFoundError, NotADirectoryError):
            continue  # whether it must be there, the listing says
        except OSError as error:
            raise NoSourceFiles(f"{folder} cannot be read on {node}: {error.strerror or error}") from None
    return found


def check_same(before: Any, now: Mapping[str, Facts], accepted: Collection[str], node: str, whence: str) -> None:
    """Raises `OtherSource` if a folder lies elsewhere than `before`, as `whence` tells (a checkpoint, a page)."""
    if not isinstance(before, Mapping):
        return
    for folder, facts in now.items():
        was: Facts = before.get(folder) or {}
        if (others := differing(was, facts)) and identity_id(facts) not in accepted:
            raise OtherSource(
                f"{folder} is another folder than the one that {whence} was made from: that was on "
                f"{told(was, others)}; on {node} it is on {told(facts, others)}. Nothing was read from it. If it holds "
                "other data: bind the task to the member that has the right one (group: {node: ID}), or give it a "
                "table of its own. If it is the same data, moved: set "
                f"`accept_source: {identity_id(facts)}` in the task's params, which accepts this disk and no other"
            )
