"""Saves a cluster's tasks, calendars, channels and settings to a file, and loads them into a new cluster."""

import json
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from node.client import ApiProblem, Client, path
from node.runtime.plain_text import plain_line
from node.state.saved import BadSave, Saved, read
from node.storage import atomic

PART_BYTES_MAX: Final = 500_000
"""The longest JSON of one part. A part becomes a log entry, which is smaller than its JSON and may have 1 MB."""

PUT_S: Final = 30.0

WHERE: Final = "/v1/cluster/saved"
CHANNELS: Final = "/v1/channels"


class ForeignTasks(Exception):
    """The cluster has tasks that are not from the file. The message names them."""


class RefusedChannels(Exception):
    """The cluster refused channels of the file, as a later version may that checks more. The message names them."""


def save(client: Client, file: Path) -> Saved:
    """Write the cluster's tasks, channels and settings to `file`, complete and synced to disk, or not at all.

    Raises `OSError`, and `BadSave` for an answer that is incomplete.
    """
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
    """Return the content of a saved file. Raises `OSError` and `BadSave`."""
    with file.open("rb") as text:
        return read(text)


def load_missing(client: Client, saved: Saved) -> int:
    """Load the tasks and channels that the cluster does not have yet. Returns the number of tasks.

    Raises `ForeignTasks` before any change, and `RefusedChannels` after everything else has been loaded.
    """
    present = _present(client, saved)
    missing = [row for row in saved.tasks if row["task"]["name"] not in present]
    head = saved.head
    beside = len(present)
    for name, dates in head.get("calendars", {}).items() if beside == 0 else ():  # first, because tasks use them
        query = {"set": of_set} if (of_set := head.get("calendar_sets", {}).get(name)) else None
        client.call("PUT", path("v1", "calendars", name), body={"dates": dates}, query=query, timeout_s=PUT_S)
    for name, of_set in head.get("pool_sets", {}).items() if beside == 0 else ():  # before all pools: each is new then
        pools = {name: head["settings"]["pools"][name]}
        client.call("PATCH", "/v1/settings", body={"pools": pools}, query={"set": of_set}, timeout_s=PUT_S)
    for part in _parts(missing):
        # Send the settings with the first part only: somebody may have changed them since.
        settings = {"settings": head["settings"]} if beside == 0 else {}
        counts = {"beside": beside, "token": head["token"], "orders": head["orders"]}
        client.call("POST", WHERE, body={**counts, **settings, "tasks": part}, timeout_s=PUT_S)
        beside += len(part)
    _load_channels(client, head.get("channels", {}))
    return len(missing)


def _load_channels(client: Client, channels: dict[str, Any]) -> None:
    there = {channel["name"] for channel in client.get(CHANNELS)["items"]} if channels else set()
    refused: list[str] = []
    for name, definition in channels.items():
        if name in there:
            continue
        try:
            client.call("PUT", path("v1", "channels", name), body=definition, timeout_s=PUT_S)
        except ApiProblem as problem:
            if problem.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
            refused.append(f"{name} ({plain_line(str(problem))})")
    if refused:
        raise RefusedChannels(
            "all is loaded but the channels that this version refuses; make these with rota notify set: "
            f"{', '.join(refused)}"
        )


def _present(client: Client, saved: Saved) -> set[str]:
    """Return the names of the tasks that the cluster already has. Raises `ForeignTasks` if one is not from the file."""
    try:
        rows = read(_lines(client.stream(WHERE, consistent="true"))).tasks
    except BadSave as error:
        raise ForeignTasks(f"the cluster's tasks cannot be read: {error}") from error
    ours = {row["task"]["name"]: _identity(row) for row in saved.tasks}
    foreign = [name for row in rows if ours.get(name := row["task"]["name"]) != _identity(row)]
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise ForeignTasks(
            f"the cluster has tasks that are not from this file: {', '.join(foreign[:3])}{more}. Load the file into a "
            "new cluster, one without tasks"
        )
    return {row["task"]["name"] for row in rows}


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["order"], row["registered_at_us"], row["version"], row["task"]


def _parts(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the tasks in order, in parts that fit into one entry: at least one part, for the settings."""
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
