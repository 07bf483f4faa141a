"""Commands for tasks: register, list and show them, ask where they run, pause and delete them."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, get_type_hints

import click
import yaml

from node.cli.api import Api, ago, api_command
from node.cli.reading import documents
from node.cli.text import input_text, source_name
from node.cli.why import held_state
from node.client import ApiProblem, path

LIST_BYTES_MAX: Final = 900_000
DEFAULTS_BYTES: Final = 300
"""A longer list is sent in parts: a body may have 1 MiB, and so may the list with all defaults filled in, which adds
`DEFAULTS_BYTES` to each task.
"""

_PLACE: Final = re.compile(r"^\[(\d+)\]")
"""A place in the list of tasks that was sent, at the begin of a field's name."""


@cache
def _state_fields() -> frozenset[str]:
    """The fields that the API returns for a task besides its definition."""
    # Imported here: the models take as long to import as everything else that a command needs.
    from node.http.responses.tasks import ListedTaskView
    from tasks.spec import Spec

    return frozenset(get_type_hints(ListedTaskView)) - frozenset(Spec.model_fields)


@click.command("apply")
@click.option(
    "-f",
    "files",
    required=True,
    multiple=True,
    metavar="FILE",
    help="A YAML or JSON file with one task, a list of tasks, or several documents; - for standard input. With several "
    "files, all are read before any is sent.",
)
@click.option("--dry-run", is_flag=True, help="Check the tasks and print what would change; change nothing.")
@api_command
def apply_command(api: Api, files: tuple[str, ...], dry_run: bool) -> None:
    """Register tasks, or change registered ones."""
    specs: list[dict[str, Any]] = []
    origins: list[str] = []
    for file in files:
        found = list(_specs(file))
        if not found:
            raise click.UsageError(f"{source_name(file)} contains no task")
        specs += found
        origins += _origins(file, found)
    # As text: the API has not checked the names yet, and a name may even be a list.
    names = Counter(str(spec["name"]) for spec in specs if "name" in spec)
    if twice := sorted(name for name, count in names.items() if count > 1):
        where = "one file" if len(files) == 1 else "these files"
        raise click.UsageError(
            f"{', '.join(map(source_name, files))}: defined more than once in {where}: {', '.join(twice)}"
        )
    answers: list[Any] = []
    for part in _parts(specs):
        query = {"dry_run": "true"} if dry_run else None
        try:
            answers += api.client.call("POST", "/v1/tasks", body=part, query=query).json["items"]
        except ApiProblem as problem:
            raise _located(problem, origins[len(answers) :]) from problem
    lines = [line for item in answers for line in _put_lines(item, dry_run)]
    api.show({"items": answers, "next": None}, "\n".join(lines))


def _put_lines(item: dict[str, Any], dry_run: bool) -> Iterator[str]:
    """The lines about one applied task: what changed, each field that differs, each warning."""
    yield f"{item['name']}: {'would be ' if dry_run else ''}{item['change']} (version {item['version']})"
    for change in item["changes"]:
        yield f"  {change['field']}: {json.dumps(change['before'])} -> {json.dumps(change['after'])}"
    for warning in item["warnings"]:
        yield f"  warning: {warning}"


def _specs(file: str) -> Iterator[dict[str, Any]]:
    for document in documents(source_name(file), input_text(file)):
        for spec in document if isinstance(document, list) else [document]:
            if spec is None:
                continue
            if not isinstance(spec, dict):
                raise click.UsageError(f"{source_name(file)}: a task is a mapping with a name and a kind, not {spec!r}")
            yield definition(spec)


