"""The pools and calendars in files of tasks: which of them change, and which their set made and no longer has.

A set owns what it made (`node.state.set_owned`). What tasks still use is kept, whatever set these are of.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple

import click

from node.cli.api import Api
from node.cli.task_files import CalendarInFile, PoolInFile
from node.client import ApiProblem, path

ENDING_S: Final = 10.0
"""How long to wait for the runs of deleted tasks to leave a pool: they are cancelled, and end in a moment."""

_AGAIN_S: Final = 0.2

GoneKind = Literal["pool", "calendar"]


class PoolChange(NamedTuple):
    """A change of a pool.

    >>> str(PoolChange("dumps", None, 2)), str(PoolChange("dumps", 1, 2))
    ('pool dumps: 2', 'pool dumps: 1 -> 2')
    >>> str(PoolChange("dumps", 2, 2, taken_from="b"))
    'pool dumps: 2, taken from the set b'
    """

    #: The pool's name.
    name: str
    #: How much there was of it; None: there was none.
    before: int | None
    #: How much there is of it then.
    after: int
    #: The set that it is of if this makes it; None: none.
    of_set: str | None = None
    #: The set that it is taken from; None: it is not.
    taken_from: str | None = None

    def __str__(self) -> str:
        """Return it as a line for people."""
        before = "" if self.before in (None, self.after) else f"{self.before} -> "
        return f"pool {self.name}: {before}{self.after}{_taken(self.taken_from)}"


class CalendarChange(NamedTuple):
    """A change of a calendar.

    >>> str(CalendarChange("closing", None, ("2026-12-24",)))
    'calendar closing: 1 day'
    >>> str(CalendarChange("closing", ("2026-12-24",), ("2026-12-27", "2026-12-28")))
    'calendar closing: 2 more days, 1 fewer'
    >>> str(CalendarChange("closing", ("2026-12-24",), ("2026-12-24",), taken_from="b"))
    'calendar closing: 1 day, taken from the set b'
    """

    #: The calendar's name.
    name: str
    #: Its days before, as RFC 3339 has them; None: it was not there.
    before: tuple[str, ...] | None
    #: Its days then.
    after: tuple[str, ...]
    #: The set that it is of if this makes it; None: none.
    of_set: str | None = None
    #: The set that it is taken from; None: it is not.
    taken_from: str | None = None

    def __str__(self) -> str:
        """Return it as a line for people."""
        if self.before in (None, self.after):
            return f"calendar {self.name}: {_days(len(self.after))}{_taken(self.taken_from)}"
        before, after = set(self.before or ()), set(self.after)
        more, fewer = len(after - before), len(before - after)
        return f"calendar {self.name}: {_days(more, ' more')}, {fewer} fewer{_taken(self.taken_from)}"


def _taken(taken_from: str | None) -> str:
    return "" if taken_from is None else f", taken from the set {taken_from}"


def _days(number: int, more: str = "") -> str:
    return f"{number}{more} {'day' if number == 1 else 'days'}"


def changed_pools(
    present: Sequence[Mapping[str, Any]], pools: Mapping[str, PoolInFile], *, adopt: bool
) -> list[PoolChange]:
    """Return the pools that the cluster lacks, or has more or less of, or that are taken from another set.

    `present` is what the cluster has. Raises `click.UsageError` for one of another set that would change.
    """
    known = {one["name"]: one for one in present}
    found: list[PoolChange] = []
    for name, (capacity, of_set) in sorted(pools.items()):
        before = known[name]["capacity"] if name in known else None
        owner = known[name].get("set") if name in known else None  # older nodes do not send it
        taken = _taken_from(f"pool {name!r}", owner, of_set, differs=before != capacity, adopt=adopt)
        if before != capacity or taken is not None:
            found.append(PoolChange(name=name, before=before, after=capacity, of_set=of_set, taken_from=taken))
    return found


def changed_calendars(
    api: Api, present: Sequence[Mapping[str, Any]], calendars: Mapping[str, CalendarInFile], *, adopt: bool
) -> list[CalendarChange]:
    """Return the calendars that the cluster lacks, or knows with other days, or that are taken from another set.

    Raises as `changed_pools`, and `ApiProblem`, `Unreachable`.
    """
    known = {one["name"]: one for one in present}
    found: list[CalendarChange] = []
    for name, (days, of_set) in sorted(calendars.items()):
        before = tuple(api.client.get(path("v1", "calendars", name))["dates"]) if name in known else None
        owner = known[name].get("set") if name in known else None
        taken = _taken_from(f"calendar {name!r}", owner, of_set, differs=before != days, adopt=adopt)
        if before != days or taken is not None:
            found.append(CalendarChange(name=name, before=before, after=days, of_set=of_set, taken_from=taken))
    return found


def _taken_from(what: str, owner: str | None, of_set: str | None, *, differs: bool, adopt: bool) -> str | None:
    """Return the set that something is taken from; None: it is not. Raises `click.UsageError` if it must not change."""
    if owner is None or owner == of_set:
        return None
    if differs and not adopt:
        into = "no set" if of_set is None else f"the set {of_set!r}"
        raise click.UsageError(
            f"the {what} belongs to the set {owner!r}, which has it otherwise than these files of {into}: let both "
            f"have the same, name the set with --set {owner}, give it another name, or add --adopt to take it over"
        )
    return owner if adopt and of_set is not None else None


class GoneFromSet(NamedTuple):
    """A pool or a calendar that a set made, and that its files no longer have.

    >>> one = GoneFromSet("pool", "dumps", "night", 2)
    >>> str(one), one.why_kept
    ('pool dumps', '2 tasks still use it')
    """

    kind: GoneKind
    name: str
    of_set: str
    users: int

    def __str__(self) -> str:
        """Return it as a line for people begins."""
        return f"{self.kind} {self.name}"

    @property
    def why_kept(self) -> str | None:
        """Why it is kept, as far as is known before; None: it is to be removed."""
        if not self.users:
            return None
        return f"{self.users} {'task still uses' if self.users == 1 else 'tasks still use'} it"


def gone_from_sets(
    kind: GoneKind,
    items: Iterable[Mapping[str, Any]],
    sets: Collection[str],
    kept: Collection[str],
    tasks: Sequence[Mapping[str, Any]],
    puts: Sequence[Mapping[str, Any]],
    doomed: Sequence[Mapping[str, Any]],
) -> list[GoneFromSet]:
    """Return what `sets` made and their files no longer name, by name.

    `items` is what the cluster has, `kept` the names that the files have, `tasks` the definitions in the files, `puts`
    the answers of a dry run for these, and `doomed` the registered tasks that are deleted first.
    """
    found = [one for one in items if one.get("set") in sets and one["name"] not in kept]
    definitions = {str(one.get("name")): one for one in tasks} if found else {}
    return [
        GoneFromSet(kind, one["name"], one["set"], _still_used(kind, one, definitions, puts, doomed))
        for one in sorted(found, key=lambda one: str(one["name"]))
    ]


def _still_used(
    kind: GoneKind,
    item: Mapping[str, Any],
    definitions: Mapping[str, Mapping[str, Any]],
    puts: Sequence[Mapping[str, Any]],
    doomed: Sequence[Mapping[str, Any]],
) -> int:
    """Return how many tasks will use it once the tasks of the files are put, and the doomed ones are deleted."""
    name = item["name"]
    users = int(item["tasks"]) - sum(name in _used(kind, one) for one in doomed)
    for put in puts:
        definition = definitions[put["name"]]
        if put["change"] != "created":
            users -= name in _used(kind, _registered(kind, definition, put["changes"]))
        users += name in _used(kind, definition)
    return max(0, users)


_FIELDS: Final[dict[GoneKind, tuple[str, ...]]] = {"pool": ("uses", "rate"), "calendar": ("calendar",)}
"""The fields of a task's definition that name pools, or calendars."""


