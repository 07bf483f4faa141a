"""The checkpoint of an ingest: the planned batch, and facts that show whether the table or the sources were replaced.

A file counts as ingested by its path. If the disks were not compared, files of another machine at the same path would
count as ingested already, or would be added to the wrong table.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.files.listing import NoSourceFiles, Source, fixed_folder
from spark_tasks.ingest.errors import TableReplaced
from spark_tasks.storage.url import is_local, without_protocol
from spark_tasks.table.ledger import Mark
from tasks.disk_identity import facts_of
from tasks.source_identity import Facts, OtherSource, describe, differing, identity_id

if TYPE_CHECKING:
    from spark_tasks.table.delta import Table

DIGEST_CHARS: Final = 32
"""The length of a digest in a checkpoint. It stands for a batch's list of files, which may have 10,000 entries, because
a checkpoint is replicated.
"""


def planned(batch: int, files: Sequence[Source]) -> dict[str, Any]:
    """Return the plan of a batch (JSON): its number, the number and the bytes of its files, and a digest of their list.

    Two batches have the same plan if they have the same files, with the same sizes, in the same order.

    >>> planned(7, [Source("/in/a.csv", 3), Source("/in/b.csv", 4)])  # doctest: +ELLIPSIS
    {'batch': 7, 'files': 2, 'bytes': 7, 'digest': '...'}
    """
    listed = json.dumps([(file.path, file.size_bytes) for file in files]).encode()
    return {
        "batch": batch,
        "files": len(files),
        "bytes": sum(file.size_bytes for file in files),
        "digest": sha256(listed).hexdigest()[:DIGEST_CHARS],
    }


def again(before: Any, plan: dict[str, Any]) -> str:
    """Return a clause for the log if the checkpoint `before` of an earlier attempt has a plan of this batch; else "".

    >>> again({"plan": {"batch": 7, "digest": "x"}}, {"batch": 7, "digest": "x"})
    ', as it was planned before'
    >>> again(None, {"batch": 7, "digest": "x"})
    ''
    """
    was = before.get("plan") if isinstance(before, dict) else None
    if not isinstance(was, dict) or was.get("batch") != plan["batch"]:
        return ""
    if was.get("digest") == plan["digest"]:
        return ", as it was planned before"
    return f"; it was planned before with {was.get('files')} files that are not the same"


OTHER = (
    "it was replaced, or this member has another folder at that path. Mount the table's storage here, or set the "
    "task's `group`; to begin a new table, start a new run"
)


def check_hint(hint: Any, table: "Table", last: Mark | None, version: int | None) -> None:
    """Raise `TableReplaced` if the table lacks something that this run's last checkpoint says is in it."""
    if not isinstance(hint, dict):
        return
    promised, standing = hint.get("batch", 0), 0 if last is None else last.batch
    if promised > standing:
        raise TableReplaced(
            f"this run has committed batch {promised} to the table, but the last batch in the table here is "
            f"{standing}: {OTHER}"
        )
    seen = hint.get("version")
    if seen is not None and (version is None or version < seen):
        now = "there is none" if version is None else f"it is at {version}"
        raise TableReplaced(f"this run has read version {seen} of the table, but here {now}: {OTHER}")
    intent = hint.get("intent")
    if intent is not None and intent > standing and not table.ledger.has(intent):
        raise TableReplaced(
            f"this run has written batch {intent} to {table.shown}, but its files are not here: {OTHER}"
        )


FOLDERS_MAX: Final = 50
FOLDER_CHARS_MAX: Final = 512
"""The most folders that are checked, and the most characters of a folder's path, because the facts are in each
checkpoint.
"""


def disks_of(globs: Iterable[str], node: str) -> dict[str, Facts]:
    """Return the identity facts of the local folders of `globs` on the member `node`, by folder. Raises
    `NoSourceFiles`.

    The node is not one of the facts, because a table and its sources are mostly on storage that all members share.
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

    `before` is from a checkpoint or from the ledger; `whence` says which. `accepted` are ids of accepted identities.
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