def _origins(file: str, specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where each task of a file comes from, for messages.

    >>> _origins("a.yaml", [{"name": "x"}, {}]), _origins("-", [{}])
    (["a.yaml: task 'x'", 'a.yaml: task number 2'], ['standard input'])
    """
    source = source_name(file)
    if len(specs) == 1 and "name" not in specs[0]:
        return [source]
    return [
        f"{source}: task {spec['name']!r}" if "name" in spec else f"{source}: task number {number}"
        for number, spec in enumerate(specs, 1)
    ]


def _located(problem: ApiProblem, origins: Sequence[str]) -> ApiProblem:
    """The problem with its fields named by file and task, where the API names them by their place in the list.

    >>> _located(ApiProblem(422, "", "", "", (("[0].kind", "is missing"),)), ["a.yaml: task 'x'"]).errors
    (("a.yaml: task 'x': kind", 'is missing'),)
    """
    errors = []
    for field, message in problem.errors:
        place = _PLACE.match(field)
        if place is not None and int(place[1]) < len(origins):
            rest = field[place.end() :].removeprefix(".")
            field = ": ".join(filter(None, (origins[int(place[1])], rest)))  # noqa: PLW2901 - the same field, named
        errors.append((field, message))
    return replace(problem, errors=tuple(errors))


def definition(task: dict[str, Any]) -> dict[str, Any]:
    """A task as the API returns it, without its state; any other mapping unchanged.

    >>> definition({"name": "a", "kind": "command", "version": 3, "registered_at": "2026-11-22T10:00:00Z"})
    {'name': 'a', 'kind': 'command'}
    >>> definition({"name": "a", "kind": "command", "version": 3})
    {'name': 'a', 'kind': 'command', 'version': 3}
    """
    if not {"version", "registered_at"} <= task.keys():
        return task
    return {name: value for name, value in task.items() if name not in _state_fields()}


def _parts(specs: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The tasks in order, in lists that fit into one body."""
    part: list[dict[str, Any]] = []
    size = 0
    for spec in specs:
        length = len(json.dumps(spec)) + DEFAULTS_BYTES
        if part and size + length > LIST_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(spec)
        size += length
    if part:
        yield part


@click.command("tasks")
@click.option("--kind", help="Only tasks of this kind.")
@click.option("--owner", help="Only tasks that this node owns.")
@api_command
def tasks_command(api: Api, kind: str | None, owner: str | None) -> None:
    """List all tasks with their owners, and what holds those that nobody has asked to wait (see rota why)."""
    items = list(api.client.items("/v1/tasks", kind=kind, owner=owner))
    api.show(
        {"items": items, "next": None},
        lambda: api.table(
            ("TASK", "KIND", "OWNER", "NEXT", "LAST", "STATE"),
            (
                (
                    item["name"],
                    item["kind"],
                    item["owner"],
                    ago(item["next_fire_at"]),
                    item["last"] and f"{item['last']['state']} {ago(item['last']['finished_at'])}",
                    held_state(item),
                )
                for item in items
            ),
            "no tasks are registered; register some with: rota apply -f FILE",
        ),
    )


@click.command("show")
@click.argument("name")
@api_command
def show_command(api: Api, name: str) -> None:
    """Show a task as YAML that `rota apply` accepts, with its state in comments."""
    task = api.client.get(path("v1", "tasks", name))
    api.show(task, lambda: click.echo(_as_yaml(task), nl=False))


def _as_yaml(task: dict[str, Any]) -> str:
    spec = definition(task)
    state = {name: value for name, value in task.items() if name not in spec}
    comments = "".join(f"# {line}\n" for line in _yaml(state).splitlines())
    return _yaml(spec) + comments


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


@click.command("where")
@click.argument("name")
@click.option("--without", multiple=True, metavar="NODE", help="Answer as if this node were down.")
@api_command
def where_command(api: Api, name: str, without: tuple[str, ...]) -> None:
    """Show which node owns a task and why, and where the task runs now.

    bootstrap/NODE is the work of feeding NODE with finished runs that it lacks.
    """
    answer = api.client.get(path("v1", "tasks", name, "owner"), without=",".join(without) or None)
    api.show(answer, lambda: _print_where(api, answer, without))


def _print_where(api: Api, answer: dict[str, Any], without: tuple[str, ...]) -> None:
    condition = f" without {', '.join(without)}" if without else ""
    api.fields(
        {
            "task": answer["task"],
            f"owner{condition}": answer["owner"] or "no member may run it",
            "now": "; ".join(told["detail"] for told in answer["standing"]) or None,
            "runs on": ", ".join(f"{run['node']} ({run['run_id']})" for run in answer["running_on"]) or None,
            "then": " > ".join(answer["preference"]) or None,
            "standbys": ", ".join(answer["standbys"]) or None,
            **({"waits": answer["waiting"]} if answer["waiting"] else {}),
            "because": ", ".join(f"{step['node'] or 'vacant slot'}: {step['verdict']}" for step in answer["because"]),
            "next": ago(answer["next_fire_at"]),
        }
    )


@click.command("pause")
@click.argument("name")
@api_command
def pause_command(api: Api, name: str) -> None:
    """Pause a task: nothing of it falls due until it is resumed."""
    answer = api.client.call("POST", path("v1", "tasks", name, "pause")).json
    api.show(answer, f"{name} is paused")


@click.command("resume")
@click.argument("name")
@api_command
def resume_command(api: Api, name: str) -> None:
    """Resume a paused task; its schedule continues from now."""
    answer = api.client.call("POST", path("v1", "tasks", name, "resume")).json
    api.show(answer, f"{name} is resumed")


@click.command("delete")
@click.argument("name")
@api_command
def delete_command(api: Api, name: str) -> None:
    """Delete a task and cancel its runs."""
    api.client.call("DELETE", path("v1", "tasks", name))
    api.show(None, f"{name} is deleted")