def _used(kind: GoneKind, definition: Mapping[str, Any]) -> set[str]:
    """Return the pools or calendars that a definition names.

    >>> sorted(_used("calendar", {"calendar": {"skip": "closing", "only": ["a", "b"], "on_skip": "next"}}))
    ['a', 'b', 'closing']
    >>> sorted(_used("pool", {"uses": {"dumps": 1}, "rate": {"pool": "api", "per_min": 30}})), _used("pool", {})
    (['api', 'dumps'], set())
    """
    if kind == "pool":
        uses, rate = definition.get("uses"), definition.get("rate")
        paced = {str(rate["pool"])} if isinstance(rate, dict) and "pool" in rate else set()
        return paced | (set(map(str, uses)) if isinstance(uses, dict) else set())
    part = definition.get("calendar")
    if not isinstance(part, dict):
        return set()
    named = [part.get("skip") or [], part.get("only") or []]
    return {str(one) for names in named for one in ([names] if isinstance(names, str) else names)}


def _registered(kind: GoneKind, definition: Mapping[str, Any], changes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the part of a registered definition that names pools or calendars, from that in the files and `changes`.

    >>> _registered("pool", {"uses": {"b": 1}}, [{"field": "uses.a", "before": 2}, {"field": "uses.b", "before": None}])
    {'uses': {'a': 2}, 'rate': None}
    """
    parts = {field: definition.get(field) for field in _FIELDS[kind]}
    for change in changes:
        field, dot, inner = change["field"].partition(".")
        if field not in parts:
            continue
        if not dot:
            parts[field] = change["before"]
            continue
        part = parts[field]
        part = dict(part) if isinstance(part, dict) else {}
        part.pop(inner, None)
        if change["before"] is not None:
            part[inner] = change["before"]
        parts[field] = part
    return parts


def remove_gone(
    api: Api,
    one: GoneFromSet,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str | None:
    """Remove a pool or a calendar, if its set still owns it. Returns None once it is gone, else why it is kept.

    Waits up to `ENDING_S` for the runs of deleted tasks to leave a pool. Raises `ApiProblem`, `Unreachable`.
    """
    until_s = clock() + ENDING_S
    while True:
        try:
            if one.kind == "pool":
                body = {"pools": {one.name: None}}
                api.client.call("PATCH", "/v1/settings", body=body, query={"set": one.of_set})
            else:
                api.client.call("DELETE", path("v1", "calendars", one.name), query={"set": one.of_set})
        except ApiProblem as problem:
            if problem.status == HTTPStatus.NOT_FOUND:
                return None
            if problem.status not in (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY):
                raise
            found = _pool(api, one.name) if one.kind == "pool" else {"tasks": 1}
            if found is None:
                return None
            if found["tasks"] or found["set"] != one.of_set or clock() >= until_s:
                return problem.detail or problem.title
            sleep(_AGAIN_S)
        else:
            return None


def _pool(api: Api, name: str) -> Mapping[str, Any] | None:
    return next((one for one in api.client.items("/v1/pools") if one["name"] == name), None)
