"""Opens the place of a sink, for one attempt."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spark_tasks.storage.params import Stored
from tasks.file_guard import FileGuard
from tasks.kind import Context
from tasks.places.place import Place, resolved


def open_place(ctx: Context[Any], params: Stored, inner: Iterable[str]) -> Place:
    """The place that the params name. `inner` are folders in it to which the attempt writes, and which may be links.

    Raises `AccessRefused`, `MissingSecret` and `BadDestination`.
    """
    if not params.is_local:
        return Place(params.at, resolved(params.options, ctx.secret), ctx.access)
    folder, guard = Path(params.at), FileGuard(ctx.access, "destination")
    for each in (folder, *(folder / name for name in inner)):
        guard.resolve(each)
    return Place(str(folder), {}, ctx.access)
