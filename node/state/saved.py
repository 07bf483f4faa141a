"""The cluster's own state as a file: `rota cluster save` writes it, `rota cluster load` reads it.

JSON lines: a head, the tasks in the order of their registration, and an end with the SHA-256 of all lines before it. It
holds the settings, the calendars, the channels, and the tasks with their versions, pauses, counters, schedules and last
outcomes. It does not hold members, since a new cluster has its own, nor runs, since the active ones belong to the old
cluster. Times are microseconds since the epoch.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, make_dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import msgpack

from hashing.view import Task
from node.state.channel import channel_of
from node.state.shape import marked_fields, shape
from node.state.value import SAVED, Outcome, Settings, State, TaskRow

FORMAT: Final = 1
_WHAT: Final = "cluster state"
_HEAD: Final = frozenset(("cluster_id", "index", "saved_at_us", "settings", "token", "orders", "active_runs", "tasks"))


class BadSave(Exception):
    """The file is not the complete, unchanged output of `lines`. The message describes the fault."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of a file: the fields of the head, and the fields of each task."""

    head: dict[str, Any]
    tasks: list[dict[str, Any]]


def _kept_fields() -> Iterator[tuple[str, Any, Any]]:
    """The name, type and default of each field of `Kept`. All defaults are immutable."""
    for name, hint in marked_fields(TaskRow, SAVED).items():
        yield name, hint, field(default=TaskRow.__dataclass_fields__[name].default)
        if name == "paused":
            yield "incumbent", str | None, field(default=None)


if TYPE_CHECKING:

    @dataclass(frozen=True, slots=True)
    class Kept(TaskRow):
        """A saved task: those fields of `TaskRow` that are `ToSave`, and the `incumbent` of its placing.

        It is derived below; mypy takes it for a row.
        """

        placing: Task = field(init=False)
        incumbent: str | None = None

else:
    Kept = make_dataclass("Kept", _kept_fields(), frozen=True, slots=True)
    Kept.__module__ = __name__


OF_THE_ROW: Final = tuple(marked_fields(TaskRow, SAVED))
"""The fields of `Kept` that `TaskRow` has under the same names."""


def lines(state: State, saved_at_us: int) -> Iterator[bytes]:
    """Yield the lines of the file for a state."""
    digest = hashlib.sha256()
    head = {
        "rota": _WHAT,
        "format": FORMAT,
        "cluster_id": state.cluster_id,
        "index": state.index,
        "saved_at_us": saved_at_us,
        "settings": _settings(state.settings),
        "token": state.token,
        "orders": state.orders,
        "active_runs": len(state.runs),
        "tasks": len(state.tasks),
    }
    if state.channels:
        # Left out if there are no channels, so that earlier versions can load the file.
        head["channels"] = {name: channel_of(row.packed).plain() for name, row in sorted(state.channels.items())}
    # Those of public holidays are worked out anew where a task uses them.
    listed = {name: one for name, one in sorted(state.calendars.items()) if not one.until}
    if listed:
        head["calendars"] = {
            name: [date.fromordinal(day).isoformat() for day in one.days] for name, one in listed.items()
        }
    # Left out if no set made any, so that earlier versions can load the file.
    if state.settings.pool_sets:
        head["pool_sets"] = dict(state.settings.pool_sets)
    if of_sets := {name: one.of_set for name, one in sorted(state.calendars.items()) if one.of_set}:
        head["calendar_sets"] = of_sets
    rows = sorted(state.tasks.values(), key=lambda row: row.order)
    for value in _each(head, rows):
        line = _line(value)
        digest.update(line)
        yield line
    yield _line({"end": len(rows), "sha256": digest.hexdigest()})


def read(text: Iterable[bytes]) -> Saved:
    """Read a file, given line by line. Raises `BadSave`."""
    given = iter(text)
    digest = hashlib.sha256()
    first = next(given, b"")
    head = _head(first)
    digest.update(first)
    tasks: list[dict[str, Any]] = []
    for line in given:
        value = _value(line, len(tasks) + 2)
        if "end" in value:
            if value.get("sha256") != digest.hexdigest() or value["end"] != len(tasks) or next(given, None) is not None:
                raise BadSave("it is damaged: its checksum does not match")
            return Saved(head, tasks)
        digest.update(line)
        tasks.append(value)
    raise BadSave(f"it is cut short: {len(tasks)} of its {head['tasks']} tasks are there, and its end is missing")


def _head(line: bytes) -> dict[str, Any]:
    try:
        head = json.loads(line)
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("rota") != _WHAT:
        raise BadSave("it is not a file of `rota cluster save`")
    if head.get("format") != FORMAT:
        raise BadSave(f"it is of format {head.get('format')}, and this version of Rota reads format {FORMAT}")
    if not head.keys() >= _HEAD:
        raise BadSave("it is damaged: its head lacks something")
    return head


def _value(line: bytes, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        cut = "" if line.endswith(b"\n") else ", and cut short"
        raise BadSave(f"it is damaged{cut}: line {number} cannot be read")
    return value


def _each(head: dict[str, Any], rows: Iterable[TaskRow]) -> Iterator[dict[str, Any]]:
    yield head
    for row in rows:
        plain = shape(Kept).named(_kept(row))
        plain["last"] = None if row.last is None else shape(Outcome).named(row.last)
        plain["requests"] = plain.pop("requests")  # `requests` stays the last field, as in files of earlier versions
        yield {"task": msgpack.unpackb(plain.pop("spec_packed")), **plain}


def _kept(row: TaskRow) -> Kept:
    """Return the fields of a registered task that are saved."""
    return Kept(incumbent=row.placing.incumbent, **{name: getattr(row, name) for name in OF_THE_ROW})


def _settings(settings: Settings) -> dict[str, Any]:
    """The settings by their names in the API."""
    named = shape(Settings).named(settings)
    milli = named.pop("balance_slack_milli")
    named.pop("watchdog", None)
    named.pop("pools", None)
    named.pop("pool_sets", None)
    # Left out if there is no watchdog or pool, so that versions that do not know them can read the file.
    pools = {"pools": dict(settings.pools)} if settings.pools else {}
    watchdog = {} if settings.watchdog is None else {"watchdog": settings.watchdog.plain()}
    return {"balance_slack": None if milli is None else milli / 1000, **named, **watchdog, **pools}


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
