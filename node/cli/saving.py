"""The cluster's own state, from a cluster into a file and from a file into a cluster."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from node.client import Client
from node.state.saved import BadSave, Saved, read
from node.storage import atomic

PART_BYTES_MAX: Final = 500_000
"""Of JSON, which is more than what becomes of it in the log: an entry may have a megabyte."""

PUT_S: Final = 30.0

WHERE: Final = "/v1/cluster/saved"


class ForeignTasks(Exception):
    """The cluster has tasks of its own. The message says which."""


def save(client: Client, file: Path) -> Saved:
    """Write what the cluster has: whole and on the disk, or not at all. Raises `OSError`; `BadSave` if it broke off."""
    partial = file.with_name(f"{file.name}.partial")
    try:
        with partial.open("wb") as out:
            for piece in client.stream(WHERE, consistent="true"):
                out.write(piece)
        saved = read_file(partial)
        atomic.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)
    return saved


def read_file(file: Path) -> Saved:
    """What is in a file. Raises `OSError` and `BadSave`."""
    with file.open("rb") as text:
        return read(text)


def load(client: Client, saved: Saved) -> int:
    """Put back what the cluster has not got yet: how many tasks. Raises `ForeignTasks` before anything is done."""
    there = _there(client, saved)
    missing = [row for row in saved.tasks if row["task"]["name"] not in there]
    head = saved.head
    beside = len(there)
    for part in _parts(missing):
        # With the first part only: somebody may have changed them since.
        settings = {"settings": head["settings"]} if beside == 0 else {}
        counts = {"beside": beside, "token": head["token"], "orders": head["orders"]}
        client.call("POST", WHERE, body={**counts, **settings, "tasks": part}, timeout_s=PUT_S)
        beside += len(part)
    return len(missing)


def _there(client: Client, saved: Saved) -> set[str]:
    """The tasks of the file that the cluster has already."""
    try:
        present = read(_lines(client.stream(WHERE, consistent="true"))).tasks
    except BadSave as error:
        raise ForeignTasks(f"what the cluster has cannot be read: {error}") from error
    ours = {row["task"]["name"]: _identity(row) for row in saved.tasks}
    foreign = [name for row in present if ours.get(name := row["task"]["name"]) != _identity(row)]
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise ForeignTasks(
            f"the cluster has tasks that are not from this file: {', '.join(foreign[:3])}{more}. A file is loaded into "
            "a new cluster, one that has no tasks"
        )
    return {row["task"]["name"] for row in present}


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["order"], row["registered_at_us"], row["version"], row["task"]


def _parts(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The tasks in order, each part short enough for one entry. There is always one: for the settings."""
    part: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        length = len(json.dumps(row))
        if part and size + length > PART_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(row)
        size += length
    yield part


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest
