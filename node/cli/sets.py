"""Decides to which set each task, pool and calendar of the files belongs, and which tasks are no longer in their set.

Pure.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from node.cli.task_files import CalendarInFile, PoolInFile, TaskFromFile


class WrongSet(Exception):
    """The files and the options disagree on the sets of the tasks. The message says how to fix that."""


def with_set(tasks: Sequence[TaskFromFile], name: str | None) -> list[TaskFromFile]:
    """Put the tasks that have no set into the set `name`, and return all tasks.

    Raises `WrongSet` for a name that a set cannot have, such as the empty value of an unset variable, and for a task of
    another set.
    """
    if name is None:
        return list(tasks)
    # Imported here, because the models take as long to import as everything else that a command needs.
    from tasks.definition.spec import NAME_PATTERN

    if not re.fullmatch(NAME_PATTERN, name):
        raise WrongSet(
            f"--set {name!r} is not the name of a set, which begins with a letter or digit and has letters, digits, "
            "'.', '_' and '-'"
        )
    for task in tasks:
        if (own := task.definition.get("set")) not in (None, name):
            raise WrongSet(f"{task.origin} is of the set {own!r}, and --set says {name!r}: give one of the two")
    return [replace(task, definition={**task.definition, "set": name}) for task in tasks]


def all_with_set(
    pools: Mapping[str, PoolInFile], calendars: Mapping[str, CalendarInFile], name: str | None
) -> tuple[dict[str, PoolInFile], dict[str, CalendarInFile]]:
    """Put the pools and calendars that have no set into the set `name`. Raises `WrongSet` for those of another set."""
    of_sets = [("pool", one, pools[one].of_set) for one in pools]
    of_sets += [("calendar", one, calendars[one].of_set) for one in calendars]
    for kind, one, own in of_sets if name is not None else ():
        if own not in (None, name):
            raise WrongSet(f"the {kind} {one} is of the set {own!r}, and --set says {name!r}: give one of the two")
    return (
        {one: pool._replace(of_set=pool.of_set or name) for one, pool in pools.items()},
        {one: calendar._replace(of_set=calendar.of_set or name) for one, calendar in calendars.items()},
    )


def sets_to_prune(
    tasks: Sequence[TaskFromFile], name: str | None, *, may_be_empty: bool, beside: Collection[str] = ()
) -> list[str]:
    """Return the sets whose tasks are all in the files. Raises `WrongSet` if there is none, or a mistake is likely.

    `beside` are the sets of the pools and calendars in the files.
    """
    if not tasks and not may_be_empty:
        raise WrongSet(
            "the files contain no task, so that all tasks of the set would be deleted: if that is meant, add "
            "--allow-empty"
        )
    if without := [task.origin for task in tasks if task.definition.get("set") is None]:
        more = f" and {len(without) - 1} more" if len(without) > 1 else ""
        raise WrongSet(
            f"{without[0]}{more} belongs to no set, and --prune deletes only tasks of a set: name it with --set "
            "NAME, or by `set: NAME` in each task"
        )
    of_tasks = {str(task.definition["set"]) for task in tasks} | ({name} if name is not None else set())
    if (without_tasks := sorted(set(beside) - of_tasks)) and not may_be_empty:
        raise WrongSet(
            f"the files have pools or calendars of the set {without_tasks[0]!r}, and no task of it, so that all of its "
            "tasks would be deleted: if that is meant, add --allow-empty"
        )
    names = sorted(of_tasks | set(beside))
    if not names:
        raise WrongSet("there is no task, and so no set to prune: name it with --set NAME")
    return names


def parents_first(tasks: Sequence[TaskFromFile]) -> list[TaskFromFile]:
    """Return the tasks, each after those that it comes after: a task is registered only once these are.

    Tasks in a circle keep their order: the cluster refuses them, and says why.
    """
    if not any(_parents(task.definition) for task in tasks):
        return list(tasks)
    by_name = {str(task.definition.get("name")): task for task in tasks}
    order = _parents_first({name: _parents(task.definition) for name, task in by_name.items()})
    place = {name: number for number, name in enumerate(order)}
    return sorted(tasks, key=lambda task: place[str(task.definition.get("name"))])


def children_first(registered: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return registered tasks in an order in which they can be deleted: each before those that it comes after."""
    if not any(map(_parents, registered)):
        return list(registered)
    by_name = {str(task["name"]): task for task in registered}
    order = _parents_first({name: _parents(task) for name, task in by_name.items()})
    return [by_name[name] for name in reversed(order)]


def _parents(definition: Mapping[str, Any]) -> list[str]:
    after = definition.get("after")
    return [str(one.get("task") if isinstance(one, dict) else one) for one in after] if isinstance(after, list) else []


def _parents_first(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names in their order, but each after its parents.

    >>> _parents_first({"c": ["b"], "a": [], "b": ["a"]})
    ['a', 'b', 'c']
    """
    found: dict[str, None] = {}
    for name in parents:
        path = [name]
        while path:
            before = [one for one in parents[path[-1]] if one in parents and one not in found and one not in path]
            if before:
                path.append(before[0])
            else:
                found[path.pop()] = None
    return list(found)


def gone_from_files(
    registered: Iterable[Mapping[str, Any]], name: str, kept: Collection[str]
) -> list[Mapping[str, Any]]:
    """Return the registered tasks of the set `name` that its files no longer have, sorted by name.

    The returned tasks will be deleted, so tasks of other sets are left out, even if a node's answer has some.
    """
    doomed = (task for task in registered if task.get("set") == name and task["name"] not in kept)
    return sorted(doomed, key=lambda task: str(task["name"]))


def refuse_orphans(
    doomed: Sequence[Mapping[str, Any]],
    definitions: Sequence[Mapping[str, Any]],
    children_of: Callable[[str], Iterable[str]],
) -> None:
    """Raise `WrongSet` if a task that stays comes after one of the `doomed`, which then could not be deleted.

    `definitions` are those of the files. `children_of` returns the registered tasks that come after a task.
    """
    gone, kept = {str(task["name"]) for task in doomed}, {str(one["name"]): _parents(one) for one in definitions}
    for name in sorted(gone):
        registered = [child for child in children_of(name) if child not in gone and child not in kept]
        left = sorted([*registered, *(child for child, parents in kept.items() if name in parents)])
        if left:
            raise WrongSet(
                f"{name} would be deleted, and {', '.join(left[:5])} {'comes' if len(left) == 1 else 'come'} after it: "
                f"change or delete {'that' if len(left) == 1 else 'these'} first, or keep {name} in the files"
            )


def taken_over(puts: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str | None]]:
    """Return the tasks that applying would take from another set: (name, present set, set afterwards).

    `puts` are the answers of a dry run.

    >>> taken_over([{"name": "a", "changes": [{"field": "set", "before": "site", "after": None}]}])
    [('a', 'site', None)]
    """
    return [
        (put["name"], change["before"], change["after"])
        for put in puts
        for change in put["changes"]
        if change["field"] == "set" and change["before"] is not None
    ]
