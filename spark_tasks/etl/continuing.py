"""The cursor that a sink stores for a task, and the check whether the task may continue from it after a change.

A cursor does not identify its data. So the sink also stores the name of the data, or that the batch read the whole
source. Otherwise, if the source changed, rows of the new source below the cursor would be silently skipped; if
`incremental` was added or removed, rows would be appended twice.
"""

import json
import shlex
from typing import Any, Final

from spark_tasks.contracts.source import Cursor, SourceReplaced
from spark_tasks.etl.params import EtlParams

_OF: Final = "of"
"""The field of a stored cursor that names the data from which it was read."""

_WHOLE: Final = "whole"

Kept = dict[str, Any]
"""The value that a sink keeps with a batch: a cursor with the name of its data, or `{"whole": true}`."""


def kept(params: EtlParams, reaches: Cursor | None) -> Kept | None:
    """Return the value to store with a batch that ends at the cursor `reaches`, which is None at the source's beginning
    or for a whole source.
    """
    if params.incremental is None:
        return {_WHOLE: True}
    origin = params.source.origin
    return reaches if reaches is None or origin is None else reaches | {_OF: origin}


def kept_cursor(last: Kept | None) -> Cursor | None:
    """Return the cursor in the value that a sink has stored; None if it has no cursor.

    >>> kept_cursor({"cursor": "id", "value": 7, "of": "table orders"}), kept_cursor({"whole": True})
    ({'cursor': 'id', 'value': 7}, None)
    """
    if last is None or _WHOLE in last:
        return None
    return {name: value for name, value in last.items() if name != _OF}


def resume_cursor(params: EtlParams, task: str, last: Kept | None) -> Cursor | None:
    """Return the cursor from which the task's next batch continues; None: from the beginning of its source.

    Raises `SourceReplaced` if the task was changed since the last batch in such a way that rows would be left out, or
    rows that are in the sink would be appended again.
    """
    if last is None:
        return None
    was_whole, is_whole = _WHOLE in last, params.incremental is None
    if was_whole != is_whole and params.sink.adds:
        raise SourceReplaced(_doubled(task, was_whole, last))
    if was_whole or is_whole:
        return None
    origin, before = params.source.origin, last.get(_OF)
    if origin is not None and before is not None and origin != before:
        raise SourceReplaced(
            f"the sink's last batch was read from {before} up to {last.get('value')!r}, and the task now reads "
            f"{origin}: its rows up to there would be left out. Change `source` back, or say where to begin: "
            f"at its beginning by `rota etl reset {task}`, or after the same value by "
            f"`rota etl reset {task} --to {_as_argument(kept_cursor(last))}`"
        )
    return kept_cursor(last)


def _doubled(task: str, was_whole: bool, last: Kept) -> str:
    if was_whole:
        return (
            "the sink's last batch was the whole source, whose rows `incremental` would append once more. Say where "
            f"to begin: after the last value in the sink by `rota etl reset {task} --to VALUE`, or, once the sink is "
            f"empty, at the beginning by `rota etl reset {task}`"
        )
    return (
        f"the sink has the rows up to {last.get('value')!r}, and without `incremental` all of them would be appended "
        "once more. Change `incremental` back, use a mode that replaces rows, or empty the sink and say so by "
        f"`rota etl reset {task}`"
    )


def _as_argument(cursor: Cursor | None) -> str:
    """Return the cursor as JSON, quoted for the shell: a bare value would not show its type."""
    return shlex.quote(json.dumps(cursor))
