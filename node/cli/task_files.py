"""Reads task definitions from files and folders, each with its origin."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

import click

from node.cli.reading import read_documents
from node.cli.text import input_text, source_name
from node.client import ApiProblem

LIST_BYTES_MAX: Final = 900_000
DEFAULTS_BYTES: Final = 300
"""A longer list is sent in parts. A body may have 1 MiB, and so may the list with all defaults filled in, which add
`DEFAULTS_BYTES` to each task.
"""

SHORT_CHARS: Final = 140
"""At most this much of a value is shown: a valid name has up to 128 characters, but a file may hold anything."""

TWICE_NAMED_MAX: Final = 10
"""An error names at most this many tasks that are defined more than once."""

_PLACE: Final = re.compile(r"^\[(\d+)\]")
"""Matches the position in the list of tasks that was sent, with which the API begins a field's name."""


@dataclass(frozen=True, slots=True)
class TaskFromFile:
    """A definition as written in a file, not checked yet; `origin` names the file, and the task in it."""

    definition: dict[str, Any]
    origin: str


class PoolInFile(NamedTuple):
    """How much there is of a pool, and the set that it is of if this makes it (None: none)."""

    capacity: int
    of_set: str | None = None


class CalendarInFile(NamedTuple):
    """The days of a calendar, and the set that it is of if this makes it (None: none)."""

    days: tuple[str, ...]
    of_set: str | None = None


@dataclass(frozen=True, slots=True)
class FileContents:
    """What files contain: tasks, in order, and pools and calendars, by name."""

    tasks: list[TaskFromFile]
    pools: dict[str, PoolInFile]
    calendars: dict[str, CalendarInFile]


@cache
def _state_fields() -> frozenset[str]:
    """Return the fields that the API returns for a task besides its definition."""
    # Imported here, because the models take as long to import as everything else that a command needs.
    from node.http.api.task_shapes import ListedTaskView
    from tasks.definition.spec import Spec

    return frozenset(get_type_hints(ListedTaskView)) - frozenset(Spec.model_fields)


def definition(task: dict[str, Any]) -> dict[str, Any]:
    """Return a task as the API shows it without its state. Any other mapping is returned unchanged.

    >>> definition({"name": "a", "kind": "command", "version": 3, "registered_at": "2026-11-22T10:00:00Z"})
    {'name': 'a', 'kind': 'command'}
    >>> definition({"name": "a", "kind": "command", "version": 3})
    {'name': 'a', 'kind': 'command', 'version': 3}
    """
    if not {"version", "registered_at"} <= task.keys():
        return task
    return {name: value for name, value in task.items() if name not in _state_fields()}


def contents_of(places: Sequence[str]) -> FileContents:
    """Return what all these files and folders (`-`: standard input) contain.

    Raises `click.UsageError` for a file or folder that cannot be read, a given file without content, a name that is
    defined twice, pools that are no numbers, and calendars that have no days.
    """
    contents = FileContents([], {}, {})
    found = contents.tasks
    files_of: dict[str, list[str]] = {}
    for place in places:
        for file in files_at(place):
            tasks = _of_file(file, contents, may_be_empty=file != place)
            for task in tasks:
                found.append(task)
                if "name" in task.definition:
                    # As text, because the API has not checked the names yet, and a name may even be a list.
                    files_of.setdefault(str(task.definition["name"]), []).append(source_name(file))
    if twice := [
        f"{name} (in {', '.join(dict.fromkeys(files))})" for name, files in sorted(files_of.items()) if len(files) > 1
    ]:
        more = f", and {len(twice) - TWICE_NAMED_MAX} more" if len(twice) > TWICE_NAMED_MAX else ""
        raise click.UsageError(f"defined more than once: {', '.join(twice[:TWICE_NAMED_MAX])}{more}")
    return contents


def parts(tasks: Iterable[TaskFromFile]) -> Iterator[list[TaskFromFile]]:
    """Split the tasks, in order, into lists that each fit into one request body."""
    part: list[TaskFromFile] = []
    size = 0
    for task in tasks:
        length = len(json.dumps(task.definition)) + DEFAULTS_BYTES
        if part and size + length > LIST_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(task)
        size += length
    if part:
        yield part


def with_files_named(problem: ApiProblem, origins: Sequence[str]) -> ApiProblem:
    """Return the problem with file and task in its fields' names, where the API has the task's position in the list.

    >>> with_files_named(ApiProblem(422, "", "", "", (("[0].kind", "is missing"),)), ["a.yaml: task 'x'"]).errors
    (("a.yaml: task 'x': kind", 'is missing'),)
    """
    errors = []
    for field, message in problem.errors:
        place = _PLACE.match(field)
        if place is not None and int(place[1]) < len(origins):
            rest = field[place.end() :].removeprefix(".")
            field = ": ".join(filter(None, (origins[int(place[1])], rest)))  # noqa: PLW2901 - the same field, renamed
        errors.append((field, message))
    return replace(problem, errors=tuple(errors))


_BESIDE_TASKS: Final = frozenset({"pools", "calendars"})
"""What a document may have that is no task, beside the `set` that it is of."""


def _of_file(file: str, contents: FileContents, *, may_be_empty: bool) -> list[TaskFromFile]:
    """Return a file's tasks, and add its pools and calendars to `contents`."""
    documents = list(_documents(file))
    specs = []
    for document in documents:
        if not document.keys() & _BESIDE_TASKS or not document.keys() <= _BESIDE_TASKS | {"set"}:
            specs.append(definition(document))
            continue
        of_set = _set_of(source_name(file), document)
        if "pools" in document:
            _add_pools(source_name(file), document["pools"], contents.pools, of_set)
        if "calendars" in document:
            _add_calendars(file, document["calendars"], contents.calendars, of_set)
    if not documents and not may_be_empty:
        raise click.UsageError(f"{source_name(file)} contains no task")
    return [TaskFromFile(spec, origin) for spec, origin in zip(specs, _origins(file, specs), strict=True)]


