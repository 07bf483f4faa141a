"""Commands that bring the registered tasks in line with files: `rota apply` and `rota diff`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

import click

from node.cli.api import Api, F, api_command
from node.cli.applied import Done, field_lines, kept_text, left_over, mixed_text
from node.cli.beside_tasks import (
    CalendarChange,
    GoneFromSet,
    PoolChange,
    changed_calendars,
    changed_pools,
    gone_from_sets,
    remove_gone,
)
from node.cli.sets import (
    WrongSet,
    all_with_set,
    children_first,
    gone_from_files,
    parents_first,
    refuse_orphans,
    sets_to_prune,
    taken_over,
    with_set,
)
from node.cli.task_files import TaskFromFile, contents_of, parts, with_files_named
from node.cli.text import say
from node.client import ApiAnswer, ApiProblem, Unreachable, path

INDEX: Final = "Rota-Index"
GONE: Final = 404
CHANGED_SINCE: Final = 412
"""The statuses that refuse a deletion: the task does not exist (`GONE`), or has another version."""
TOO_LARGE: Final = 413


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The effect of applying."""

    #: The pools that change.
    pools: Sequence[PoolChange]
    #: The calendars that change.
    calendars: Sequence[CalendarChange]
    #: The tasks to put.
    tasks: Sequence[TaskFromFile]
    #: The sets to prune, so the files must contain all of their tasks.
    sets: Sequence[str]
    #: The answer of a dry run for each of the tasks to put.
    puts: Sequence[Mapping[str, Any]]
    #: The tasks to delete.
    doomed: Sequence[Mapping[str, Any]]
    #: The pools and calendars that the sets made and the files no longer have, also those that tasks still use.
    gone: Sequence[GoneFromSet] = ()

    @property
    def names(self) -> list[str]:
        """The tasks to put."""
        return [str(put["name"]) for put in self.puts]

    @property
    def doomed_names(self) -> list[str]:
        """The tasks to delete."""
        return [str(task["name"]) for task in self.doomed]

    @property
    def different(self) -> bool:
        """Whether any pool, any calendar or any field of any task differs. What is still used stays, and does not."""
        to_remove = any(one.why_kept is None for one in self.gone)
        return bool(self.pools or self.calendars or self.different_names or to_remove)

    @property
    def different_names(self) -> list[str]:
        """The tasks that differ, or that only the files or only the cluster have."""
        return [
            str(put["name"]) for put in self.puts if put["change"] == "created" or put["changes"]
        ] + self.doomed_names


def _file_options(command: F) -> F:
    options = (
        click.option(
            "-f",
            "places",
            required=True,
            multiple=True,
            metavar="FILE",
            help="A YAML or JSON file with one task, a list of tasks, or several documents; a folder: all such "
            "files in it; - for standard input. All are read before any is sent.",
        ),
        click.option(
            "--set",
            "set_name",
            metavar="NAME",
            help="The set that the files are: each task gets `set: NAME`, and pools and calendars that this makes are "
            "of the set.",
        ),
        click.option(
            "--prune",
            is_flag=True,
            help="Also delete the tasks of the set that the files do not have (any more), then the pools and calendars "
            "that the set made and no task uses.",
        ),
        click.option(
            "--allow-empty", is_flag=True, help="With --prune: delete the whole set if the files have no task."
        ),
        click.option("--adopt", is_flag=True, help="Take over tasks, pools and calendars that belong to another set."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command("apply")
@_file_options
@click.option("--dry-run", is_flag=True, help="Check the tasks and print what would change; change nothing.")
@api_command
def apply_command(
    api: Api,
    places: tuple[str, ...],
    set_name: str | None,
    prune: bool,
    allow_empty: bool,
    adopt: bool,
    dry_run: bool,
) -> None:
    """Register tasks, or change registered ones; nothing is changed if one of them is not valid.

    Each change is printed as soon as it is made. If the command ends midway, the same command makes the other changes.
    """
    try:
        plan = _plan(api, places, set_name, prune=prune, allow_empty=allow_empty, adopt=adopt)
    except KeyboardInterrupt:
        say("rota: nothing was changed", err=True)
        raise
    done = Done(None if api.as_json else say)
    if dry_run:
        done.tried(plan.pools, plan.calendars, plan.puts, plan.doomed_names, plan.gone)
    else:
        try:
            index = _carry_out(api, plan, done)
        except (ApiProblem, Unreachable, KeyboardInterrupt) as error:
            if api.as_json:
                api.show(done.answer, "")
            say(f"rota: {left_over(done, plan.names, plan.doomed_names, error, plan.gone)}", err=True)
            raise
    if api.as_json:
        api.show(done.answer, "")
    elif not (plan.tasks or plan.doomed or plan.pools or plan.calendars or plan.gone):
        said = "no task is in the files or the set, and pools and calendars are as in the files"
        say(f"there is nothing to change: {said}")
    if done.kept:
        raise click.ClickException(kept_text(done.kept))
    if plan.sets and done.changed and not dry_run:
        _check_result(api, plan, index)
    if done.unprinted is not None:
        raise done.unprinted


@click.command("diff")
@_file_options
@api_command
def diff_command(
    api: Api, places: tuple[str, ...], set_name: str | None, prune: bool, allow_empty: bool, adopt: bool
) -> int:
    """Show in which fields the registered tasks differ from files; exit with 4 if any does.

    Shows what `rota apply` would do with the same options. Changes nothing.
    """
    from node.cli.main import DIFFERENT, DONE

    plan = _plan(api, places, set_name, prune=prune, allow_empty=allow_empty, adopt=adopt)
    api.show(
        {
            "pools": [change._asdict() for change in plan.pools],
            "calendars": [change._asdict() for change in plan.calendars],
            "items": plan.puts,
            "deleted": [task["name"] for task in plan.doomed],
            "removed": [{"kind": one.kind, "name": one.name} for one in plan.gone if one.why_kept is None],
            "still_used": [
                {"kind": one.kind, "name": one.name, "why": one.why_kept} for one in plan.gone if one.why_kept
            ],
            "next": None,
        },
        lambda: _print_diff(plan),
    )
    return DIFFERENT if plan.different else DONE


def _plan(
    api: Api, places: Sequence[str], set_name: str | None, *, prune: bool, allow_empty: bool, adopt: bool
) -> Difference:
    """Read the files, and ask the cluster what would change. Raises `click.UsageError`, `ApiProblem`, `Unreachable`."""
    found = contents_of(places)
    try:
        tasks = parents_first(with_set(found.tasks, set_name))
        pools, calendars = all_with_set(found.pools, found.calendars, set_name)
        owners = {pool.of_set for pool in pools.values()} | {calendar.of_set for calendar in calendars.values()}
        beside = sorted(owner for owner in owners if owner is not None)
        sets = sets_to_prune(tasks, set_name, may_be_empty=allow_empty, beside=beside) if prune else []
    except WrongSet as error:
        raise click.UsageError(str(error)) from None
    if not tasks and not prune and not found.pools and not found.calendars:
        raise click.UsageError(f"{', '.join(places)}: no file there contains a task")
    present = list(api.client.items("/v1/pools")) if pools or sets else []
    days = list(api.client.items("/v1/calendars")) if calendars or sets else []
    plan = _compared(
        api,
        tasks,
        sets,
        changed_pools(present, pools, adopt=adopt),
        changed_calendars(api, days, calendars, adopt=adopt),
    )
    definitions = [task.definition for task in tasks]
    plan = replace(
        plan,
        gone=[
            *gone_from_sets("pool", present, sets, pools, definitions, plan.puts, plan.doomed),
            *gone_from_sets("calendar", days, sets, calendars, definitions, plan.puts, plan.doomed),
        ],
    )
    try:
        refuse_orphans(plan.doomed, definitions, lambda task: _children_of(api, task))
    except WrongSet as error:
        raise click.UsageError(str(error)) from None
    if not adopt and (others := taken_over(plan.puts)):
        name, before, after = others[0]
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        into = "no set" if after is None else f"the set {after!r}"
        raise click.UsageError(
            f"the task {name!r}{more} belongs to the set {before!r}, and these files would put it into {into}: "
            f"name the set with --set {before}, give the task another name, or add --adopt to take it from there"
        )
    return plan


def _children_of(api: Api, task: str) -> list[str]:
    """Return the registered tasks that come after a task. Raises `ApiProblem`, `Unreachable`."""
    try:
        shown = api.client.get(path("v1", "tasks", task, "graph"), limit=1000)
    except ApiProblem as problem:
        if problem.status == GONE:
            return []
        raise
    return [edge["to"] for edge in shown["edges"] if edge["from"] == task]


def _compared(
    api: Api,
    tasks: Sequence[TaskFromFile],
    sets: Sequence[str],
    pools: Sequence[PoolChange] = (),
    calendars: Sequence[CalendarChange] = (),
    index: str = "0",
) -> Difference:
    """Compare the tasks with the tasks of a member that has applied `index`. Raises `ApiProblem`, `Unreachable`.

    `pools` and `calendars` will be changed first.
    """
    first = {"pools": ",".join(f"{change.name}={change.after}" for change in pools)} if pools else {}
    if new := [change.name for change in calendars if change.before is None]:
        first["calendars"] = ",".join(new)
    query = {"dry_run": "true", **first}
    puts = [put for answer in _put(api, tasks, index, query) for put in answer.json["items"]]
    names = {put["name"] for put in puts}
    doomed = [task for each in sets for task in gone_from_files(api.client.items("/v1/tasks", set=each), each, names)]
    return Difference(
        pools=pools, calendars=calendars, tasks=tasks, sets=sets, puts=puts, doomed=children_first(doomed)
    )


def _put(
    api: Api, tasks: Sequence[TaskFromFile], index: str = "0", query: Mapping[str, str] | None = None
) -> Iterator[ApiAnswer]:
    """Put the tasks in as many requests as needed, and yield the answers. Raises `ApiProblem`, `Unreachable`."""
    for part in parts(tasks):
        body = [task.definition for task in part]
        try:
            yield api.client.call("POST", "/v1/tasks", body=body, query=query, headers={INDEX: index})
        except ApiProblem as problem:
            if problem.status == TOO_LARGE and len(part) == 1:
                size = len(json.dumps(body)) / 2**20
                raise click.UsageError(
                    f"{part[0].origin} is too long: it has {size:.1f} MiB, and at most 1 MiB may be sent"
                ) from None
            raise with_files_named(problem, [task.origin for task in part]) from problem


def _carry_out(api: Api, plan: Difference, done: Done) -> str:
    """Make the planned changes. Returns the index of the last one.

    Raises `ApiProblem`, `Unreachable`; `done` then has the changes made before the error.
    """
    index = "0"
    if plan.pools:
        groups = groupby(sorted(plan.pools, key=_by_owner), key=_by_owner)
        for query, changes in [(_owner_query(owner), list(group)) for owner, group in groups]:
            pools = {change.name: change.after for change in changes}
            answer = api.client.call("PATCH", "/v1/settings", body={"pools": pools}, query=query)
            index = answer.headers.get(INDEX, index)
            done.set_pools(changes)
    for change in plan.calendars:
        where = path("v1", "calendars", change.name)
        query = _owner_query(_by_owner(change))
        answer = api.client.call("PUT", where, body={"dates": list(change.after)}, query=query, headers={INDEX: index})
        index = answer.headers.get(INDEX, index)
        done.set_calendar(change)
    for answer in _put(api, plan.tasks, index):
        index = answer.headers.get(INDEX, index)
        done.put(answer.json["items"])
    for task in plan.doomed:
        name = str(task["name"])
        try:
            # Delete only the version that was compared, because somebody may have changed the task since.
            answer = api.client.call("DELETE", path("v1", "tasks", name), headers={"If-Match": f'"{task["version"]}"'})
        except ApiProblem as problem:
            if problem.status == GONE:
                done.gone(name)
            elif problem.status == CHANGED_SINCE:
                done.keep(name)
            else:
                raise
        else:
            index = answer.headers.get(INDEX, index)
            done.delete(name)
    for one in plan.gone:  # after the tasks that used them
        why = one.why_kept or remove_gone(api, one)
        if why is None:
            done.remove(one)
        else:
            done.keep_used(one, why)
    return index


def _by_owner(change: PoolChange | CalendarChange) -> tuple[str, bool]:
    """Return the set that makes a pool or a calendar ("": none), and whether it takes it from another set."""
    return change.of_set or "", change.taken_from is not None


def _owner_query(owner: tuple[str, bool]) -> dict[str, str] | None:
    of_set, adopts = owner
    return {"set": of_set, **({"adopt": "true"} if adopts else {})} if of_set else None


def _check_result(api: Api, plan: Difference, index: str) -> None:
    """Raise `click.ClickException` if the sets differ from the files although all changes were made.

    If two commands apply different files as one set at the same time, the command that ends later notices it here.
    """
    try:
        mixed = _compared(api, plan.tasks, plan.sets, index=index).different_names
    except (ApiProblem, Unreachable) as error:
        say(f"rota: all was done; that the set is as in the files was not checked: {error}", err=True)
        return
    if mixed:
        raise click.ClickException(mixed_text(mixed))


def _print_diff(plan: Difference) -> None:
    changes: list[PoolChange | CalendarChange] = [*plan.pools, *plan.calendars]
    for change in changes:
        say(f"{'+' if change.before is None else '~'} {change}")
    counts = {"new": 0, "changed": 0, "deleted": len(plan.doomed)}
    for put in plan.puts:
        if put["change"] == "created":
            counts["new"] += 1
            say(f"+ {put['name']}")
        elif put["changes"]:
            counts["changed"] += 1
            say("\n".join((f"~ {put['name']}", *field_lines(put))))
    for task in plan.doomed:
        say(f"- {task['name']}")
    for one in plan.gone:
        say(
            f"- {one}" if one.why_kept is None else f"  {one}: kept, though the files no longer have it: {one.why_kept}"
        )
    same = len(plan.puts) - counts["new"] - counts["changed"]
    beside = len(changes) + sum(one.why_kept is None for one in plan.gone)
    more = f"; {beside} of pools and calendars" if beside else ""
    say(", ".join(f"{count} {what}" for what, count in counts.items()) + f", {same} as in the files{more}")
