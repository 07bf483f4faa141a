"""Compare what a run has committed, by its checkpoint, with what the table holds."""

from typing import TYPE_CHECKING, Any

from spark_tasks.ingest.errors import TableReplaced
from spark_tasks.table.ledger import Mark

if TYPE_CHECKING:
    from spark_tasks.table.delta import Table

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