def _set_of(source: str, document: Mapping[str, Any]) -> str | None:
    of_set = document.get("set")
    # Imported here, because the models take as long to import as everything else that a command needs.
    from tasks.definition.spec import NAME_PATTERN

    if of_set is not None and (not isinstance(of_set, str) or re.fullmatch(NAME_PATTERN, of_set) is None):
        raise click.UsageError(f"{source}: {_short(of_set)} is not the name of a set")
    return of_set


def _add_pools(source: str, given: Any, pools: dict[str, PoolInFile], of_set: str | None) -> None:
    # Imported here, because the state takes long to import, and most files have no pools.
    from node.state.settings import setting_fault

    if (fault := setting_fault("pools", given)) is not None:
        raise click.UsageError(f"{source}: {_short(fault)}")
    for name, capacity in given.items():
        if capacity is None:
            raise click.UsageError(f"{source}: the pool {name} is null: `rota pools remove {name}` removes it")
        known = pools.setdefault(name, PoolInFile(capacity, of_set))
        if known.capacity != capacity:
            raise click.UsageError(f"{source}: the pool {name} is {capacity} here, and {known.capacity} elsewhere")
        if known.of_set != of_set:
            raise click.UsageError(
                f"{source}: the pool {name} is of {_named(of_set)} here, and of {_named(known.of_set)} elsewhere"
            )


def _named(of_set: str | None) -> str:
    return "no set" if of_set is None else f"the set {of_set}"


def _add_calendars(file: str, given: Any, calendars: dict[str, CalendarInFile], of_set: str | None) -> None:
    from node.cli.calendar_days import calendar_in_file

    source = source_name(file)
    if not isinstance(given, dict):
        raise click.UsageError(f"{source}: calendars is a table of names and dates, as {{closing: [2026-12-24]}}")
    for name, value in given.items():
        try:
            days = calendar_in_file(file, str(name), value)
        except click.UsageError as error:
            raise click.UsageError(f"{source}: {error}") from None
        known = calendars.setdefault(str(name), CalendarInFile(days, of_set))
        if known.days != days:
            raise click.UsageError(f"{source}: the calendar {name} has other days here than in another place")
        if known.of_set != of_set:
            raise click.UsageError(
                f"{source}: the calendar {name} is of {_named(of_set)} here, and of {_named(known.of_set)} elsewhere"
            )


def _documents(file: str) -> Iterator[dict[str, Any]]:
    for document in read_documents(source_name(file), input_text(file)):
        for spec in document if isinstance(document, list) else [document]:
            if spec is None:
                continue
            if not isinstance(spec, dict):
                raise click.UsageError(
                    f"{source_name(file)}: a task is a mapping with a name and a kind, not {_short(spec)}"
                )
            yield spec


def _origins(file: str, specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the origin of each task of a file, for messages.

    >>> _origins("a.yaml", [{"name": "x"}, {}]), _origins("-", [{}])
    (["a.yaml: task 'x'", 'a.yaml: task number 2'], ['standard input'])
    """
    source = source_name(file)
    if len(specs) == 1 and "name" not in specs[0]:
        return [source]
    return [
        f"{source}: task {_short(spec['name'])}" if "name" in spec else f"{source}: task number {number}"
        for number, spec in enumerate(specs, 1)
    ]


def _short(value: Any) -> str:
    """Return a value as text, shortened for a message.

    >>> _short("a"), len(_short("a" * 1000))
    ("'a'", 140)
    """
    text = repr(value[:SHORT_CHARS] if isinstance(value, str) else value)
    return text if len(text) <= SHORT_CHARS else f"{text[: SHORT_CHARS - 3]}..."


SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
"""The suffixes of the files that are read in a folder."""


def files_at(place: str) -> Iterator[str]:
    """Yield the file at `place`, or, sorted by path, the files of the folder there and of its subfolders.

    Hidden files and folders are left out; symlinks are followed. Raises `click.UsageError` for a folder that cannot be
    read, a symlink that is broken or leads to a folder that contains it, and for a special file with a file's suffix.
    """
    if place == "-" or not os.path.isdir(place):  # noqa: PTH112 - Path.is_dir raises without permission
        yield place
    else:
        yield from sorted(_within(Path(place), ()), key=Path)


def _within(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Yield the files in a folder. `above` are the folders that lead to it, as device and inode."""
    try:
        status = folder.stat()
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(folder, error) from error
    here = (status.st_dev, status.st_ino)
    if here in above:
        raise click.UsageError(f"{folder} is a link to a folder that it is in: remove it")
    for entry in entries:
        if entry.name.startswith("."):
            continue
        path = Path(entry.path)
        named_as_file = path.suffix.lower() in SUFFIXES
        try:
            path.stat()
        except OSError as error:
            # A broken symlink, whatever its suffix, may be meant to lead to a folder of tasks.
            raise _unreadable(path, error) from error
        if path.is_dir():
            yield from _within(path, (*above, here))
        elif named_as_file and not path.is_file():
            raise click.UsageError(f"{path} is neither a file nor a folder")
        elif named_as_file:
            yield str(path)


def _unreadable(path: Path, error: OSError) -> click.UsageError:
    leads = " (a link that leads nowhere)" if os.path.islink(path) else ""  # noqa: PTH114 - Path.is_symlink may raise
    return click.UsageError(
        f"{path} cannot be read: {error.strerror}{leads}. Mend or remove it: tasks in it would be overlooked"
    )
