"""Tell whether the local sources of an ingest are on the same disks as before.

A file counts as ingested by its path. Without this check, files of another machine at the same path would count as
ingested already, or would be added to the wrong table.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from spark_tasks.files.listing import NoSourceFiles, fixed_folder
from spark_tasks.storage.url import is_local, without_protocol
from tasks.disk_identity import facts_of
from tasks.source_identity import Facts, OtherSource, describe, differing, identity_id

FOLDERS_MAX: Final = 50
FOLDER_CHARS_MAX: Final = 512
"""Limits on the number and the path length of the folders that are checked: their facts are part of each checkpoint."""


def disks_of(globs: Iterable[str], node: str) -> dict[str, Facts]:
    """The identity facts of the local folders of `globs` on the member `node`, by folder. Raises `NoSourceFiles`.

    The node is not among the facts: a table is mostly on storage that all members share, and so are its sources.
    """
    folders = sorted({fixed_folder(without_protocol(url)) for url in globs if is_local(url)})
    found: dict[str, Facts] = {}
    for folder in [folder for folder in folders if len(folder) <= FOLDER_CHARS_MAX][:FOLDERS_MAX]:
        try:
            found[folder] = facts_of(Path(folder), node, shared=True)
        except (FileNotFoundError, NotADirectoryError):
            continue  # the listing of the files decides whether the folder must exist
        except OSError as error:
            raise NoSourceFiles(f"{folder} cannot be read on {node}: {error.strerror or error}") from None
    return found


def check_same(before: Any, now: Mapping[str, Facts], accepted: Collection[str], node: str, whence: str) -> None:
    """Raise `OtherSource` if a folder's facts differ from those in `before`.

    `before` is from a checkpoint or from the ledger, as `whence` says; `accepted` are ids of accepted identities.
    """
    if not isinstance(before, Mapping):
        return
    for folder, facts in now.items():
        was: Facts = before.get(folder) or {}
        if (others := differing(was, facts)) and identity_id(facts) not in accepted:
            raise OtherSource(
                f"{folder} is another folder than the one that {whence} was made from: that was on "
                f"{describe(was, others)}; on {node} it is on {describe(facts, others)}. Nothing was read from it. If "
                "it holds other data: bind the task to the member that has the right folder (group: {node: ID}), or "
                "give it its own table. If it is the same data, moved: set "
                f"`accept_source: {identity_id(facts)}` in the task's params, which accepts this disk and no other"
            )
